//! Client methods that send one request, and the options of their builders.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline::client::{ChangeFilter, KnownServer};
use bowline::types::{ContentBlock, LoggingLevel, Meta, PromptReference, ReadResourceRequest};
use bowline::{CallToolResult, Client, Context, Error, Progress, Server, Tool, testing};
use serde_json::{Value, json};

use super::{call_x, legacy, legacy_with, modern, modern_with};

#[tokio::test(start_paused = true)]
async fn every_client_method_sends_its_request_and_decodes_its_result() {
    let (client, mut server) = modern().await;

    let calls = async {
        let reply = client.call_tool("add", json!({"a": 1})).await.unwrap();
        let read = client.read_resource("file:///a").await.unwrap();
        let arguments = json!({"language": "Rust"});
        let prompt = client.get_prompt("review", arguments).await.unwrap();
        let completing = client.complete(PromptReference::new("review"), "language", "Ru");
        let completion = completing.context_argument("style", "terse").await.unwrap();
        let raw = client
            .request_raw("acme/do", json!({"x": 1}))
            .await
            .unwrap();
        (reply, read, prompt, completion, raw)
    };
    let script = async {
        let call = server.expect("tools/call").await;
        assert_eq!(call.params()["name"], "add");
        assert_eq!(call.params()["arguments"], json!({"a": 1}));
        call.answer(json!({"content": [{"type": "text", "text": "one"}]}));
        let read = server.expect("resources/read").await;
        assert_eq!(read.params()["uri"], "file:///a");
        read.answer(json!({"contents": [{"uri": "file:///a", "text": "hello"}]}));
        let prompt = server.expect("prompts/get").await;
        assert_eq!(prompt.params()["arguments"], json!({"language": "Rust"}));
        let message = json!({"role": "user", "content": {"type": "text", "text": "look"}});
        prompt.answer(json!({"messages": [message]}));
        let complete = server.expect("completion/complete").await;
        let expected = json!({"type": "ref/prompt", "name": "review"});
        assert_eq!(complete.params()["ref"], expected);
        let expected = json!({"name": "language", "value": "Ru"});
        assert_eq!(complete.params()["argument"], expected);
        let expected = json!({"arguments": {"style": "terse"}});
        assert_eq!(complete.params()["context"], expected);
        complete.answer(json!({"completion": {"values": ["Ruby", "Rust"]}}));
        let raw = server.expect("acme/do").await;
        assert_eq!(raw.params()["x"], 1);
        raw.answer(json!({"y": 2}));
    };
    let ((reply, read, prompt, completion, raw), ()) = tokio::join!(calls, script);

    assert_eq!(reply.text(), "one");
    assert_eq!(read.contents[0].uri(), "file:///a");
    assert_eq!(prompt.messages[0].content, ContentBlock::text("look"));
    assert_eq!(completion.values, ["Ruby", "Rust"]);
    assert_eq!(raw.decode::<Value>().unwrap()["y"], 2);
}

