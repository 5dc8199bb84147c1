//! Every request ends: in a result, an error or a cancel, and never in a hang.

use std::future::IntoFuture;

use bowline::{Error, ErrorCode};
use serde_json::json;

use crate::world::{World, poll_once, scripted_server};

everywhere!(a_handler_that_panics_ends_its_own_request_only);
async fn a_handler_that_panics_ends_its_own_request_only(world: World) {
    let call = world.client.call_tool("panics", json!({"name": "mine"}));

    let error = call.await.unwrap_err();

    assert!(matches!(error, Error::Peer(error) if error.code == ErrorCode::INTERNAL_ERROR));
    let frames = [
        world.request(1, "tools/call panics"),
        format!("← {} error -32603", world.id(1)),
    ];
    world.end(&frames).await;
}

everywhere!(a_request_that_nobody_answers_is_refused);
async fn a_request_that_nobody_answers_is_refused(world: World) {
    let error = world.client.raw("x/nobody", ()).await.unwrap_err();

    assert!(matches!(error, Error::Peer(error) if error.code == ErrorCode::METHOD_NOT_FOUND));
    let frames = [
        world.request(1, "x/nobody"),
        format!("← {} error -32601", world.id(1)),
    ];
    world.end(&frames).await;
}

in_every_era!(an_answer_that_breaks_the_protocol_settles_the_request_it_concerns_and_only_that_one);
async fn an_answer_that_breaks_the_protocol_settles_the_request_it_concerns_and_only_that_one(
    version: &'static str,
) {
    let (client, mut script) = scripted_server(version).await;
    let mut other = client.raw("x/other", ()).start();
    assert!(poll_once(&mut other).await.is_pending());
    let other_request = script.hear().await;

    for broken in [json!(7), json!([]), json!(null), json!("text")] {
        let (ended, ()) = tokio::join!(client.raw("x/y", ()).into_future(), async {
            let request = script.hear().await;
            script.answer(&request, &broken);
        });
        assert!(matches!(ended, Err(Error::Protocol { .. })), "{broken}");
    }

    script.answer(&other_request, &json!({"resultType": "complete"}));
    assert!(other.await.is_ok());
    assert!(client.peer().unwrap().is_idle());
}

in_every_era!(a_wire_that_ends_settles_every_request_in_call_order);
async fn a_wire_that_ends_settles_every_request_in_call_order(version: &'static str) {
    let (client, mut script) = scripted_server(version).await;
    let (ended, mut order) = tokio::sync::mpsc::unbounded_channel();
    for nth in 0..3 {
        let (call, ended) = (client.raw("x/y", ()).start(), ended.clone());
        tokio::spawn(async move { ended.send((nth, call.await)) });
        script.hear().await;
    }

    drop(script);

    for expected in 0..3 {
        let (nth, outcome) = order.recv().await.unwrap();
        assert_eq!(nth, expected);
        assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    }
    assert!(client.peer().unwrap().is_idle());
}
