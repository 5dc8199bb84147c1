//! Request ids: chosen or generated, sent verbatim, and coerced to match responses and cancels.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::testing::ScriptedPeer;
use bowline::{Client, Error, RequestId};
use bowline_core::era::Dialect;
use serde_json::{Value, json};

use crate::scripted_peers::ScriptedClient;
use crate::test_pair::{TestPair, poll_once};

run!(
    everywhere,
    a_chosen_id_reaches_the_handler_verbatim_and_does_not_affect_generated_ids
);
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

run!(
    everywhere,
    choosing_an_id_in_flight_is_an_error_before_anything_is_sent
);
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
        "→ cancel 70: caller cancelled".to_owned(),
        r#"→ "70" tools/call quick"#.to_owned(),
        r#"← "70" result"#.to_owned(),
    ];
    pair.finish(&frames).await;
}

run!(everywhere, generated_ids_skip_chosen_ids_in_flight);
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
    frames.push(format!("→ cancel \"{chosen}\": caller cancelled"));
    pair.finish(&frames).await;
}

run!(
    with_scripted_server,
    a_response_id_matches_its_call_as_a_number_or_a_string
);
async fn a_response_id_matches_its_call_as_a_number_or_a_string(
    (client, mut peer): (Client, ScriptedPeer),
) {
    for (chosen, echoed) in [
        (RequestId::from(70), RequestId::from("70")),
        ("70".into(), 70.into()),
    ] {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let received = reports.clone();
        let answered = client
            .request_raw("x/y", ())
            .id(chosen.clone())
            .on_progress(move |report| received.lock().unwrap().push(report.progress));
        let (answered, ()) = tokio::join!(answered.into_future(), async {
            let request = peer.expect("x/y").await;
            let token = request.params()["_meta"]["progressToken"].to_string();
            let params = json!({"progressToken": token, "progress": 1});
            let _ = request.notify("notifications/progress", params).hold();
            peer.answer(echoed.clone(), json!({"resultType": "complete"}));
        });
        let failed = client.request_raw("x/y", ()).id(chosen);
        let (failed, ()) = tokio::join!(failed.into_future(), async {
            peer.next_message().await;
            let error = json!({"code": -32000, "message": "no"});
            peer.send_json(&json!({"jsonrpc": "2.0", "id": echoed, "error": error}));
        });

        assert!(answered.is_ok());
        assert_eq!(*reports.lock().unwrap(), [1.0]);
        assert!(matches!(failed, Err(Error::Rpc(error)) if error.message == "no"));
    }
    assert!(client.peer().unwrap().is_idle());
}

run!(
    with_scripted_server,
    coercion_accepts_canonical_decimals_only
);
async fn coercion_accepts_canonical_decimals_only((client, mut peer): (Client, ScriptedPeer)) {
    let call = client
        .request_raw("x/y", ())
        .id(7)
        .idle_timeout(Duration::from_secs(1));

    let (ended, ()) = tokio::join!(call.into_future(), async {
        peer.next_message().await;
        for opaque in ["007", "+7", " 7", "1_000", "7.0", ""] {
            peer.answer(opaque.into(), json!({"resultType": "complete"}));
        }
    });

    assert!(matches!(ended, Err(Error::Timeout { .. })));
}

run!(with_scripted_client, inbound_requests_are_keyed_verbatim);
async fn inbound_requests_are_keyed_verbatim(mut client: ScriptedClient) {
    client.call(7, "slow");
    client.call("7", "slow");
    client.handlers.wait_for_started(2).await;

    client.cancel("7", "the text one");
    client.handlers.wait_for_dropped(1).await;
    client.handlers.release("mine");

    assert_eq!(client.next().await, "7 result");
    client.finish().await;
}

#[tokio::test(start_paused = true)]
async fn an_inbound_cancel_matches_by_coercion_if_exactly_one_request_fits() {
    let cases = [
        (RequestId::from(7), json!("7"), true),
        ("7".into(), json!(7), true),
        ("007".into(), json!(7), false),
        (7.into(), json!("+7"), false),
    ];
    for (dialect, (id, named, fits)) in Dialect::ALL
        .iter()
        .flat_map(|dialect| cases.clone().map(|case| (dialect, case)))
    {
        let mut client = ScriptedClient::connect(dialect).await;
        client.call(id.clone(), "slow");
        client.handlers.wait_for_started(1).await;

        client.cancel(named.clone(), "coerced");
        client.call("next", "quick");

        assert_eq!(client.next().await, "\"next\" result");
        let dropped = client.handlers.counts().dropped;
        assert_eq!(dropped, usize::from(fits), "{id:?} {named}");
        assert_eq!(client.is_server_idle(), fits);
    }
}

run!(with_scripted_client, a_boolean_is_never_an_id);
async fn a_boolean_is_never_an_id(mut client: ScriptedClient) {
    client.call(1, "slow");
    client.handlers.wait_for_started(1).await;

    for no_id in [json!(true), json!(1.0), Value::Null, json!([1])] {
        client.cancel(no_id, "not an id");
    }
    client.handlers.release("mine");

    assert_eq!(client.next().await, "1 result");
    assert_eq!(client.handlers.counts().dropped, 0);
}

run!(
    everywhere,
    the_id_of_a_call_dropped_before_its_first_poll_is_free_again
);
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
