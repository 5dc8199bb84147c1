//! `OAuth::forget` is not undone by flows in progress, neither in memory nor in the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bowline::exchange::BoxFuture;
use bowline::http::client::Authorizer;
use bowline_auth::client::{AppError, Credentials, MemoryStore, OAuth, SaveOutcome, TokenStore};
use serde_json::Value;
use tokio::sync::watch;

use crate::fake_servers::{FakeServers, SERVER};
use crate::{ControlledUser, Decision, connect, oauth, start_refresh};

/// Returns a client with an expired token, which the next request refreshes.
async fn with_expired_token(servers: &FakeServers, oauth: &Arc<OAuth>) -> bowline::Client {
    servers.state().lifetime = 0;
    let client = connect(servers, oauth.clone()).await;
    client.call_tool("x", ()).await.unwrap();
    servers.state().lifetime = 3600;
    servers.take_log();
    client
}

/// Private cached results belong to the identity.
#[tokio::test]
async fn the_identity_survives_a_refresh_and_changes_with_each_sign_in() {
    let servers = FakeServers::default();
    let oauth = Arc::new(oauth(&servers));
    assert_eq!(oauth.identity(), None);

    let client = with_expired_token(&servers, &oauth).await;
    let first = oauth.identity();
    client.call_tool("x", ()).await.unwrap();
    assert_eq!(servers.count("refresh_token"), 1);
    let refreshed = oauth.identity();
    oauth.forget().await.unwrap();
    let forgotten = oauth.identity();
    client.call_tool("x", ()).await.unwrap();
    let second = oauth.identity();

    assert!(first.is_some() && second.is_some());
    assert_eq!(first, refreshed);
    assert_eq!(forgotten, None);
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_refresh_that_ends_during_forget_does_not_restore_the_token() {
    let servers = FakeServers::default();
    let store = Arc::new(SlowStore::default());
    let oauth = Arc::new(oauth(&servers).store(store.clone()));
    let client = with_expired_token(&servers, &oauth).await;
    let call = start_refresh(&client, &servers).await;
    servers.take_log();

    store.hold(HoldPoint::BeforeSave);
    let forgetting = tokio::spawn({
        let oauth = oauth.clone();
        async move { oauth.forget().await }
    });
    store.reached().await;
    servers.release_token_requests();
    call.await.unwrap().unwrap();
    store.release();
    forgetting.await.unwrap().unwrap();

    let log = servers.take_log();
    assert_eq!(log[0], "tools/call -", "no token is sent: {log:?}");
}

#[tokio::test]
async fn a_refresh_is_not_stored_after_forget_if_an_earlier_write_failed() {
    let servers = FakeServers::default();
    let store = Arc::new(SlowStore::default());
    let oauth = Arc::new(oauth(&servers).store(store.clone()));
    store.is_broken.store(true, Ordering::SeqCst);
    let client = with_expired_token(&servers, &oauth).await;
    store.is_broken.store(false, Ordering::SeqCst);
    let call = start_refresh(&client, &servers).await;

    oauth.forget().await.unwrap();
    servers.release_token_requests();
    call.await.unwrap().unwrap();

    // The third token is that of the refresh, the fourth that of the new prompt.
    assert_eq!(*store.saved.lock().unwrap(), ["t4"]);
    assert_eq!(servers.take_log().last().unwrap(), "tools/call Bearer t4");
}

#[tokio::test]
async fn consent_after_forget_does_not_store_a_token() {
    let servers = FakeServers::default();
    let store = Arc::new(SlowStore::default());
    let user = ControlledUser::new(&servers);
    let oauth = oauth(&servers).user_agent(user.browser());
    let oauth = Arc::new(oauth.store(store.clone()));
    let authorizing = tokio::spawn({
        let oauth = oauth.clone();
        async move { oauth.authorize().await }
    });
    user.prompted().await;

    oauth.forget().await.unwrap();
    user.decide(Decision::Allow);
    authorizing.await.unwrap().unwrap();
    let stored = store.stored().await;
    servers.take_log();
    let client = connect(&servers, oauth).await;
    client.call_tool("x", ()).await.unwrap();

    assert!(stored["tokens"].is_null(), "no token in the store");
    assert_eq!(servers.take_log()[0], "tools/call -", "no token in memory");
}

#[tokio::test]
async fn a_token_that_is_forgotten_while_it_is_loaded_is_not_sent() {
    let servers = FakeServers::default();
    let store = Arc::new(SlowStore::default());
    let earlier = connect(&servers, oauth(&servers).store(store.clone())).await;
    earlier.call_tool("x", ()).await.unwrap();
    servers.take_log();
    let oauth = Arc::new(oauth(&servers).store(store.clone()));
    let client = connect(&servers, oauth.clone()).await;

    store.hold(HoldPoint::AfterLoad);
    let call = tokio::spawn(client.call_tool("x", ()).start());
    store.reached().await;
    oauth.forget().await.unwrap();
    store.release();
    call.await.unwrap().unwrap();

    let log = servers.take_log();
    assert_eq!(log[0], "tools/call -", "{log:?}");
}

/// A memory store with one operation that the test can hold.
struct SlowStore {
    inner: MemoryStore,
    gate: watch::Sender<HoldState>,
    /// Whether saving fails.
    is_broken: AtomicBool,
    /// The saved access tokens, without duplicates.
    saved: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HoldState {
    Open,
    /// The next operation waits at this point.
    Holds(HoldPoint),
    /// An operation waits; others pass.
    Reached,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HoldPoint {
    AfterLoad,
    BeforeSave,
}

impl SlowStore {
    fn hold(&self, at: HoldPoint) {
        self.gate.send_replace(HoldState::Holds(at));
    }

    /// Waits until an operation is held.
    async fn reached(&self) {
        let mut gate = self.gate.subscribe();
        gate.wait_for(|gate| *gate == HoldState::Reached)
            .await
            .unwrap();
    }

    fn release(&self) {
        self.gate.send_replace(HoldState::Open);
    }

    async fn pass(&self, at: HoldPoint) {
        let mut gate = self.gate.subscribe();
        if *gate.borrow() == HoldState::Holds(at) {
            self.gate.send_replace(HoldState::Reached);
            gate.wait_for(|gate| *gate == HoldState::Open)
                .await
                .unwrap();
        }
    }

    /// Returns the stored credentials, as JSON.
    async fn stored(&self) -> Value {
        let loaded = self.inner.load(SERVER).await.unwrap();
        serde_json::to_value(loaded).unwrap()
    }
}

impl Default for SlowStore {
    fn default() -> Self {
        Self {
            inner: MemoryStore::new(),
            gate: watch::Sender::new(HoldState::Open),
            is_broken: AtomicBool::new(false),
            saved: Mutex::default(),
        }
    }
}

impl TokenStore for SlowStore {
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        Box::pin(async move {
            let loaded = self.inner.load(key).await;
            self.pass(HoldPoint::AfterLoad).await;
            loaded
        })
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SaveOutcome, AppError>> {
        Box::pin(async move {
            self.pass(HoldPoint::BeforeSave).await;
            if self.is_broken.load(Ordering::SeqCst) {
                return Err("the disk is full".into());
            }
            let saved = self.inner.save(key, credentials, replaces).await?;
            let access = self.stored().await["tokens"]["access"].clone();
            let mut all = self.saved.lock().unwrap();
            if let Some(access) = access.as_str()
                && !all.iter().any(|known| known == access)
            {
                all.push(access.to_owned());
            }
            Ok(saved)
        })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), AppError>> {
        self.inner.remove(key)
    }
}
