//! Request ids: chosen or generated, sent verbatim, and coerced to match responses and cancels.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::{Error, RequestId};
use serde_json::{Value, json};

use crate::handler_monitor::HandlerMonitor;
use crate::test_pair::{
    TestPair, call_frame, cancel_json, poll_once, scripted_client, scripted_server,
};

everywhere!(a_chosen_id_reaches_the_handler_verbatim_and_does_not_affect_generated_ids);
async fn a_chosen_id_reaches_the_handler_verbatim_and_does_not_affect_generated_ids(
    pair: TestPair,
) {
    let chosen = pair.client.call_tool("id", ()).id("7").await.unwrap();
    let number = pair.client.call_tool("id", ()).id(-7).await.unwrap();
    let generated = pair.client.call_tool("id", ()).await.unwrap();

    assert_eq!(chosen.text(), r#""7""#);
    assert_eq!(number.text(), "-7");
    assert_eq!(generated.text(), pair.id(1).to_string());
    let frames = [
        r#"→ "7" tools/call id"#.to_owned(),
        r#"← "7" result"#.to_owned(),
        "→ -7 tools/call id".to_owned(),
        "← -7 result".to_owned(),
        pair.request(1, "tools/call id"),
        pair.result(1),
    ];
    pair.finish(&frames).await;
}

everywhere!(choosing_an_id_in_flight_is_an_error_before_anything_is_sent);
async fn choosing_an_id_in_flight_is_an_error_before_anything_is_sent(pair: TestPair) {
    let mine = pair
        .client
        .call_tool("slow", json!({"name": "mine"}))
        .id(70);
    let mine = pair.poll_until_handler_starts(mine.start()).await;

    for taken in [RequestId::from(70), RequestId::from("70")] {
        let second = pair.client.call_tool("quick", ()).id(taken).await;
        assert!(matches!(second, Err(Error::Misuse { .. })), "{second:?}");
    }
    drop(mine);
    pair.handlers.wait_for_dropped(1).await;
    // The id is free again with the end of the request.
    pair.client.call_tool("quick", ()).id("70").await.unwrap();

    let frames = [
        "→ 70 tools/call slow".to_owned(),
        format!("→ {}", cancel_json("70", "caller cancelled")),
        r#"→ "70" tools/call quick"#.to_owned(),
        r#"← "70" result"#.to_owned(),
    ];
    pair.finish(&frames).await;
}

everywhere!(generated_ids_skip_chosen_ids_in_flight);
async fn generated_ids_skip_chosen_ids_in_flight(pair: TestPair) {
    let chosen = pair.id(3).to_string();
    let mine = pair.client.call_tool("slow", json!({"name": "mine"}));
    let mine = pair
        .poll_until_handler_starts(mine.id(chosen.clone()).start())
        .await;

    for generated in [1, 2, 4] {
        let reply = pair.client.call_tool("id", ()).await.unwrap();
        assert_eq!(reply.text(), pair.id(generated).to_string());
    }

    drop(mine);
    pair.handlers.wait_for_dropped(1).await;
    let mut frames = vec![format!("→ \"{chosen}\" tools/call slow")];
    for generated in [1, 2, 4] {
        frames.extend([
            pair.request(generated, "tools/call id"),
            pair.result(generated),
        ]);
    }
    frames.push(format!(
        "→ {}",
        cancel_json(&format!("\"{chosen}\""), "caller cancelled")
    ));
    pair.finish(&frames).await;
}

in_every_version!(a_response_id_matches_its_call_as_a_number_or_a_string);
async fn a_response_id_matches_its_call_as_a_number_or_a_string(version: &'static str) {
    let (client, mut peer) = scripted_server(version).await;
    for (chosen, echoed) in [(RequestId::from(70), json!("70")), ("70".into(), json!(70))] {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let received = reports.clone();
        let answered = client
            .raw("x/y", ())
            .id(chosen.clone())
            .on_progress(move |report| received.lock().unwrap().push(report.progress));
        let (answered, ()) = tokio::join!(answered.into_future(), async {
            let request = peer.receive().await;
            let token = &request["params"]["_meta"]["progressToken"];
            peer.send(
                &json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token.to_string(), "progress": 1}}),
            );
            peer.answer(&json!({"id": echoed}), &json!({"resultType": "complete"}));
        });
        let failed = client.raw("x/y", ()).id(chosen);
        let (failed, ()) = tokio::join!(failed.into_future(), async {
            peer.receive().await;
            let error = json!({"code": -32000, "message": "no"});
            peer.send(&json!({"jsonrpc": "2.0", "id": echoed, "error": error}));
        });

        assert!(answered.is_ok());
        assert_eq!(*reports.lock().unwrap(), [1.0]);
        assert!(matches!(failed, Err(Error::Peer(error)) if error.message == "no"));
    }
    assert!(client.peer().unwrap().is_idle());
}

