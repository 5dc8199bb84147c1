//! Every request ends with a result, an error or a cancel.

use bowline::testing::ScriptedPeer;
use bowline::{Client, Error, ErrorCode};
use serde_json::json;

use crate::test_pair::{TestPair, poll_once};

run!(everywhere, a_handler_that_panics_ends_its_own_request_only);
async fn a_handler_that_panics_ends_its_own_request_only(pair: TestPair) {
    let call = pair.client.call_tool("panics", json!({"name": "mine"}));

    let error = call.await.unwrap_err();

    assert!(matches!(error, Error::Rpc(error) if error.code == ErrorCode::INTERNAL_ERROR));
    let frames = [
        pair.request(1, "tools/call panics"),
        format!("← {} error -32603", pair.id(1)),
    ];
    pair.finish(&frames).await;
}

run!(everywhere, a_request_with_an_unknown_method_is_refused);
async fn a_request_with_an_unknown_method_is_refused(pair: TestPair) {
    let error = pair.client.request_raw("x/unknown", ()).await.unwrap_err();

    assert!(matches!(error, Error::Rpc(error) if error.code == ErrorCode::METHOD_NOT_FOUND));
    let frames = [
        pair.request(1, "x/unknown"),
        format!("← {} error -32601", pair.id(1)),
    ];
    pair.finish(&frames).await;
}

run!(
    with_scripted_server,
    a_malformed_result_fails_its_own_request_only
);
async fn a_malformed_result_fails_its_own_request_only((client, mut peer): (Client, ScriptedPeer)) {
    let mut other = client.request_raw("x/other", ()).start();
    assert!(poll_once(&mut other).await.is_pending());
    let other_request = peer.expect("x/other").await.hold();

    for broken in [json!(7), json!([]), json!(null), json!("text")] {
        let (ended, ()) = tokio::join!(client.request_raw("x/y", ()).into_future(), async {
            peer.expect("x/y").await.answer(broken.clone());
        });
        assert!(matches!(ended, Err(Error::Protocol { .. })), "{broken}");
    }

    peer.answer(other_request, json!({"resultType": "complete"}));
    assert!(other.await.is_ok());
    assert!(client.peer().unwrap().is_idle());
}

run!(
    with_scripted_server,
    a_wire_that_ends_settles_every_request_in_call_order
);
async fn a_wire_that_ends_settles_every_request_in_call_order(
    (client, mut peer): (Client, ScriptedPeer),
) {
    let (ended, mut order) = tokio::sync::mpsc::unbounded_channel();
    for nth in 0..3 {
        let (call, ended) = (client.request_raw("x/y", ()).start(), ended.clone());
        tokio::spawn(async move { ended.send((nth, call.await)) });
        peer.next_message().await;
    }

    drop(peer);

    for expected in 0..3 {
        let (nth, outcome) = order.recv().await.unwrap();
        assert_eq!(nth, expected);
        assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    }
    assert!(client.peer().unwrap().is_idle());
}
