//! Renewals: in the background while the token is good, and not over and over while the issuer is out of order.

use std::sync::Arc;
use std::time::Duration;

use bowline_auth::client::{Credentials, MemoryStore, TokenStore as _};
use serde_json::json;

use crate::world::{SERVER, World};
use crate::{connect, oauth, why};

#[tokio::test]
async fn a_call_does_not_wait_for_the_renewal_of_a_token_that_is_still_good() {
    let world = World::default();
    let store = Arc::new(MemoryStore::new());
    let first = connect(&world, oauth(&world).store(store.clone())).await;
    first.call_tool("x", ()).await.unwrap();
    let kept = store.load(SERVER).await.unwrap().unwrap();
    let mut due = serde_json::to_value(&kept).unwrap();
    due["tokens"]["renew_at"] = json!(0);
    let due: Credentials = serde_json::from_value(due).unwrap();
    store.remove(SERVER).await.unwrap();
    store.save(SERVER, &due, None).await.unwrap();
    let client = connect(&world, oauth(&world).store(store)).await;
    world.seen();

    world.state().holds_tokens = true;
    let call = client.call_tool("x", ()).start();
    let served = tokio::time::timeout(Duration::from_secs(30), call).await;
    served.expect("it waits for no renewal").unwrap();
    let meanwhile = world.count("tools/call Bearer t1");
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    world.let_tokens_through();
    while world.count("tools/call Bearer t2") == 0 {
        tokio::task::yield_now().await;
        client.call_tool("x", ()).await.unwrap();
    }

    assert_eq!(meanwhile, 1);
    assert_eq!(world.count("refresh_token"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_out_of_order_is_left_alone_for_a_while() {
    let world = World::default();
    world.state().lifetime = 0;
    let client = connect(&world, oauth(&world)).await;
    client.call_tool("x", ()).await.unwrap();
    world.seen();
    world.state().good.clear();
    world.state().is_down = true;

    for _ in 0..10 {
        let reason = why(client.call_tool("x", ()).await);
        assert_eq!(
            reason,
            "the authorization server is not available at the moment: 503"
        );
    }
    let at_first = world.count("refresh_token");
    tokio::time::advance(Duration::from_secs(2)).await;
    for _ in 0..10 {
        assert!(client.call_tool("x", ()).await.is_err());
    }
    let later = world.count("refresh_token");
    world.state().is_down = false;
    tokio::time::advance(Duration::from_secs(60)).await;
    client.call_tool("x", ()).await.unwrap();

    assert_eq!((at_first, later), (1, 2));
    assert_eq!(world.count("person"), 0, "nobody is asked for that");
}