in_every_version!(coercion_accepts_canonical_decimals_only);
async fn coercion_accepts_canonical_decimals_only(version: &'static str) {
    let (client, mut peer) = scripted_server(version).await;
    let call = client.raw("x/y", ()).id(7).timeout(Duration::from_secs(1));

    let (ended, ()) = tokio::join!(call.into_future(), async {
        peer.receive().await;
        for opaque in ["007", "+7", " 7", "1_000", "7.0", ""] {
            peer.answer(&json!({"id": opaque}), &json!({"resultType": "complete"}));
        }
    });

    assert!(matches!(ended, Err(Error::Timeout { .. })));
}

in_every_version!(inbound_requests_are_keyed_verbatim);
async fn inbound_requests_are_keyed_verbatim(version: &'static str) {
    let handlers = HandlerMonitor::new();
    let (server_end, mut peer) = scripted_client(version, &handlers).await;
    peer.send_text(&call_frame(version, 7, "slow"));
    peer.send_text(&call_frame(version, "7", "slow"));
    handlers.wait_for_started(2).await;

    peer.send_text(&cancel_json("\"7\"", "the text one"));
    handlers.wait_for_dropped(1).await;
    handlers.release("mine");

    assert_eq!(peer.receive_summary().await, "7 result");
    assert!(server_end.is_idle());
    drop(peer);
}

in_every_version!(an_inbound_cancel_matches_by_coercion_if_exactly_one_request_fits);
async fn an_inbound_cancel_matches_by_coercion_if_exactly_one_request_fits(version: &'static str) {
    for (id, named, fits) in [
        (json!(7), r#""7""#, true),
        (json!("7"), "7", true),
        (json!("007"), "7", false),
        (json!(7), r#""+7""#, false),
    ] {
        let handlers = HandlerMonitor::new();
        let (server_end, mut peer) = scripted_client(version, &handlers).await;
        peer.send_text(&call_frame(version, &id, "slow"));
        handlers.wait_for_started(1).await;

        peer.send_text(&cancel_json(named, "coerced"));
        peer.send_text(&call_frame(version, "next", "quick"));

        assert_eq!(peer.receive_summary().await, "\"next\" result");
        assert_eq!(handlers.counts().dropped, usize::from(fits), "{id} {named}");
        assert_eq!(server_end.is_idle(), fits);
    }
}

in_every_version!(a_boolean_is_never_an_id);
async fn a_boolean_is_never_an_id(version: &'static str) {
    let handlers = HandlerMonitor::new();
    let (_server_end, mut peer) = scripted_client(version, &handlers).await;
    peer.send_text(&call_frame(version, 1, "slow"));
    handlers.wait_for_started(1).await;

    for no_id in [json!(true), json!(1.0), Value::Null, json!([1])] {
        peer.send_text(&cancel_json(&no_id.to_string(), "not an id"));
    }
    handlers.release("mine");

    assert_eq!(peer.receive_summary().await, "1 result");
    assert_eq!(handlers.counts().dropped, 0);
}

everywhere!(the_id_of_a_call_dropped_before_its_first_poll_is_free_again);
async fn the_id_of_a_call_dropped_before_its_first_poll_is_free_again(pair: TestPair) {
    let mut first = pair.client.call_tool("quick", ()).id("x").start();
    drop(pair.client.call_tool("quick", ()).id("y").start());

    assert!(poll_once(&mut first).await.is_ready() || first.await.is_ok());
    pair.client.call_tool("quick", ()).id("y").await.unwrap();

    let frames = [
        r#"→ "x" tools/call quick"#.to_owned(),
        r#"← "x" result"#.to_owned(),
        r#"→ "y" tools/call quick"#.to_owned(),
        r#"← "y" result"#.to_owned(),
    ];
    pair.finish(&frames).await;
}
