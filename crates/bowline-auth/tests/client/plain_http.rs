//! A server at a plain `http://` URL on another machine: it is reached without a token, and gets none.

use std::sync::Arc;

use bowline::Client;
use bowline_auth::client::{Error, MemoryStore, OAuth};

use crate::fake_servers::FakeServers;
use crate::why;

const PLAIN: &str = "http://mcp.test/mcp";

fn servers() -> FakeServers {
    let servers = FakeServers::default();
    servers.state().resource = PLAIN.into();
    servers
}

fn oauth(servers: &FakeServers, store: &Arc<MemoryStore>) -> OAuth {
    OAuth::new(PLAIN)
        .http_client(servers.clone())
        .user_agent(servers.consenting_user())
        .store(store.clone())
}

async fn connect(servers: &FakeServers, oauth: OAuth) -> Client {
    Client::connect(PLAIN)
        .http_client(servers.clone())
        .authorizer(oauth)
        .protocol_version("2026-07-28")
        .await
        .unwrap()
}

fn assert_refused(why: &str) {
    assert_eq!(
        why,
        "tokens for `http://mcp.test/mcp` would be sent unencrypted: use an https:// URL"
    );
}

#[tokio::test]
async fn a_server_that_requires_no_token_is_called() {
    let (servers, store) = (servers(), Arc::default());
    servers.state().is_open = true;
    let client = connect(&servers, oauth(&servers, &store)).await;

    client.call_tool("x", ()).await.unwrap();

    assert_eq!(servers.take_log(), ["tools/call -"]);
}

#[tokio::test]
async fn a_server_that_requires_a_token_gets_none_and_no_prompt_is_shown() {
    let (servers, store) = (servers(), Arc::default());
    let client = connect(&servers, oauth(&servers, &store)).await;

    let refused = client.call_tool("x", ()).await;

    assert_refused(&why(refused));
    assert_eq!(servers.take_log(), ["tools/call -"]);
}

#[tokio::test]
async fn a_stored_token_is_not_sent_unencrypted_unless_that_is_allowed() {
    let (servers, store) = (servers(), Arc::default());
    let allowed = connect(&servers, oauth(&servers, &store).allow_plain_http()).await;
    allowed.call_tool("x", ()).await.unwrap();
    assert_eq!(servers.take_log().last().unwrap(), "tools/call Bearer t1");
    let client = connect(&servers, oauth(&servers, &store)).await;

    let refused = client.call_tool("x", ()).await;

    assert_refused(&why(refused));
    assert!(servers.take_log().is_empty());
}

#[tokio::test]
async fn a_token_is_not_obtained_ahead_of_a_request_either() {
    let (servers, store) = (servers(), Arc::default());
    let oauth = oauth(&servers, &store);

    let authorized = oauth.authorize().await;
    let begun = oauth.begin("https://app.example/callback", &[]).await;

    for refused in [authorized.unwrap_err(), begun.unwrap_err()] {
        assert!(matches!(*refused, Error::Unencrypted { .. }), "{refused:?}");
        assert_refused(&refused.to_string());
    }
    assert!(servers.take_log().is_empty());
}
