//! Token refresh: in the background while the token is valid, and with a backoff while the issuer fails.

use std::sync::Arc;
use std::time::Duration;

use bowline_auth::client::{Credentials, MemoryStore, TokenStore as _};
use serde_json::json;

use crate::fake_servers::{FakeServers, SERVER};
use crate::{connect, oauth, why};

#[tokio::test]
async fn a_call_does_not_wait_for_the_refresh_of_a_valid_token() {
    let servers = FakeServers::default();
    let store = Arc::new(MemoryStore::new());
    let first = connect(&servers, oauth(&servers).store(store.clone())).await;
    first.call_tool("x", ()).await.unwrap();
    let stored = store.load(SERVER).await.unwrap().unwrap();
    let mut due = serde_json::to_value(&stored).unwrap();
    due["tokens"]["renew_at"] = json!(0);
    let due: Credentials = serde_json::from_value(due).unwrap();
    store.remove(SERVER).await.unwrap();
    store.save(SERVER, &due, None).await.unwrap();
    let client = connect(&servers, oauth(&servers).store(store)).await;
    servers.take_log();

    servers.state().holds_token_requests = true;
    let call = client.call_tool("x", ()).start();
    let served = tokio::time::timeout(Duration::from_secs(30), call).await;
    served
        .expect("the call does not wait for the refresh")
        .unwrap();
    let meanwhile = servers.count("tools/call Bearer t1");
    while servers.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    servers.release_token_requests();
    while servers.count("tools/call Bearer t2") == 0 {
        tokio::task::yield_now().await;
        client.call_tool("x", ()).await.unwrap();
    }

    assert_eq!(meanwhile, 1);
    assert_eq!(servers.count("refresh_token"), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_failing_issuer_back_off() {
    let servers = FakeServers::default();
    servers.state().lifetime = 0;
    let client = connect(&servers, oauth(&servers)).await;
    client.call_tool("x", ()).await.unwrap();
    servers.take_log();
    servers.state().valid_tokens.clear();
    servers.state().is_down = true;

    for _ in 0..10 {
        let reason = why(client.call_tool("x", ()).await);
        assert_eq!(
            reason,
            "the authorization server is temporarily unavailable: status 503"
        );
    }
    let at_first = servers.count("refresh_token");
    tokio::time::advance(Duration::from_secs(2)).await;
    for _ in 0..10 {
        assert!(client.call_tool("x", ()).await.is_err());
    }
    let later = servers.count("refresh_token");
    servers.state().is_down = false;
    tokio::time::advance(Duration::from_secs(60)).await;
    client.call_tool("x", ()).await.unwrap();

    assert_eq!((at_first, later), (1, 2));
    assert_eq!(servers.count("consent"), 0, "the user is not prompted");
}
