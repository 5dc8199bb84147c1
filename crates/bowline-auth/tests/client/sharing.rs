//! Several processes, or several users, with one store.

use std::sync::Arc;

use bowline::Client;
use bowline_auth::client::{Credentials, MemoryStore, SaveOutcome, TokenStore};
use serde_json::{Value, json};

use crate::fake_servers::{FakeServers, SERVER};
use crate::{ControlledUser, Decision, connect, oauth, start_refresh};

/// Returns the stored credentials, as JSON.
async fn stored(store: &MemoryStore) -> Value {
    let loaded = store.load(SERVER).await.unwrap();
    serde_json::to_value(loaded).unwrap()
}

/// Changes the stored credentials, as another process does.
async fn change(store: &MemoryStore, change: impl FnOnce(&mut Value)) {
    let mut next = stored(store).await;
    let replaces = next["version"].as_str().unwrap().to_owned();
    change(&mut next);
    next["version"] = json!(format!("{replaces}'"));
    let next: Credentials = serde_json::from_value(next).unwrap();
    let saved = store.save(SERVER, &next, Some(&replaces)).await.unwrap();
    assert_eq!(saved, SaveOutcome::Saved);
}

#[tokio::test]
async fn processes_that_refresh_together_use_the_refresh_token_once() {
    let servers = FakeServers::default();
    let store = Arc::new(MemoryStore::new());
    let first = connect(&servers, oauth(&servers).store(store.clone())).await;
    first.call_tool("x", ()).await.unwrap();
    // All of them find the same token, which has expired.
    change(&store, |stored| {
        stored["tokens"]["renew_at"] = json!(0);
        stored["tokens"]["expires_at"] = json!(0);
    })
    .await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(connect(&servers, oauth(&servers).store(store.clone())).await);
    }
    servers.take_log();
    servers.state().holds_token_requests = true;

    let calls: Vec<_> = clients
        .iter()
        .map(|client| tokio::spawn(client.call_tool("x", ()).start()))
        .collect();
    while servers.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    servers.release_token_requests();

    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(servers.count("refresh_token"), 1);
    assert_eq!(servers.count("consent"), 0);
    assert_eq!(servers.state().reused, 0);
}

#[tokio::test]
async fn a_denied_step_up_does_not_restore_the_old_token() {
    let servers = FakeServers::default();
    let store = Arc::new(MemoryStore::new());
    let user = ControlledUser::new(&servers);
    let other = connect(&servers, oauth(&servers).store(store.clone())).await;
    other.call_tool("x", ()).await.unwrap();
    let asking = oauth(&servers).user_agent(user.browser());
    let asking = connect(&servers, asking.store(store.clone())).await;
    servers.state().required_scope = "admin".into();
    let call = tokio::spawn(asking.call_tool("x", ()).start());
    user.prompted().await;

    // Meanwhile another client refreshes the token.
    servers.state().required_scope = String::new();
    servers.state().valid_tokens.clear();
    other.call_tool("x", ()).await.unwrap();
    let newer = stored(&store).await["tokens"].clone();
    user.decide(Decision::Deny);
    assert!(call.await.unwrap().is_err());

    assert_eq!(newer["refresh"], "r2");
    assert_eq!(stored(&store).await["tokens"], newer);
    asking.call_tool("x", ()).await.unwrap();
    assert_eq!(servers.take_log().last().unwrap(), "tools/call Bearer t2");
}

#[tokio::test]
async fn a_refresh_in_progress_does_not_undo_forget() {
    let servers = FakeServers::default();
    servers.state().lifetime = 0;
    let store = Arc::new(MemoryStore::new());
    let oauth = Arc::new(oauth(&servers).store(store.clone()));
    let client = connect(&servers, oauth.clone()).await;
    client.call_tool("x", ()).await.unwrap();
    servers.take_log();
    servers.state().lifetime = 3600;
    let call = start_refresh(&client, &servers).await;
    servers.take_log();

    oauth.forget().await.unwrap();
    servers.release_token_requests();
    call.await.unwrap().unwrap();

    let log = servers.take_log();
    assert_eq!(
        log[0], "tools/call -",
        "the refreshed token is not sent: {log:?}"
    );
    assert!(log.iter().any(|it| it.starts_with("consent")));
    assert_eq!(stored(&store).await["tokens"]["access"], "t4");
}

