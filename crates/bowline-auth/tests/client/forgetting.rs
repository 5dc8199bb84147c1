//! What was forgotten stays forgotten, whatever was under way: in memory and in the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bowline::exchange::BoxFuture;
use bowline::http::client::Authorizer;
use bowline_auth::client::{AppError, Credentials, MemoryStore, OAuth, Saved, TokenStore};
use serde_json::Value;
use tokio::sync::watch;

use crate::world::{SERVER, World};
use crate::{Deciding, Decision, connect, oauth};

/// A client whose token has expired, so that the next request renews it.
async fn with_expired_token(world: &World, oauth: &Arc<OAuth>) -> bowline::Client {
    world.state().lifetime = 0;
    let client = connect(world, oauth.clone()).await;
    client.call_tool("x", ()).await.unwrap();
    world.state().lifetime = 3600;
    world.seen();
    client
}

/// Private cached results belong to the identity.
#[tokio::test]
async fn the_identity_survives_a_renewal_and_changes_with_each_sign_in() {
    let world = World::default();
    let oauth = Arc::new(oauth(&world));
    assert_eq!(oauth.identity(), None);

    let client = with_expired_token(&world, &oauth).await;
    let first = oauth.identity();
    client.call_tool("x", ()).await.unwrap();
    assert_eq!(world.count("refresh_token"), 1);
    let renewed = oauth.identity();
    oauth.forget().await.unwrap();
    let forgotten = oauth.identity();
    client.call_tool("x", ()).await.unwrap();
    let second = oauth.identity();

    assert!(first.is_some() && second.is_some());
    assert_eq!(first, renewed);
    assert_eq!(forgotten, None);
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_renewal_that_ends_while_the_store_is_slow_to_forget_brings_no_token_back() {
    let world = World::default();
    let store = Arc::new(SlowStore::default());
    let oauth = Arc::new(oauth(&world).store(store.clone()));
    let client = with_expired_token(&world, &oauth).await;
    world.state().holds_tokens = true;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    world.seen();

    store.hold(Moment::BeforeSave);
    let forgetting = tokio::spawn({
        let oauth = oauth.clone();
        async move { oauth.forget().await }
    });
    store.reached().await;
    world.let_tokens_through();
    call.await.unwrap().unwrap();
    store.release();
    forgetting.await.unwrap().unwrap();

    let seen = world.seen();
    assert_eq!(seen[0], "tools/call -", "no token is shown: {seen:?}");
}

#[tokio::test]
async fn a_renewal_is_not_kept_after_its_token_was_forgotten_though_the_store_had_failed() {
    let world = World::default();
    let store = Arc::new(SlowStore::default());
    let oauth = Arc::new(oauth(&world).store(store.clone()));
    store.is_broken.store(true, Ordering::SeqCst);
    let client = with_expired_token(&world, &oauth).await;
    store.is_broken.store(false, Ordering::SeqCst);
    world.state().holds_tokens = true;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }

    oauth.forget().await.unwrap();
    world.let_tokens_through();
    call.await.unwrap().unwrap();

    // The third token is the renewed one, the fourth that of a person who was asked again.
    assert_eq!(*store.saved.lock().unwrap(), ["t4"]);
    assert_eq!(world.seen().last().unwrap(), "tools/call Bearer t4");
}

#[tokio::test]
async fn a_person_who_agrees_after_the_token_was_forgotten_brings_none() {
    let world = World::default();
    let store = Arc::new(SlowStore::default());
    let deciding = Deciding::new(&world);
    let oauth = oauth(&world).user_agent(deciding.browser());
    let oauth = Arc::new(oauth.store(store.clone()));
    let authorizing = tokio::spawn({
        let oauth = oauth.clone();
        async move { oauth.authorize().await }
    });
    deciding.begun().await;

    oauth.forget().await.unwrap();
    deciding.decide(Decision::Yes);
    authorizing.await.unwrap().unwrap();
    let kept = store.kept().await;
    world.seen();
    let client = connect(&world, oauth).await;
    client.call_tool("x", ()).await.unwrap();

    assert!(kept["tokens"].is_null(), "not in the store");
    assert_eq!(world.seen()[0], "tools/call -", "and not here");
}

#[tokio::test]
async fn a_token_that_is_forgotten_while_it_is_read_is_not_shown() {
    let world = World::default();
    let store = Arc::new(SlowStore::default());
    let earlier = connect(&world, oauth(&world).store(store.clone())).await;
    earlier.call_tool("x", ()).await.unwrap();
    world.seen();
    let oauth = Arc::new(oauth(&world).store(store.clone()));
    let client = connect(&world, oauth.clone()).await;

    store.hold(Moment::AfterLoad);
    let call = tokio::spawn(client.call_tool("x", ()).start());
    store.reached().await;
    oauth.forget().await.unwrap();
    store.release();
    call.await.unwrap().unwrap();

    let seen = world.seen();
    assert_eq!(seen[0], "tools/call -", "{seen:?}");
}

/// A store in memory of which one operation takes as long as the test wants.
struct SlowStore {
    kept: MemoryStore,
    gate: watch::Sender<Gate>,
    /// Whether it fails to save.
    is_broken: AtomicBool,
    /// The access tokens that were saved, each once.
    saved: Mutex<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// The next operation that comes to this moment waits there.
    Holds(Moment),
    /// One waits. Others pass.
    Reached,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    AfterLoad,
    BeforeSave,
}

impl SlowStore {
    fn hold(&self, at: Moment) {
        self.gate.send_replace(Gate::Holds(at));
    }

    /// Waits until an operation waits.
    async fn reached(&self) {
        let mut gate = self.gate.subscribe();
        gate.wait_for(|gate| *gate == Gate::Reached).await.unwrap();
    }

    fn release(&self) {
        self.gate.send_replace(Gate::Open);
    }

    async fn pass(&self, at: Moment) {
        let mut gate = self.gate.subscribe();
        if *gate.borrow() == Gate::Holds(at) {
            self.gate.send_replace(Gate::Reached);
            gate.wait_for(|gate| *gate == Gate::Open).await.unwrap();
        }
    }

    /// What is kept for the server, as JSON.
    async fn kept(&self) -> Value {
        let kept = self.kept.load(SERVER).await.unwrap();
        serde_json::to_value(kept).unwrap()
    }
}

impl Default for SlowStore {
    fn default() -> Self {
        Self {
            kept: MemoryStore::new(),
            gate: watch::Sender::new(Gate::Open),
            is_broken: AtomicBool::new(false),
            saved: Mutex::default(),
        }
    }
}

impl TokenStore for SlowStore {
    fn load<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Credentials>, AppError>> {
        Box::pin(async move {
            let loaded = self.kept.load(key).await;
            self.pass(Moment::AfterLoad).await;
            loaded
        })
    }

    fn save<'a>(
        &'a self,
        key: &'a str,
        credentials: &'a Credentials,
        replaces: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Saved, AppError>> {
        Box::pin(async move {
            self.pass(Moment::BeforeSave).await;
            if self.is_broken.load(Ordering::SeqCst) {
                return Err("the disk is full".into());
            }
            let saved = self.kept.save(key, credentials, replaces).await?;
            let access = self.kept().await["tokens"]["access"].clone();
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
        self.kept.remove(key)
    }
}
