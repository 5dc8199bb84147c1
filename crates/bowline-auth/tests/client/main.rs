//! A client with OAuth against a server and an authorization server: who is asked, how often, and what is
//! shown to whom.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test says by panicking what it saw"
)]

mod forgetting;
mod prompts;
mod races;
mod renewal;
mod sharing;
mod world;

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::http::client::Authorizer;
use bowline::{Client, Error};
use bowline_auth::client::{
    FileStore, Loopback, MemoryStore, OAuth, OwnBrowser, PendingAuthorization, RegisteredClient,
    TokenStore as _,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use world::{SERVER, World};

fn oauth(world: &World) -> OAuth {
    OAuth::new(SERVER)
        .http(world.clone())
        .user_agent(world.person())
}

async fn connect(world: &World, oauth: impl Authorizer) -> Client {
    Client::connect(SERVER)
        .http(world.clone())
        .authorizer(oauth)
        .speaking("2026-07-28")
        .await
        .unwrap()
}

/// Why a call was not authorized, one line for each level.
fn why(outcome: bowline::Result<bowline::Reply>) -> String {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    error.source().unwrap().to_string()
}

#[tokio::test]
async fn one_person_is_asked_once_and_the_token_is_used_from_then_on() {
    let world = World::default();
    let client = connect(&world, oauth(&world)).await;

    client.call_tool("x", ()).await.unwrap();
    client.call_tool("y", ()).await.unwrap();

    assert_eq!(
        world.seen(),
        [
            "tools/call -",
            "register as.test",
            "person client-of-as.test []",
            "authorization_code as.test",
            "tools/call Bearer t1",
            "tools/call Bearer t1",
        ]
    );
}

#[tokio::test]
async fn a_browser_on_this_machine_brings_the_code_back() {
    let world = World::default();
    let browsing = world.clone();
    let loopback = Loopback::new(move |url| {
        tokio::spawn(browse(browsing.agree(url)));
        Ok(())
    });
    let client = connect(&world, oauth(&world).user_agent(loopback)).await;

    client.call_tool("x", ()).await.unwrap();

    assert_eq!(world.count("authorization_code"), 1);
    assert_eq!(world.seen().last().unwrap(), "tools/call Bearer t1");
}

/// Goes to an address on this machine, as a browser would.
async fn browse(address: String) {
    let (host, target) = address["http://".len()..].split_once('/').unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let request = format!("GET /{target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
}

#[tokio::test]
async fn calls_that_are_refused_together_wait_for_one_decision() {
    let world = World::default();
    let deciding = Deciding::new(&world);
    let client = connect(&world, oauth(&world).user_agent(deciding.browser())).await;
    let calls: Vec<_> = (0..5)
        .map(|_| tokio::spawn(client.call_tool("x", ()).start()))
        .collect();

    deciding.begun().await;
    while world.count("tools/call -") < 5 {
        tokio::task::yield_now().await;
    }
    deciding.decide(Decision::Yes);

    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(world.count("person"), 1);
    assert_eq!(world.count("authorization_code"), 1);
}

#[tokio::test]
async fn dropping_the_last_call_that_waits_ends_the_visit() {
    let world = World::default();
    let deciding = Deciding::new(&world);
    let client = connect(&world, oauth(&world).user_agent(deciding.browser())).await;
    let first = tokio::spawn(client.call_tool("x", ()).start());
    let second = tokio::spawn(client.call_tool("x", ()).start());
    deciding.begun().await;
    while world.count("tools/call -") < 2 {
        tokio::task::yield_now().await;
    }

    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let after_one = deciding.open.load(Ordering::SeqCst);
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    let after_both = deciding.open.load(Ordering::SeqCst);

    assert_eq!((after_one, after_both), (1, 0));
    assert_eq!(world.count("person"), 0);
}

#[tokio::test]
async fn whoever_stopped_waiting_need_not_register_again() {
    let world = World::default();
    let deciding = Deciding::new(&world);
    let client = connect(&world, oauth(&world).user_agent(deciding.browser())).await;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    deciding.begun().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());

    deciding.decide(Decision::Yes);
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(world.count("register"), 1);
    assert_eq!(deciding.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_person_who_says_no_is_not_asked_again_by_those_who_waited() {
    let world = World::default();
    let deciding = Deciding::new(&world);
    let client = connect(&world, oauth(&world).user_agent(deciding.browser())).await;
    let calls = [(); 2].map(|()| tokio::spawn(client.call_tool("x", ()).start()));
    deciding.begun().await;
    while world.count("tools/call -") < 2 {
        tokio::task::yield_now().await;
    }

    deciding.decide(Decision::No);

    for call in calls {
        let outcome = call.await.unwrap();
        assert_eq!(
            why(outcome),
            "the authorization server says `access_denied`"
        );
    }
    assert_eq!(deciding.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_renewed_once_for_all() {
    let world = World::default();
    world.state().lifetime = 0;
    let client = connect(&world, oauth(&world)).await;
    client.call_tool("x", ()).await.unwrap();
    world.state().lifetime = 3600;
    world.seen();

    world.state().holds_tokens = true;
    let calls = [(); 3].map(|()| tokio::spawn(client.call_tool("x", ()).start()));
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    world.let_tokens_through();

    for call in calls {
        call.await.unwrap().unwrap();
    }
    let seen = world.seen();
    assert_eq!(seen[0], "refresh_token as.test");
    assert_eq!(seen[1..], ["tools/call Bearer t3"; 3]);
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_and_a_refusal_of_that_leads_to_a_person() {
    let world = World::default();
    let client = connect(&world, oauth(&world)).await;
    client.call_tool("x", ()).await.unwrap();

    world.state().good.clear();
    world.seen();
    client.call_tool("x", ()).await.unwrap();
    let renewed = world.seen();
    world.state().good.clear();
    world.state().refreshable.clear();
    client.call_tool("x", ()).await.unwrap();
    let asked = world.seen();

    assert_eq!(
        renewed,
        [
            "tools/call Bearer t1",
            "refresh_token as.test",
            "tools/call Bearer t2"
        ]
    );
    assert_eq!(
        asked,
        [
            "tools/call Bearer t2",
            "refresh_token as.test",
            "person client-of-as.test []",
            "authorization_code as.test",
            "tools/call Bearer t3"
        ]
    );
}

#[tokio::test]
async fn a_renewed_token_that_nobody_accepts_is_not_renewed_for_ever() {
    let world = World::default();
    let client = connect(&world, oauth(&world)).await;
    client.call_tool("x", ()).await.unwrap();
    // Tokens are still issued, and none of them is accepted.
    world.state().accepts = false;

    let first = client.call_tool("x", ()).await;
    let by_renewal = world.seen();
    let second = client.call_tool("x", ()).await;
    let by_person = world.seen();

    assert!(first.is_err() && second.is_err());
    assert_eq!(by_renewal[by_renewal.len() - 2], "refresh_token as.test");
    assert!(!by_person.iter().any(|it| it.starts_with("refresh_token")));
    assert!(by_person.iter().any(|it| it.starts_with("person")));
}

#[tokio::test]
async fn a_renewal_is_finished_although_its_call_was_dropped() {
    let world = World::default();
    world.state().lifetime = 0;
    let client = connect(&world, oauth(&world)).await;
    client.call_tool("x", ()).await.unwrap();
    world.seen();
    world.state().lifetime = 3600;
    world.state().holds_tokens = true;

    let call = tokio::spawn(client.call_tool("x", ()).start());
    while world.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    world.let_tokens_through();
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(
        world.seen(),
        ["refresh_token as.test", "tools/call Bearer t3"],
        "the token that replaces the one that was used up is not lost"
    );
}

#[tokio::test]
async fn a_server_that_wants_more_gets_more_and_keeps_what_it_had() {
    let world = World::default();
    let client = connect(&world, oauth(&world)).await;
    client.call_tool("x", ()).await.unwrap();
    world.seen();

    world.state().needs = "read".into();
    client.call_tool("x", ()).await.unwrap();
    world.state().needs = "write".into();
    client.call_tool("x", ()).await.unwrap();

    let seen = world.seen();
    let asked: Vec<_> = seen.iter().filter(|it| it.starts_with("person")).collect();
    assert_eq!(
        asked,
        [
            "person client-of-as.test [read]",
            "person client-of-as.test [read write]"
        ]
    );
}

#[tokio::test]
async fn a_server_that_always_wants_more_is_not_asked_for_ever() {
    let world = World::default();
    let client = connect(&world, oauth(&world)).await;
    client.call_tool("x", ()).await.unwrap();
    world.state().needs = "admin".into();
    world.state().grants = false;

    let first = client.call_tool("x", ()).await;
    let second = client.call_tool("x", ()).await;

    assert!(first.is_err());
    assert_eq!(
        why(second),
        "the server wants the scopes `admin`, which were asked for, and a new token would have no others"
    );
    assert_eq!(
        world.count("person"),
        2,
        "once for the token, once for more"
    );
}

#[tokio::test]
async fn a_server_that_moves_to_another_issuer_is_followed_with_nothing_from_the_old_one() {
    let world = World::default();
    let client = connect(&world, oauth(&world)).await;
    client.call_tool("x", ()).await.unwrap();
    world.seen();

    world.state().issuer = "https://new.test".into();
    world.state().good.clear();
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(
        world.seen(),
        [
            "tools/call Bearer t1",
            "register new.test",
            "person client-of-new.test []",
            "authorization_code new.test",
            "tools/call Bearer t2",
        ]
    );
}

#[tokio::test]
async fn a_token_is_shown_to_no_other_server() {
    let world = World::default();
    let oauth = oauth(&world);
    oauth.authorize().await.unwrap();
    world.seen();
    let other = Client::connect("https://other.test/mcp")
        .http(world.clone())
        .authorizer(oauth)
        .speaking("2026-07-28");

    let outcome = other.await.unwrap().call_tool("x", ()).await;

    assert!(matches!(outcome, Err(Error::Unauthorized { .. })));
    let seen = world.seen();
    assert!(!seen.is_empty());
    assert!(seen.iter().all(|it| it == "tools/call -"), "{seen:?}");
}

#[tokio::test]
async fn what_was_kept_is_used_the_next_time() {
    let folder = Folder::new();
    let world = World::default();
    let store = || FileStore::new(folder.path());
    let first = connect(&world, oauth(&world).store(store())).await;
    first.call_tool("x", ()).await.unwrap();
    world.seen();

    let second = connect(&world, oauth(&world).store(store())).await;
    second.call_tool("x", ()).await.unwrap();

    assert_eq!(world.seen(), ["tools/call Bearer t1"]);
}

#[tokio::test]
async fn two_programs_with_one_store_do_not_use_up_each_others_tokens() {
    let world = World::default();
    let store = Arc::new(MemoryStore::new());
    let shared = || store.clone();
    let one = connect(&world, oauth(&world).store(shared())).await;
    one.call_tool("x", ()).await.unwrap();
    let two = connect(&world, oauth(&world).store(shared())).await;
    two.call_tool("x", ()).await.unwrap();

    world.state().good.clear();
    one.call_tool("x", ()).await.unwrap();
    two.call_tool("x", ()).await.unwrap();

    assert_eq!(world.count("refresh_token"), 1);
    assert_eq!(world.count("person"), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_can_read_what_was_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let world = World::default();
    let inner = folder.path().join("tokens");
    let client = connect(&world, oauth(&world).store(FileStore::new(&inner))).await;

    client.call_tool("x", ()).await.unwrap();

    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let files: Vec<_> = inner
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    assert_eq!(mode(&inner), 0o700);
    assert_eq!(files.len(), 2, "a lock, and no drafts: {files:?}");
    assert_eq!((mode(&files[0]), mode(&files[1])), (0o600, 0o600));
}

#[tokio::test]
async fn what_is_forgotten_is_asked_for_again() {
    let world = World::default();
    let store = Arc::new(MemoryStore::new());
    let oauth = Arc::new(oauth(&world).store(store.clone()));

    oauth.authorize().await.unwrap();
    oauth.forget().await.unwrap();
    let kept = store.load(SERVER).await.unwrap().unwrap();

    assert_eq!(world.count("person"), 1);
    let kept = serde_json::to_value(&kept).unwrap();
    assert!(kept["tokens"].is_null());
}

#[tokio::test]
async fn what_is_forgotten_is_revoked_where_it_came_from() {
    let world = World::default();
    world.state().revokes = true;
    let oauth = oauth(&world);
    oauth.authorize().await.unwrap();
    world.seen();

    oauth.forget().await.unwrap();
    oauth.forget().await.unwrap();

    assert_eq!(
        world.seen(),
        ["revoke token=r1&token_type_hint=refresh_token&client_id=client-of-as.test"]
    );
}

#[tokio::test]
async fn a_person_may_come_back_to_another_process() {
    let world = World::default();
    let store = Arc::new(MemoryStore::new());
    let process = || OAuth::new(SERVER).http(world.clone()).store(store.clone());
    let client = connect(&world, process()).await;
    let Err(Error::Unauthorized { challenges, .. }) = client.call_tool("x", ()).await else {
        panic!("nobody has agreed yet");
    };

    let here = "https://app.example/callback";
    let pending = process().begin(here, &challenges).await.unwrap();
    let kept = serde_json::to_string(&pending).unwrap();
    let shown = format!("{pending:?}");
    let came = world.agree(pending.url());
    let pending: PendingAuthorization = serde_json::from_str(&kept).unwrap();
    assert!(came.contains(&format!("state={}", pending.state())));
    let forged = came.replace("state=", "state=x");
    let refused = process().complete(pending.clone(), &forged).await;
    process().complete(pending.clone(), &came).await.unwrap();
    connect(&world, process())
        .await
        .call_tool("x", ())
        .await
        .unwrap();

    assert!(refused.is_err());
    assert!(!shown.contains(pending.state()), "{shown}");
    assert_eq!(world.count("authorization_code"), 1);
    assert_eq!(world.seen().last().unwrap(), "tools/call Bearer t1");
}

#[tokio::test]
async fn metadata_without_end_is_not_read_to_its_end() {
    let world = World::default();
    world.state().metadata = Some(vec![b' '; 10 * 1024 * 1024]);
    let client = connect(&world, oauth(&world)).await;

    let reason = why(client.call_tool("x", ()).await);

    assert_eq!(
        reason,
        "the request to https://mcp.test/.well-known/oauth-protected-resource/mcp failed"
    );
    assert_eq!(world.count("person"), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_waited_for_longer_than_they_were_given() {
    let world = World::default();
    let deciding = Deciding::new(&world);
    let slow = oauth(&world)
        .user_agent(deciding.browser())
        .patience(Duration::from_secs(60));
    let client = connect(&world, slow).await;

    let reason = why(client.call_tool("x", ()).await);

    assert_eq!(
        reason,
        "nobody came back from the authorization server within 60s"
    );
    assert_eq!(deciding.open.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_client_without_a_browser_says_what_is_missing() {
    let world = World::default();
    let client = connect(&world, OAuth::new(SERVER).http(world.clone())).await;

    let reason = why(client.call_tool("x", ()).await);

    assert!(reason.contains("give OAuth a user agent"), "{reason}");
}

#[tokio::test]
async fn nothing_that_can_be_printed_shows_a_secret() {
    let world = World::default();
    let known = RegisteredClient::new("https://as.test", "id").secret("hush");
    let oauth = oauth(&world).client(known);

    oauth.authorize().await.unwrap();

    let shown = format!("{oauth:?} {:?}", Loopback::new(|_| Ok(())));
    assert!(!shown.contains("hush") && !shown.contains("t1"), "{shown}");
}

#[tokio::test]
async fn a_token_does_not_travel_in_the_clear_unless_that_is_asked_for() {
    let plain = "http://mcp.test/mcp";
    let world = World::default();
    let sent = async |oauth: OAuth| {
        let client = Client::connect(plain)
            .http(world.clone())
            .authorizer(oauth.http(world.clone()).user_agent(world.person()))
            .speaking("2026-07-28");
        why(client.await.unwrap().call_tool("x", ()).await)
    };

    let refused = sent(OAuth::new(plain)).await;
    assert!(world.seen().is_empty(), "not even asked for one");
    let allowed = sent(OAuth::new(plain).allow_plain_http()).await;

    assert!(refused.contains("would travel unencrypted"), "{refused}");
    assert!(!allowed.contains("unencrypted"), "{allowed}");
    assert_eq!(world.count("tools/call"), 1);
}

#[tokio::test]
async fn a_store_that_cannot_be_read_can_be_begun_anew() {
    let folder = Folder::new();
    let world = World::default();
    let oauth = || oauth(&world).store(FileStore::new(folder.path()));
    oauth().authorize().await.unwrap();
    for file in folder.path().read_dir().unwrap() {
        std::fs::write(file.unwrap().path(), "{ not JSON").unwrap();
    }

    let broken = oauth();
    let before = broken.authorize().await;
    broken.forget().await.unwrap();
    broken.authorize().await.unwrap();

    assert!(before.is_err());
    assert_eq!(world.count("person"), 2);
}

/// Somebody who decides when the test says so.
struct Deciding {
    world: World,
    /// How often they were asked, and how many windows are open.
    asked: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    decided: watch::Sender<Option<Decision>>,
}

#[derive(Clone, Copy)]
enum Decision {
    Yes,
    No,
}

impl Deciding {
    fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            asked: Arc::default(),
            open: Arc::default(),
            decided: watch::Sender::new(None),
        }
    }

    fn browser(&self) -> OwnBrowser {
        let (world, decided) = (self.world.clone(), self.decided.clone());
        let (asked, open) = (self.asked.clone(), self.open.clone());
        OwnBrowser::new("http://127.0.0.1:7/callback", move |url| {
            asked.fetch_add(1, Ordering::SeqCst);
            let (world, window) = (world.clone(), Window::open(&open));
            let mut decided = decided.subscribe();
            async move {
                let decision = *decided.wait_for(Option::is_some).await?;
                drop(window);
                let agreed = world.agree(&url);
                match decision {
                    Some(Decision::No) => Ok(agreed.replace("code=c", "error=access_denied")),
                    _ => Ok(agreed),
                }
            }
        })
    }

    /// Waits until somebody is deciding.
    async fn begun(&self) {
        while self.open.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }

    fn decide(&self, decision: Decision) {
        self.decided.send_replace(Some(decision));
    }
}

/// A browser window, which closes when it is dropped.
struct Window(Arc<AtomicUsize>);

impl Window {
    fn open(windows: &Arc<AtomicUsize>) -> Self {
        windows.fetch_add(1, Ordering::SeqCst);
        Self(windows.clone())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A folder for one test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        let number = LAST.fetch_add(1, Ordering::SeqCst);
        let name = format!("bowline-auth-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