#[tokio::test(start_paused = true)]
async fn builder_options_apply_to_every_request() {
    let (client, mut server) = modern().await;
    let mut meta = Meta::default();
    meta.insert("acme/trace", json!("t1"));

    let read = client
        .read_resource("file:///a")
        .id("chosen")
        .meta(meta)
        .log_level(LoggingLevel::Warning)
        .idle_timeout(Duration::from_secs(3));
    let read = tokio::spawn(read.into_future());
    let request = server.expect("resources/read").await;

    assert_eq!(request.id(), "chosen".into());
    assert_eq!(request.params()["_meta"]["acme/trace"], "t1");
    let level = &request.params()["_meta"]["io.modelcontextprotocol/logLevel"];
    assert_eq!(level, "warning");
    let id = request.hold();
    let reason = server.expect_cancel(&id).await;
    assert_eq!(reason, "timed out after 3s");
    let error = read.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { after } if after == Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn by_default_a_call_ends_after_60_s_of_silence_and_has_no_total_timeout() {
    let slow = Tool::new("slow", async |cx: Context| {
        let mut ticks = tokio::time::interval(Duration::from_secs(59));
        ticks.tick().await; // the first is immediate
        for done in 1..=10 {
            ticks.tick().await;
            cx.progress(Progress::new(done));
        }
    });
    let server = Server::new("s", "1").tool(slow);
    let client = Client::in_process(&server).await.unwrap();
    let started = tokio::time::Instant::now();

    let silent = client.call_tool("slow", ()).await.unwrap_err();
    let silence = started.elapsed();
    let lively = client.call_tool("slow", ()).on_progress(|_| {}).await;

    assert!(matches!(silent, Error::Timeout { after } if after == Duration::from_secs(60)));
    assert_eq!(silence, Duration::from_secs(60));
    lively.unwrap();
    assert_eq!(started.elapsed() - silence, Duration::from_secs(590));
}

#[tokio::test(start_paused = true)]
async fn a_started_call_can_be_cancelled_with_a_reason_and_a_dropped_builder_sends_nothing() {
    let (client, mut server) = modern().await;

    drop(client.read_resource("file:///never"));
    let call = client.read_resource("file:///a").start();
    let id = server.expect("resources/read").await.hold();
    call.cancel("the user closed the tab");

    assert_eq!(server.expect_cancel(&id).await, "the user closed the tab");
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_with_cancel_on_drop_false_sends_nothing() {
    let (client, mut server) = modern().await;

    let call = client.call_tool("slow", ()).cancel_on_drop(false).start();
    let _ = server.expect("tools/call").await.hold();
    drop(call);

    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn ping_sends_ping_in_the_legacy_era_and_server_discover_in_the_modern() {
    let (old, mut old_server) = legacy(json!({})).await;
    let (new, mut new_server) = modern().await;

    let pings = async { (old.ping().await, new.ping().await) };
    let script = async {
        old_server.expect("ping").await.answer(json!({}));
        let discovery = json!({"supportedVersions": ["2026-07-28"], "capabilities": {}});
        new_server.expect("server/discover").await.answer(discovery);
    };
    let ((old, new), ()) = tokio::join!(pings, script);

    old.unwrap();
    new.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_without_its_server_capability_is_not_sent_unless_unchecked() {
    let (client, mut server) = legacy(json!({"tools": {}})).await;

    let error = client.get_prompt("p", ()).await.unwrap_err();
    let unchecked = tokio::spawn(
        client
            .get_prompt("p", ())
            .skip_capability_check()
            .into_future(),
    );

    assert!(matches!(&error, Error::Misuse { what } if what.contains("`prompts`")));
    server
        .expect("prompts/get")
        .await
        .answer(json!({"messages": []}));
    unchecked.await.unwrap().unwrap();
    assert!(
        client
            .complete(PromptReference::new("p"), "a", "")
            .await
            .is_err()
    );
    assert!(client.set_log_level(LoggingLevel::Debug).await.is_err());
    assert!(client.read_resource("x://y").await.is_err());
    server.expect_nothing().await;
}

/// Nothing is sent: the scripted server would answer no request, and the lists would not end.
#[tokio::test(start_paused = true)]
async fn a_list_that_the_server_does_not_offer_is_empty_and_not_requested() {
    let (client, mut server) = legacy(json!({})).await;

    assert_eq!(client.list_tools().await.unwrap(), []);
    assert_eq!(client.list_prompts().await.unwrap(), []);
    assert_eq!(client.list_resources().await.unwrap(), []);
    assert_eq!(client.list_resource_templates().await.unwrap(), []);
    let page = client.list_tools().first_page().await.unwrap();
    assert_eq!((page.tools, page.next_cursor), (Vec::new(), None));
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_server_with_unknown_capabilities_are_sent() {
    let (client, mut server) = modern().await;

    call_x(&client, &mut server).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unchecked_client_does_not_check_server_capabilities() {
    let (client, mut server) =
        legacy_with(json!({}), |connect| connect.skip_capability_check()).await;

    call_x(&client, &mut server).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_log_level_is_set_by_a_request_in_the_legacy_era_and_by_meta_in_the_modern() {
    let (old, mut old_server) = legacy(json!({"logging": {}, "tools": {}})).await;
    let (new, mut new_server) = modern().await;

    let setting = tokio::spawn(old.set_log_level(LoggingLevel::Error).into_future());
    let set = old_server.expect("logging/setLevel").await;
    assert_eq!(set.params()["level"], "error");
    set.answer(json!({}));
    setting.await.unwrap().unwrap();

    new.set_log_level(LoggingLevel::Error).await.unwrap();
    let _call = new.call_tool("x", ()).start();
    let call = new_server.expect("tools/call").await;
    let level = &call.params()["_meta"]["io.modelcontextprotocol/logLevel"];
    assert_eq!(level, "error");
}

#[tokio::test(start_paused = true)]
async fn a_log_level_of_the_connect_builder_is_set_in_the_legacy_era() {
    let (wire, mut server) = testing::scripted_peer();
    let connect = Client::from_wire(wire)
        .protocol_version("2025-11-25")
        .log_level(LoggingLevel::Notice);

    let connecting = tokio::spawn(connect.into_future());
    server
        .accept_handshake("2025-11-25", json!({"logging": {}}))
        .await;
    let set = server.expect("logging/setLevel").await;

    assert_eq!(set.params()["level"], "notice");
    set.answer(json!({}));
    connecting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_known_modern_server_is_connected_to_without_a_request() {
    let (wire, mut server) = testing::scripted_peer();
    let connecting = tokio::spawn(Client::from_wire(wire).into_future());
    let discovery = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}});
    server.expect("server/discover").await.answer(discovery);
    let client = connecting.await.unwrap().unwrap();
    let serialized = serde_json::to_string(&client.known_server()).unwrap();

    let known: KnownServer = serde_json::from_str(&serialized).unwrap();
    let (wire, mut server) = testing::scripted_peer();
    let again = Client::from_wire(wire).known_server(known).await.unwrap();

    server.expect_nothing().await;
    assert_eq!(again.dialect(), client.dialect());
    assert!(again.server_capabilities().unwrap().tools.is_some());
    assert!(matches!(
        again.get_prompt("p", ()).await,
        Err(Error::Misuse { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_known_legacy_server_is_not_probed() {
    let (client, _server) = legacy(json!({})).await;
    let known = client.known_server();

    let (wire, mut server) = testing::scripted_peer();
    let connecting = tokio::spawn(Client::from_wire(wire).known_server(known).into_future());
    server.accept_handshake("2025-11-25", json!({})).await;

    connecting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_known_server_with_a_disallowed_version_is_rejected() {
    let (client, _server) = legacy(json!({})).await;

    let (wire, _other) = testing::scripted_peer();
    let connect = Client::from_wire(wire).protocol_version("2026-07-28");
    let error = connect
        .known_server(client.known_server())
        .await
        .unwrap_err();

    assert!(matches!(error, Error::Misuse { .. }));
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_are_a_misuse_error() {
    let (client, mut server) = modern().await;

    let tool = client.call_tool("x", 5).await.unwrap_err();
    let prompt = client.get_prompt("p", json!({"n": 5})).await.unwrap_err();

    assert!(matches!(tool, Error::Misuse { .. }));
    assert!(matches!(prompt, Error::Misuse { .. }));
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_malformed_result_of_a_typed_request_is_a_protocol_error() {
    let (client, mut server) = modern_with(|connect| connect).await;
    let params = serde_json::from_value(json!({"uri": "file:///a"})).unwrap();

    let request = client.request::<ReadResourceRequest>(&params).into_future();
    let request = tokio::spawn(request);
    server
        .expect("resources/read")
        .await
        .answer(json!({"contents": "wrong"}));

    assert!(matches!(
        request.await.unwrap(),
        Err(Error::Protocol { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_probe_error_without_an_id_starts_the_handshake_immediately() {
    let (wire, mut server) = testing::scripted_peer();
    let start = tokio::time::Instant::now();
    let script = async {
        let _ = server.expect("server/discover").await.hold();
        let refusal = json!({"code": -32600, "message": "not initialized"});
        server.send_json(&json!({"jsonrpc": "2.0", "id": null, "error": refusal}));
        server.accept_handshake("2025-11-25", json!({})).await;
    };

    let (client, ()) = tokio::join!(Client::from_wire(wire).into_future(), script);

    assert_eq!(client.unwrap().dialect().version, "2025-11-25");
    assert_eq!(
        start.elapsed(),
        Duration::ZERO,
        "the client did not wait for the probe timeout"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_accepted_only_in_revisions_with_batches() {
    for (version, accepts_batches) in [("2025-03-26", true), ("2025-06-18", false)] {
        let (wire, mut server) = testing::scripted_peer();
        let connecting = tokio::spawn(
            Client::from_wire(wire)
                .protocol_version(version)
                .into_future(),
        );
        server.accept_handshake(version, json!({"tools": {}})).await;
        let client = connecting.await.unwrap().unwrap();
        let call = client
            .call_tool("x", ())
            .idle_timeout(Duration::from_secs(1));
        let call = call.start();
        let id = server.expect("tools/call").await.hold();

        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}});
        server.send_json(&json!([answer]));

        assert_eq!(call.await.is_ok(), accepts_batches, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_does_not_answer_server_requests() {
    let (errors, mut reported) = tokio::sync::mpsc::unbounded_channel();
    let (client, mut server) = modern_with(|connect| {
        connect.on_error(move |error| errors.send(error.to_string()).unwrap())
    })
    .await;

    for method in ["ping", "roots/list", "no/such"] {
        server.send_json(&json!({"jsonrpc": "2.0", "id": method, "method": method}));
        assert!(reported.recv().await.unwrap().contains(method));
    }

    server.expect_nothing().await;
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn invalid_meta_keys_are_rejected() {
    let (client, mut server) = modern_with(|connect| connect).await;

    for key in ["an attempt", "com.mcp/attempt", "/attempt"] {
        let mut meta = Meta::default();
        meta.insert(key, json!(1));
        let error = client.call_tool("x", ()).meta(meta).await.unwrap_err();
        assert!(
            matches!(&error, Error::Misuse { .. }) && error.to_string().contains(key),
            "{error}"
        );
    }
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_extension_identifier_is_rejected() {
    for (id, is_declared) in [
        ("com.example/drawing", true),
        ("drawing", false),
        ("com.example/a b", false),
    ] {
        let (wire, _server) = testing::scripted_peer();
        let declared = serde_json::from_value(json!({"extensions": {id: {}}})).unwrap();

        let connected = Client::from_wire(wire)
            .protocol_version("2026-07-28")
            .capabilities(declared)
            .await;

        assert_eq!(connected.is_ok(), is_declared, "{id}");
    }
}

/// A future that resolves to a text, whatever else it is.
async fn text(call: impl Future<Output = bowline::Result<bowline::Reply>>) -> String {
    call.await.unwrap().text()
}

#[tokio::test(start_paused = true)]
async fn a_builder_of_a_request_or_client_can_be_used_wherever_a_future_can() {
    let echo = Tool::raw("echo", json!({"type": "object"}), async |_, _| {
        Ok(CallToolResult::text("hi"))
    });
    let server = Server::new("echo", "1.0.0").tool(echo);

    let (first, second) = tokio::join!(Client::in_process(&server), Client::in_process(&server));
    let (first, second) = (first.unwrap(), second.unwrap());
    let spawned = tokio::spawn(first.call_tool("echo", ()));
    let (tools, prompts, pinged) =
        tokio::join!(first.list_tools(), first.list_prompts(), second.ping());
    let mut selected = second.call_tool("echo", ());
    let selected = tokio::select! {
        reply = &mut selected => reply.unwrap().text(),
        () = std::future::pending() => unreachable!(),
    };
    let filter = ChangeFilter::new().tools();
    let subscription = tokio::time::timeout(Duration::from_secs(60), first.subscribe(filter)).await;

    assert_eq!(spawned.await.unwrap().unwrap().text(), "hi");
    assert_eq!(tools.unwrap().len(), 1);
    assert!(prompts.unwrap().is_empty() && pinged.is_ok());
    assert_eq!(selected, "hi");
    assert!(subscription.unwrap().is_ok());
    assert_eq!(text(second.call_tool("echo", ())).await, "hi");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_when_its_builder_is_first_polled_and_cancelled_when_it_is_dropped() {
    let (client, mut server) = modern().await;

    let unpolled = client.call_tool("never", ());
    let mut call = client.call_tool("slow", ());
    let mut cx = task::Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut call).poll(&mut cx).is_pending());
    let request = server.expect("tools/call").await.hold();
    drop((call, unpolled));

    server.expect_cancel(&request).await;
    server.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "options are set before the builder is polled")]
async fn an_option_cannot_be_set_once_the_request_is_sent() {
    let (client, _server) = modern().await;
    let mut call = client.call_tool("slow", ());
    let mut cx = task::Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut call).poll(&mut cx), Poll::Pending));

    drop(call.timeout(Duration::from_secs(1)));
}
