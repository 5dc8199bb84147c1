//! Several processes, or several people, with one store.

use std::sync::Arc;

use bowline_auth::client::{Credentials, MemoryStore, Saved, TokenStore};
use serde_json::{Value, json};

use crate::world::{SERVER, World};
use crate::{Deciding, Decision, connect, oauth};

/// What is kept for the server, as JSON.
async fn kept(store: &MemoryStore) -> Value {
    let kept = store.load(SERVER).await.unwrap();
    serde_json::to_value(kept).unwrap()
}

/// Changes what is kept, as another process would.
async fn change(store: &MemoryStore, change: impl FnOnce(&mut Value)) {
    let mut next = kept(store).await;
    let replaces = next["version"].as_str().unwrap().to_owned();
    change(&mut next);
    next["version"] = json!(format!("{replaces}'"));
    let next: Credentials = serde_json::from_value(next).unwrap();
    let saved = store.save(SERVER, &next, Some(&replaces)).await.unwrap();
    assert_eq!(saved, Saved::Yes);
}

#[tokio::test]
async fn processes_that_renew_together_use_up_the_refresh_token_once() {
    let world = World::default();
    let store = Arc::new(MemoryStore::new());
    let first = connect(&world, oauth(&world).store(store.clone())).await;
    first.call_tool("x", ()).await.unwrap();
    // All of them find the same token, which has expired.
    change(&store, |kept| {
        kept["tokens"]["renew_at"] = json!(0);
        kept["tokens"]["expires_at"] = json!(0);
    })
    .await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(connect(&world, oauth(&world).store(store.clone())).await);
    }
    world.seen();
    world.state().holds_tokens = true;

    let calls: Vec<_> = clients
        .iter()
        .map(|client| tokio::spawn(client.call_tool("x", ()).start()))
        .collect();
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    world.let_tokens_through();

    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(world.count("refresh_token"), 1);
    assert_eq!(world.count("person"), 0);
    assert_eq!(world.state().reused, 0);
}

#[tokio::test]
async fn a_declined_step_up_brings_no_old_token_back() {
    let world = World::default();
    let store = Arc::new(MemoryStore::new());
    let deciding = Deciding::new(&world);
    let other = connect(&world, oauth(&world).store(store.clone())).await;
    other.call_tool("x", ()).await.unwrap();
    let asking = oauth(&world).user_agent(deciding.browser());
    let asking = connect(&world, asking.store(store.clone())).await;
    world.state().needs = "admin".into();
    let call = tokio::spawn(asking.call_tool("x", ()).start());
    deciding.begun().await;

    // Meanwhile somebody else renews the token.
    world.state().needs = String::new();
    world.state().good.clear();
    other.call_tool("x", ()).await.unwrap();
    let newer = kept(&store).await["tokens"].clone();
    deciding.decide(Decision::No);
    assert!(call.await.unwrap().is_err());

    assert_eq!(newer["refresh"], "r2");
    assert_eq!(kept(&store).await["tokens"], newer);
    asking.call_tool("x", ()).await.unwrap();
    assert_eq!(world.seen().last().unwrap(), "tools/call Bearer t2");
}

#[tokio::test]
async fn what_is_forgotten_is_not_brought_back_by_a_renewal_under_way() {
    let world = World::default();
    world.state().lifetime = 0;
    let store = Arc::new(MemoryStore::new());
    let oauth = Arc::new(oauth(&world).store(store.clone()));
    let client = connect(&world, oauth.clone()).await;
    client.call_tool("x", ()).await.unwrap();
    world.seen();
    world.state().lifetime = 3600;
    world.state().holds_tokens = true;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    world.seen();

    oauth.forget().await.unwrap();
    world.let_tokens_through();
    call.await.unwrap().unwrap();

    let seen = world.seen();
    assert_eq!(
        seen[0], "tools/call -",
        "the renewed token is not shown: {seen:?}"
    );
    assert!(seen.iter().any(|it| it.starts_with("person")));
    assert_eq!(kept(&store).await["tokens"]["access"], "t4");
}

