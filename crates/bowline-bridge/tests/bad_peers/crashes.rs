//! Servers that crash, hang and lie.

use std::time::Duration;

use bowline::testing::eventually;
use bowline::types::LoggingLevel;
use bowline::wire::Lines;
use bowline::{Client, ErrorCode};
use bowline_bridge::{Bridge, Target};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::time::Instant;

use crate::scripted::{LEGACY, MODERN, bridge, builder, over_http, text};

#[tokio::test(start_paused = true)]
async fn one_crash_with_many_calls_in_flight_is_one_failure() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).await.unwrap();
    let calls: Vec<_> = (0..20)
        .map(|_| tokio::spawn(client.call_tool("wait", ()).start()))
        .collect();
    let mut first = upstreams.accept().await;
    for _ in 0..20 {
        let _ = first.expect("tools/call").await.hold();
    }

    drop(first);

    for call in calls {
        let error = call.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("upstream `scripted`"), "{error}");
    }
    let next = tokio::spawn(client.call_tool("echo", ()).start());
    let mut second = upstreams.accept().await;
    second.expect("tools/call").await.answer(text("again"));
    assert_eq!(next.await.unwrap().unwrap().text(), "again");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_exits_at_once_is_tried_again_at_growing_intervals() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).await.unwrap();
    let started = Instant::now();
    let mut attempts = 0;

    while started.elapsed() < Duration::from_secs(60) {
        let mut call = tokio::spawn(client.call_tool("echo", ()).start());
        tokio::select! {
            upstream = upstreams.next() => {
                drop(upstream);
                attempts += 1;
                let error = call.await.unwrap().unwrap_err().to_string();
                assert!(error.contains("upstream `scripted`"), "{error}");
            }
            refused = &mut call => {
                let error = refused.unwrap().unwrap_err().to_string();
                assert!(error.contains("is not available"), "{error}");
                tokio::time::advance(Duration::from_millis(100)).await;
            }
        }
    }

    // 0, 0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5 s, and so on.
    assert!((7..=9).contains(&attempts), "{attempts} attempts");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_initialize_is_tried_again_at_growing_intervals() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).await.unwrap();
    let started = Instant::now();
    let mut attempts = 0;

    while started.elapsed() < Duration::from_secs(60) {
        let mut call = tokio::spawn(client.call_tool("echo", ()).start());
        tokio::select! {
            mut upstream = upstreams.next() => {
                attempts += 1;
                let initialize = upstream.expect("initialize").await;
                initialize.answer_error(ErrorCode(-32000), "no licence");
                let error = call.await.unwrap().unwrap_err().to_string();
                assert!(error.contains("no licence"), "{error}");
            }
            refused = &mut call => {
                let error = refused.unwrap().unwrap_err().to_string();
                assert!(error.contains("no licence"), "{error}");
                tokio::time::advance(Duration::from_millis(100)).await;
            }
        }
    }

    assert!((7..=9).contains(&attempts), "{attempts} attempts");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_initialize_delays_all_waiting_requests_once() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).await.unwrap();
    let started = Instant::now();

    let calls: Vec<_> = (0..5)
        .map(|_| tokio::spawn(client.call_tool("echo", ()).start()))
        .collect();
    let mut silent = upstreams.next().await;
    let _ = silent.expect("initialize").await.hold();
    for call in calls {
        let error = call.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("upstream `scripted`"), "{error}");
    }

    let waited = started.elapsed();
    assert!(waited < Duration::from_secs(31), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_its_connection_opens_leaves_the_next_one_unharmed() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).await.unwrap();
    let first = tokio::spawn(client.call_tool("echo", ()).start());
    let mut opening = upstreams.next().await;
    let initialize = opening.expect("initialize").await.hold();
    let second = tokio::spawn(client.call_tool("echo", ()).start());
    let third = tokio::spawn(client.call_tool("echo", ()).start());
    tokio::time::advance(Duration::from_millis(1)).await;

    third.abort();
    first.abort();

    // `initialize` is never cancelled, so nothing follows it.
    let _ = initialize;
    assert!(opening.receive_to_end().await.is_empty());
    let mut upstream = upstreams.accept().await;
    upstream.expect("tools/call").await.answer(text("second"));
    assert_eq!(second.await.unwrap().unwrap().text(), "second");
    upstream.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_twice_settles_one_call() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).await.unwrap();
    let first = tokio::spawn(client.call_tool("echo", ()).start());
    let mut upstream = upstreams.accept().await;
    let id = upstream.expect("tools/call").await.hold();

    upstream.answer(id.clone(), text("first"));
    upstream.answer(id, text("twice"));

    assert_eq!(first.await.unwrap().unwrap().text(), "first");
    let second = tokio::spawn(client.call_tool("echo", ()).start());
    upstream.expect("tools/call").await.answer(text("second"));
    assert_eq!(second.await.unwrap().unwrap().text(), "second");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_notifications_for_no_call_does_not_delay_a_call() {
    let (bridge, mut upstreams) = bridge();
    let client = over_http(&bridge.http(), MODERN).await.unwrap();
    let call = tokio::spawn(client.call_tool("echo", ()).start());
    let mut upstream = upstreams.accept().await;
    let id = upstream.expect("tools/call").await.hold();

    for number in 0..4_000 {
        let params = json!({"progressToken": number, "progress": 1, "level": "info", "data": "x"});
        upstream.notify("notifications/message", params.clone());
        upstream.notify("notifications/progress", params);
        if number % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    upstream.answer(id, text("done"));

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_set_level_delays_one_call_once() {
    let (bridge, mut upstreams) = bridge();
    let connect = over_http(&bridge.http(), MODERN).log_level(LoggingLevel::Info);
    let client = connect.await.unwrap();
    let first = tokio::spawn(client.call_tool("echo", ()).start());
    let mut upstream = upstreams.accept().await;
    let level = upstream.expect("logging/setLevel").await.hold();
    upstream.expect_cancel(&level).await;
    upstream.expect("tools/call").await.answer(text("first"));
    first.await.unwrap().unwrap();
    let started = Instant::now();

    let second = tokio::spawn(client.call_tool("echo", ()).start());
    upstream.expect("tools/call").await.answer(text("second"));

    second.await.unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_client_does_not_silence_the_call_of_a_talkative_one() {
    let (bridge, mut upstreams) = bridge();
    let service = bridge.http();
    let talkative = over_http(&service, MODERN).log_level(LoggingLevel::Debug);
    let quiet = over_http(&service, MODERN).log_level(LoggingLevel::Error);
    let (talkative, quiet) = (talkative.await.unwrap(), quiet.await.unwrap());
    let first = tokio::spawn(talkative.call_tool("wait", ()).start());
    let mut upstream = upstreams.accept().await;
    let level = upstream.expect("logging/setLevel").await;
    assert_eq!(level.params()["level"], "debug");
    level.answer(json!({}));
    let waiting = upstream.expect("tools/call").await.hold();

    let second = tokio::spawn(quiet.call_tool("echo", ()).start());

    // The level stays as the first call needs it.
    upstream.expect("tools/call").await.answer(text("quiet"));
    second.await.unwrap().unwrap();
    upstream.answer(waiting, text("talkative"));
    first.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_ends_after_the_idle_timeout_and_is_cancelled() {
    let (builder, mut upstreams) = builder();
    let bridge = builder.call_idle_timeout(Duration::from_secs(10)).build();
    let client = over_http(&bridge.http(), MODERN).await.unwrap();
    let call = tokio::spawn(client.call_tool("wait", ()).start());
    let mut upstream = upstreams.accept().await;
    let id = upstream.expect("tools/call").await.hold();

    let reason = upstream.expect_cancel(&id).await;

    assert_eq!(reason, "timed out after 10s");
    let error = call.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("upstream `scripted`"), "{error}");
    assert!(error.contains("timed out after 10s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_too_long_costs_its_call_the_idle_timeout_and_not_the_next() {
    let target = Target::new("long-winded", |_| {
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(answer_at_length(far));
        let (read, write) = tokio::io::split(near);
        Ok(Client::from_wire(Lines::new(read, write)).protocol_version(MODERN))
    });
    let bridge = Bridge::builder(target).call_idle_timeout(Duration::from_secs(2));
    let client = over_http(&bridge.build().http(), MODERN).await.unwrap();

    let long = client.call_tool("long", ()).await.map(drop);
    let long = long.unwrap_err().to_string();
    let short = client.call_tool("short", ()).await.unwrap();

    assert!(long.contains("upstream `long-winded`"), "{long}");
    assert_eq!(short.text(), "short");
}

/// A modern server whose answer to the tool `long` is a line of 19 MB.
async fn answer_at_length(pipe: DuplexStream) {
    let (read, mut write) = tokio::io::split(pipe);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request: Value = serde_json::from_str(&line).unwrap();
        let part = [b' '; 64 * 1024];
        if request["params"]["name"] == "long" {
            for _ in 0..300 {
                // Fails if the bridge has closed the connection.
                let _ = write.write_all(&part).await;
            }
            let _ = write.write_all(b"\n").await;
            continue;
        }
        let mut result = text("short");
        result["resultType"] = json!("complete");
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        let answer = format!("{answer}\n");
        write.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Returns the error of a client whose server declares these capabilities, which the bridge refuses.
async fn error_of_handshake(capabilities: Value) -> String {
    let (bridge, mut upstreams) = bridge();
    let client = tokio::spawn({
        let service = bridge.http();
        async move {
            let client = over_http(&service, MODERN).await?;
            client.list_tools().await.map(drop)
        }
    });
    let mut upstream = upstreams.next().await;
    let information = json!({"name": "talkative", "version": "1.0.0"});
    upstream.expect("initialize").await.answer(
        json!({"protocolVersion": LEGACY, "capabilities": capabilities, "serverInfo": information}),
    );
    let error = client.await.unwrap().unwrap_err().to_string();
    assert!(eventually(|| bridge.usage().connections == 0).await);
    error
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_too_much_about_itself_is_refused_with_the_limit() {
    let many = json!({"tools": {}, "experimental": {"text": {"long": "x".repeat(1 << 20)}}});

    let error = error_of_handshake(many).await;

    assert!(error.contains("at most 1048576 are accepted"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_error_quotes_only_the_start_of_what_a_server_has_sent() {
    let malformed = json!({"tools": {}, "experimental": {"text": "x".repeat(1 << 20)}});

    let error = error_of_handshake(malformed).await;

    assert!(error.starts_with("upstream `scripted`: peer violated the protocol"));
    assert!((4000..5000).contains(&error.len()), "{}", error.len());
}
