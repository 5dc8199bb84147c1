//! A client with OAuth against fake servers: when the user is prompted, and which tokens are sent where.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod fake_servers;
mod forgetting;
mod plain_http;
mod prompts;
mod races;
mod refresh;
mod sharing;

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::http::client::Authorizer;
use bowline::{Client, Error};
use bowline_auth::client::{
    EmbeddedBrowser, FileStore, Loopback, MemoryStore, OAuth, PendingAuthorization,
    RegisteredClient, TokenStore as _,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use fake_servers::{FakeServers, SERVER};

fn oauth(servers: &FakeServers) -> OAuth {
    OAuth::new(SERVER)
        .http_client(servers.clone())
        .user_agent(servers.consenting_user())
}

async fn connect(servers: &FakeServers, oauth: impl Authorizer) -> Client {
    Client::connect(SERVER)
        .http_client(servers.clone())
        .authorizer(oauth)
        .protocol_version("2026-07-28")
        .await
        .unwrap()
}

/// Starts a call in a task, and waits until its refresh request is held at the token endpoint.
async fn start_refresh(
    client: &Client,
    servers: &FakeServers,
) -> JoinHandle<bowline::Result<bowline::Reply>> {
    servers.state().holds_token_requests = true;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    while servers.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    call
}

/// Returns the cause of an `Unauthorized` error.
fn why(outcome: bowline::Result<bowline::Reply>) -> String {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    error.source().unwrap().to_string()
}

#[tokio::test]
async fn the_user_is_prompted_once_and_the_token_is_reused() {
    let servers = FakeServers::default();
    let client = connect(&servers, oauth(&servers)).await;

    client.call_tool("x", ()).await.unwrap();
    client.call_tool("y", ()).await.unwrap();

    assert_eq!(
        servers.take_log(),
        [
            "tools/call -",
            "register as.test",
            "consent client-of-as.test []",
            "authorization_code as.test",
            "tools/call Bearer t1",
            "tools/call Bearer t1",
        ]
    );
}

#[tokio::test]
async fn a_client_with_a_secret_sends_its_id_in_every_form_too() {
    let servers = FakeServers::default();
    {
        let mut state = servers.state();
        (state.registers_with_secret, state.supports_revocation) = (true, true);
    }
    let oauth = Arc::new(oauth(&servers));
    let client = connect(&servers, oauth.clone()).await;

    client.call_tool("x", ()).await.unwrap();
    servers.state().valid_tokens.clear();
    client.call_tool("y", ()).await.unwrap();
    oauth.forget().await.unwrap();

    let log = servers.take_log();
    for accepted in ["authorization_code", "refresh_token", "revoke"] {
        assert!(log.iter().any(|it| it.starts_with(accepted)), "{log:?}");
    }
    assert!(log.contains(&"tools/call Bearer t2".to_owned()), "{log:?}");
}

#[tokio::test]
async fn the_loopback_listener_receives_the_code() {
    let servers = FakeServers::default();
    let browsing = servers.clone();
    let loopback = Loopback::new(move |url| {
        tokio::spawn(browse(browsing.consent(url)));
        Ok(())
    });
    let client = connect(&servers, oauth(&servers).user_agent(loopback)).await;

    client.call_tool("x", ()).await.unwrap();

    assert_eq!(servers.count("authorization_code"), 1);
    assert_eq!(servers.take_log().last().unwrap(), "tools/call Bearer t1");
}

/// Requests a loopback URL, as a browser does.
async fn browse(address: String) {
    let (host, target) = address["http://".len()..].split_once('/').unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let request = format!("GET /{target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
}

#[tokio::test]
async fn calls_that_are_refused_together_share_one_prompt() {
    let servers = FakeServers::default();
    let user = ControlledUser::new(&servers);
    let client = connect(&servers, oauth(&servers).user_agent(user.browser())).await;
    let calls: Vec<_> = (0..5)
        .map(|_| tokio::spawn(client.call_tool("x", ()).start()))
        .collect();

    user.prompted().await;
    while servers.count("tools/call -") < 5 {
        tokio::task::yield_now().await;
    }
    user.decide(Decision::Allow);

    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(servers.count("consent"), 1);
    assert_eq!(servers.count("authorization_code"), 1);
}

#[tokio::test]
async fn dropping_the_last_waiting_call_cancels_the_prompt() {
    let servers = FakeServers::default();
    let user = ControlledUser::new(&servers);
    let client = connect(&servers, oauth(&servers).user_agent(user.browser())).await;
    let first = tokio::spawn(client.call_tool("x", ()).start());
    let second = tokio::spawn(client.call_tool("x", ()).start());
    user.prompted().await;
    while servers.count("tools/call -") < 2 {
        tokio::task::yield_now().await;
    }

    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let after_one = user.open_windows.load(Ordering::SeqCst);
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    let after_both = user.open_windows.load(Ordering::SeqCst);

    assert_eq!((after_one, after_both), (1, 0));
    assert_eq!(servers.count("consent"), 0);
}

#[tokio::test]
async fn a_prompt_that_outlives_its_calls_gives_the_next_one_a_token() {
    let servers = FakeServers::default();
    let user = ControlledUser::new(&servers);
    let oauth = oauth(&servers).user_agent(user.browser()).outlive_calls();
    let client = connect(&servers, oauth).await;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    user.prompted().await;

    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    user.decide(Decision::Allow);
    while servers.count("authorization_code") < 1 {
        tokio::task::yield_now().await;
    }
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(user.prompts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_prompt_that_outlives_its_calls_ends_at_its_timeout() {
    let servers = FakeServers::default();
    let user = ControlledUser::new(&servers);
    let oauth = oauth(&servers).user_agent(user.browser()).outlive_calls();
    let client = connect(&servers, oauth.prompt_timeout(Duration::from_secs(60))).await;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    user.prompted().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let after_call = user.open_windows.load(Ordering::SeqCst);

    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    while user.open_windows.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }

    assert_eq!(after_call, 1);
}

#[tokio::test]
async fn a_dropped_call_does_not_lose_the_registration() {
    let servers = FakeServers::default();
    let user = ControlledUser::new(&servers);
    let client = connect(&servers, oauth(&servers).user_agent(user.browser())).await;
    let call = tokio::spawn(client.call_tool("x", ()).start());
    user.prompted().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());

    user.decide(Decision::Allow);
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(servers.count("register"), 1);
    assert_eq!(user.prompts.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_denial_fails_all_waiting_calls_without_another_prompt() {
    let servers = FakeServers::default();
    let user = ControlledUser::new(&servers);
    let client = connect(&servers, oauth(&servers).user_agent(user.browser())).await;
    let calls = [(); 2].map(|()| tokio::spawn(client.call_tool("x", ()).start()));
    user.prompted().await;
    while servers.count("tools/call -") < 2 {
        tokio::task::yield_now().await;
    }

    user.decide(Decision::Deny);

    for call in calls {
        let outcome = call.await.unwrap();
        assert_eq!(
            why(outcome),
            "the authorization request failed: the authorization server returned `access_denied`"
        );
    }
    assert_eq!(user.prompts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_expired_token_is_refreshed_once_for_all_calls() {
    let servers = FakeServers::default();
    servers.state().lifetime = 0;
    let client = connect(&servers, oauth(&servers)).await;
    client.call_tool("x", ()).await.unwrap();
    servers.state().lifetime = 3600;
    servers.take_log();

    servers.state().holds_token_requests = true;
    let calls = [(); 3].map(|()| tokio::spawn(client.call_tool("x", ()).start()));
    while servers.count("refresh_token") == 0 {
        tokio::task::yield_now().await;
    }
    servers.release_token_requests();

    for call in calls {
        call.await.unwrap().unwrap();
    }
    let log = servers.take_log();
    assert_eq!(log[0], "refresh_token as.test");
    assert_eq!(log[1..], ["tools/call Bearer t3"; 3]);
}

#[tokio::test]
async fn a_refused_token_is_refreshed_and_a_refused_refresh_prompts_the_user() {
    let servers = FakeServers::default();
    let client = connect(&servers, oauth(&servers)).await;
    client.call_tool("x", ()).await.unwrap();

    servers.state().valid_tokens.clear();
    servers.take_log();
    client.call_tool("x", ()).await.unwrap();
    let refreshed = servers.take_log();
    servers.state().valid_tokens.clear();
    servers.state().valid_refresh_tokens.clear();
    client.call_tool("x", ()).await.unwrap();
    let prompted = servers.take_log();

    assert_eq!(
        refreshed,
        [
            "tools/call Bearer t1",
            "refresh_token as.test",
            "tools/call Bearer t2"
        ]
    );
    assert_eq!(
        prompted,
        [
            "tools/call Bearer t2",
            "refresh_token as.test",
            "consent client-of-as.test []",
            "authorization_code as.test",
            "tools/call Bearer t3"
        ]
    );
}

#[tokio::test]
async fn a_refused_token_is_not_refreshed_twice_in_a_row() {
    let servers = FakeServers::default();
    let client = connect(&servers, oauth(&servers)).await;
    client.call_tool("x", ()).await.unwrap();
    // Tokens are still issued, but none is accepted.
    servers.state().accepts_tokens = false;

    let first = client.call_tool("x", ()).await;
    let by_refresh = servers.take_log();
    let second = client.call_tool("x", ()).await;
    let by_prompt = servers.take_log();

    assert!(first.is_err() && second.is_err());
    assert_eq!(by_refresh[by_refresh.len() - 2], "refresh_token as.test");
    assert!(!by_prompt.iter().any(|it| it.starts_with("refresh_token")));
    assert!(by_prompt.iter().any(|it| it.starts_with("consent")));
}

#[tokio::test]
async fn a_refresh_completes_after_its_call_was_dropped() {
    let servers = FakeServers::default();
    servers.state().lifetime = 0;
    let client = connect(&servers, oauth(&servers)).await;
    client.call_tool("x", ()).await.unwrap();
    servers.take_log();
    servers.state().lifetime = 3600;

    let call = start_refresh(&client, &servers).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    servers.release_token_requests();
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(
        servers.take_log(),
        ["refresh_token as.test", "tools/call Bearer t3"],
        "the rotated refresh token is stored"
    );
}

#[tokio::test]
async fn a_scope_challenge_adds_to_the_requested_scopes() {
    let servers = FakeServers::default();
    let client = connect(&servers, oauth(&servers)).await;
    client.call_tool("x", ()).await.unwrap();
    servers.take_log();

    servers.state().required_scope = "read".into();
    client.call_tool("x", ()).await.unwrap();
    servers.state().required_scope = "write".into();
    client.call_tool("x", ()).await.unwrap();

    let log = servers.take_log();
    let prompted: Vec<_> = log.iter().filter(|it| it.starts_with("consent")).collect();
    assert_eq!(
        prompted,
        [
            "consent client-of-as.test [read]",
            "consent client-of-as.test [read write]"
        ]
    );
}

#[tokio::test]
async fn the_user_is_not_prompted_twice_for_the_same_scope() {
    let servers = FakeServers::default();
    let client = connect(&servers, oauth(&servers)).await;
    client.call_tool("x", ()).await.unwrap();
    servers.state().required_scope = "admin".into();
    servers.state().grants_scopes = false;

    let first = client.call_tool("x", ()).await;
    let second = client.call_tool("x", ()).await;

    assert!(first.is_err());
    assert_eq!(
        why(second),
        "insufficient scope: the server requires `admin`, already requested or excluded by the scopes that the application allows"
    );
    assert_eq!(
        servers.count("consent"),
        2,
        "once for the token, once for the scope"
    );
}

#[tokio::test]
async fn a_new_issuer_gets_nothing_from_the_old_one() {
    let servers = FakeServers::default();
    let client = connect(&servers, oauth(&servers)).await;
    client.call_tool("x", ()).await.unwrap();
    servers.take_log();

    servers.state().issuer = "https://new.test".into();
    servers.state().valid_tokens.clear();
    client.call_tool("x", ()).await.unwrap();

    assert_eq!(
        servers.take_log(),
        [
            "tools/call Bearer t1",
            "register new.test",
            "consent client-of-new.test []",
            "authorization_code new.test",
            "tools/call Bearer t2",
        ]
    );
}

#[tokio::test]
async fn a_token_is_not_sent_to_another_server() {
    let servers = FakeServers::default();
    let oauth = oauth(&servers);
    oauth.authorize().await.unwrap();
    servers.take_log();
    let other = Client::connect("https://other.test/mcp")
        .http_client(servers.clone())
        .authorizer(oauth)
        .protocol_version("2026-07-28");

    let outcome = other.await.unwrap().call_tool("x", ()).await;

    assert!(matches!(outcome, Err(Error::Unauthorized { .. })));
    let log = servers.take_log();
    assert!(!log.is_empty());
    assert!(log.iter().all(|it| it == "tools/call -"), "{log:?}");
}

#[tokio::test]
async fn stored_credentials_are_used_by_the_next_client() {
    let folder = Folder::new();
    let servers = FakeServers::default();
    let store = || FileStore::new(folder.path());
    let first = connect(&servers, oauth(&servers).store(store())).await;
    first.call_tool("x", ()).await.unwrap();
    servers.take_log();

    let second = connect(&servers, oauth(&servers).store(store())).await;
    second.call_tool("x", ()).await.unwrap();

    assert_eq!(servers.take_log(), ["tools/call Bearer t1"]);
}

#[tokio::test]
async fn clients_with_one_store_share_refreshed_tokens() {
    let servers = FakeServers::default();
    let store = Arc::new(MemoryStore::new());
    let shared = || store.clone();
    let one = connect(&servers, oauth(&servers).store(shared())).await;
    one.call_tool("x", ()).await.unwrap();
    let two = connect(&servers, oauth(&servers).store(shared())).await;
    two.call_tool("x", ()).await.unwrap();

    servers.state().valid_tokens.clear();
    one.call_tool("x", ()).await.unwrap();
    two.call_tool("x", ()).await.unwrap();

    assert_eq!(servers.count("refresh_token"), 1);
    assert_eq!(servers.count("consent"), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn stored_files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let servers = FakeServers::default();
    let inner = folder.path().join("tokens");
    let client = connect(&servers, oauth(&servers).store(FileStore::new(&inner))).await;

    client.call_tool("x", ()).await.unwrap();

    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let files: Vec<_> = inner
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    assert_eq!(mode(&inner), 0o700);
    assert_eq!(
        files.len(),
        2,
        "credentials and lock, no temporary file: {files:?}"
    );
    assert_eq!((mode(&files[0]), mode(&files[1])), (0o600, 0o600));
}

#[tokio::test]
async fn forget_removes_the_stored_tokens() {
    let servers = FakeServers::default();
    let store = Arc::new(MemoryStore::new());
    let oauth = Arc::new(oauth(&servers).store(store.clone()));

    oauth.authorize().await.unwrap();
    oauth.forget().await.unwrap();
    let stored = store.load(SERVER).await.unwrap().unwrap();

    assert_eq!(servers.count("consent"), 1);
    let stored = serde_json::to_value(&stored).unwrap();
    assert!(stored["tokens"].is_null());
}

#[tokio::test]
async fn forget_revokes_the_token_at_its_issuer() {
    let servers = FakeServers::default();
    servers.state().supports_revocation = true;
    let oauth = oauth(&servers);
    oauth.authorize().await.unwrap();
    servers.take_log();

    oauth.forget().await.unwrap();
    oauth.forget().await.unwrap();

    assert_eq!(
        servers.take_log(),
        ["revoke token=r1&token_type_hint=refresh_token&client_id=client-of-as.test"]
    );
}

#[tokio::test]
async fn an_authorization_can_be_completed_in_another_process() {
    let servers = FakeServers::default();
    let store = Arc::new(MemoryStore::new());
    let process = || {
        OAuth::new(SERVER)
            .http_client(servers.clone())
            .store(store.clone())
    };
    let client = connect(&servers, process()).await;
    let Err(Error::Unauthorized { challenges, .. }) = client.call_tool("x", ()).await else {
        panic!("the call succeeded without a token");
    };

    let redirect_uri = "https://app.example/callback";
    let pending = process().begin(redirect_uri, &challenges).await.unwrap();
    let stored = serde_json::to_string(&pending).unwrap();
    let shown = format!("{pending:?}");
    let redirect_url = servers.consent(pending.url());
    let pending: PendingAuthorization = serde_json::from_str(&stored).unwrap();
    assert!(redirect_url.contains(&format!("state={}", pending.state())));
    let forged = redirect_url.replace("state=", "state=x");
    let refused = process().complete(pending.clone(), &forged).await;
    process()
        .complete(pending.clone(), &redirect_url)
        .await
        .unwrap();
    connect(&servers, process())
        .await
        .call_tool("x", ())
        .await
        .unwrap();

    assert!(refused.is_err());
    assert!(!shown.contains(pending.state()), "{shown}");
    assert_eq!(servers.count("authorization_code"), 1);
    assert_eq!(servers.take_log().last().unwrap(), "tools/call Bearer t1");
}

#[tokio::test]
async fn oversized_metadata_are_refused() {
    let servers = FakeServers::default();
    servers.state().metadata = Some(vec![b' '; 10 * 1024 * 1024]);
    let client = connect(&servers, oauth(&servers)).await;

    let reason = why(client.call_tool("x", ()).await);

    assert_eq!(
        reason,
        "request to https://mcp.test/.well-known/oauth-protected-resource/mcp failed"
    );
    assert_eq!(servers.count("consent"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_prompt_timeout_limits_the_wait_for_the_redirect() {
    let servers = FakeServers::default();
    let user = ControlledUser::new(&servers);
    let slow = oauth(&servers)
        .user_agent(user.browser())
        .prompt_timeout(Duration::from_secs(60));
    let client = connect(&servers, slow).await;

    let reason = why(client.call_tool("x", ()).await);

    assert_eq!(
        reason,
        "no redirect from the authorization server within 60s"
    );
    assert_eq!(user.open_windows.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn without_a_user_agent_the_error_names_the_setting() {
    let servers = FakeServers::default();
    let client = connect(&servers, OAuth::new(SERVER).http_client(servers.clone())).await;

    let reason = why(client.call_tool("x", ()).await);

    assert!(reason.contains("no user agent is set"), "{reason}");
}

#[tokio::test]
async fn debug_output_hides_secrets() {
    let servers = FakeServers::default();
    let known = RegisteredClient::new("https://as.test", "id").secret("hush");
    let oauth = oauth(&servers).client(known);

    oauth.authorize().await.unwrap();

    let shown = format!("{oauth:?} {:?}", Loopback::new(|_| Ok(())));
    assert!(!shown.contains("hush") && !shown.contains("t1"), "{shown}");
}

#[tokio::test]
async fn forget_resets_an_unreadable_store() {
    let folder = Folder::new();
    let servers = FakeServers::default();
    let oauth = || oauth(&servers).store(FileStore::new(folder.path()));
    oauth().authorize().await.unwrap();
    for file in folder.path().read_dir().unwrap() {
        std::fs::write(file.unwrap().path(), "{ not JSON").unwrap();
    }

    let broken = oauth();
    let before = broken.authorize().await;
    broken.forget().await.unwrap();
    broken.authorize().await.unwrap();

    assert!(before.is_err());
    assert_eq!(servers.count("consent"), 2);
}

/// A user whose decision the test controls.
struct ControlledUser {
    servers: FakeServers,
    prompts: Arc<AtomicUsize>,
    open_windows: Arc<AtomicUsize>,
    decided: watch::Sender<Option<Decision>>,
}

#[derive(Clone, Copy)]
enum Decision {
    Allow,
    Deny,
}

impl ControlledUser {
    fn new(servers: &FakeServers) -> Self {
        Self {
            servers: servers.clone(),
            prompts: Arc::default(),
            open_windows: Arc::default(),
            decided: watch::Sender::new(None),
        }
    }

    fn browser(&self) -> EmbeddedBrowser {
        let (servers, decided) = (self.servers.clone(), self.decided.clone());
        let (prompts, open_windows) = (self.prompts.clone(), self.open_windows.clone());
        EmbeddedBrowser::new("http://127.0.0.1:7/callback", move |url| {
            prompts.fetch_add(1, Ordering::SeqCst);
            let (servers, window) = (servers.clone(), Window::open(&open_windows));
            let mut decided = decided.subscribe();
            async move {
                let decision = *decided.wait_for(Option::is_some).await?;
                drop(window);
                let redirect = servers.consent(&url);
                match decision {
                    Some(Decision::Deny) => Ok(redirect.replace("code=c", "error=access_denied")),
                    _ => Ok(redirect),
                }
            }
        })
    }

    /// Waits until a prompt is open.
    async fn prompted(&self) {
        while self.open_windows.load(Ordering::SeqCst) == 0 {
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