#[tokio::test]
async fn a_process_that_is_signed_out_by_another_brings_no_token_back() {
    let world = World::default();
    world.state().lifetime = 0;
    let store = Arc::new(MemoryStore::new());
    let client = connect(&world, oauth(&world).store(store.clone())).await;
    client.call_tool("x", ()).await.unwrap();
    world.seen();
    world.state().lifetime = 3600;
    world.state().holds_tokens = true;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }

    change(&store, |kept| kept["tokens"] = Value::Null).await;
    world.seen();
    world.let_tokens_through();
    call.await.unwrap().unwrap();

    let seen = world.seen();
    assert_eq!(seen[0], "tools/call -", "{seen:?}");
}

#[tokio::test]
async fn a_refresh_token_that_another_process_has_used_up_is_read_again() {
    let world = World::default();
    world.state().lifetime = 0;
    let store = Arc::new(MemoryStore::new());
    let client = connect(&world, oauth(&world).store(store.clone())).await;
    client.call_tool("x", ()).await.unwrap();
    world.seen();
    {
        let mut state = world.state();
        state.lifetime = 3600;
        state.holds_tokens = true;
        state.refreshable = vec!["r9".into()];
        state.good.insert("t9".into(), String::new());
    }
    let call = tokio::spawn(client.call_tool("x", ()).start());
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }

    // A process that knows nothing of turns.
    change(&store, |kept| {
        kept["tokens"]["access"] = json!("t9");
        kept["tokens"]["refresh"] = json!("r9");
        kept["tokens"]["renew_at"] = Value::Null;
        kept["tokens"]["expires_at"] = Value::Null;
    })
    .await;
    world.seen();
    world.let_tokens_through();
    call.await.unwrap().unwrap();

    assert_eq!(world.state().reused, 1);
    assert_eq!(world.seen(), ["tools/call Bearer t9"]);
    assert_eq!(kept(&store).await["tokens"]["refresh"], "r9");
}

#[tokio::test]
async fn nobody_is_asked_because_another_process_was_faster_to_renew_a_token_that_was_refused() {
    let world = World::default();
    let store = Arc::new(MemoryStore::new());
    let client = connect(&world, oauth(&world).store(store.clone())).await;
    client.call_tool("x", ()).await.unwrap();
    world.seen();
    {
        let mut state = world.state();
        state.holds_tokens = true;
        state.refreshable = vec!["r9".into()];
        // The token is refused, though it has not expired.
        state.good.clear();
        state.good.insert("t9".into(), String::new());
    }
    let call = tokio::spawn(client.call_tool("x", ()).start());
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }

    change(&store, |kept| {
        kept["tokens"]["access"] = json!("t9");
        kept["tokens"]["refresh"] = json!("r9");
    })
    .await;
    world.let_tokens_through();
    call.await.unwrap().unwrap();

    assert_eq!(world.state().reused, 1, "the refresh token was refused");
    assert_eq!(
        world.seen(),
        [
            "tools/call Bearer t1",
            "refresh_token as.test",
            "tools/call Bearer t9"
        ]
    );
}

#[tokio::test]
async fn two_people_with_one_store_have_two_tokens() {
    let world = World::default();
    let store = Arc::new(MemoryStore::new());
    let of = |account: &str| oauth(&world).store(store.clone()).account(account);
    let ada = connect(&world, of("ada")).await;
    let bob = connect(&world, of("bob")).await;
    ada.call_tool("x", ()).await.unwrap();
    bob.call_tool("x", ()).await.unwrap();
    world.seen();

    let ada = connect(&world, of("ada")).await;
    ada.call_tool("x", ()).await.unwrap();
    bob.call_tool("x", ()).await.unwrap();

    assert_eq!(
        world.seen(),
        ["tools/call Bearer t1", "tools/call Bearer t2"]
    );
}