/// A client whose token has expired, and the store that it shares with others.
async fn client_with_expired_token() -> (FakeServers, Arc<MemoryStore>, Client) {
    let servers = FakeServers::default();
    servers.state().lifetime = 0;
    let store = Arc::new(MemoryStore::new());
    let client = connect(&servers, oauth(&servers).store(store.clone())).await;
    client.call_tool("x", ()).await.unwrap();
    servers.take_log();
    (servers, store, client)
}

#[tokio::test]
async fn a_process_that_was_signed_out_by_another_does_not_restore_the_token() {
    let (servers, store, client) = client_with_expired_token().await;
    servers.state().lifetime = 3600;
    let call = start_refresh(&client, &servers).await;

    change(&store, |stored| stored["tokens"] = Value::Null).await;
    servers.take_log();
    servers.release_token_requests();
    call.await.unwrap().unwrap();

    let log = servers.take_log();
    assert_eq!(log[0], "tools/call -", "{log:?}");
}

#[tokio::test]
async fn a_refresh_token_that_another_process_used_is_loaded_again() {
    let (servers, store, client) = client_with_expired_token().await;
    {
        let mut state = servers.state();
        state.lifetime = 3600;
        state.valid_refresh_tokens = vec!["r9".into()];
        state.valid_tokens.insert("t9".into(), String::new());
    }
    let call = start_refresh(&client, &servers).await;

    // A process that does not claim the refresh.
    change(&store, |stored| {
        stored["tokens"]["access"] = json!("t9");
        stored["tokens"]["refresh"] = json!("r9");
        stored["tokens"]["renew_at"] = Value::Null;
        stored["tokens"]["expires_at"] = Value::Null;
    })
    .await;
    servers.take_log();
    servers.release_token_requests();
    call.await.unwrap().unwrap();

    assert_eq!(servers.state().reused, 1);
    assert_eq!(servers.take_log(), ["tools/call Bearer t9"]);
    assert_eq!(stored(&store).await["tokens"]["refresh"], "r9");
}

#[tokio::test]
async fn a_refused_token_that_another_process_refreshed_causes_no_prompt() {
    let servers = FakeServers::default();
    let store = Arc::new(MemoryStore::new());
    let client = connect(&servers, oauth(&servers).store(store.clone())).await;
    client.call_tool("x", ()).await.unwrap();
    servers.take_log();
    {
        let mut state = servers.state();
        state.valid_refresh_tokens = vec!["r9".into()];
        // The token is refused although it has not expired.
        state.valid_tokens.clear();
        state.valid_tokens.insert("t9".into(), String::new());
    }
    let call = start_refresh(&client, &servers).await;

    change(&store, |stored| {
        stored["tokens"]["access"] = json!("t9");
        stored["tokens"]["refresh"] = json!("r9");
    })
    .await;
    servers.release_token_requests();
    call.await.unwrap().unwrap();

    assert_eq!(servers.state().reused, 1, "the refresh token was refused");
    assert_eq!(
        servers.take_log(),
        [
            "tools/call Bearer t1",
            "refresh_token as.test",
            "tools/call Bearer t9"
        ]
    );
}

#[tokio::test]
async fn accounts_with_one_store_have_separate_tokens() {
    let servers = FakeServers::default();
    let store = Arc::new(MemoryStore::new());
    let of = |account: &str| oauth(&servers).store(store.clone()).account(account);
    let ada = connect(&servers, of("ada")).await;
    let bob = connect(&servers, of("bob")).await;
    ada.call_tool("x", ()).await.unwrap();
    bob.call_tool("x", ()).await.unwrap();
    servers.take_log();

    let ada = connect(&servers, of("ada")).await;
    ada.call_tool("x", ()).await.unwrap();
    bob.call_tool("x", ()).await.unwrap();

    assert_eq!(
        servers.take_log(),
        ["tools/call Bearer t1", "tools/call Bearer t2"]
    );
}
