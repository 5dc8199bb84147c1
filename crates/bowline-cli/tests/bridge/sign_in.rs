//! `bowline bridge` with a server that requires OAuth tokens.

use std::path::{Path, PathBuf};

use bowline::exchange::Principal;
use bowline::prelude::*;
use bowline::wire::Command;
use bowline_auth::server::{JwtVerifier, ResourceServer};
use bowline_example_authorization_server::{AuthorizationServer, SimulatedUser};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::support::{BOWLINE, LEGACY, MODERN, Program, in_time};

/// Returns the user.
#[tool]
async fn whoami(caller: Principal) -> String {
    caller.name().unwrap_or("anonymous").to_owned()
}

/// A server that requires tokens.
pub(crate) struct GuardedServer {
    pub(crate) url: String,
    pub(crate) issuer: String,
}

pub(crate) async fn guarded_server() -> GuardedServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::new("notes", "1.0.0").tool(whoami).http();
    let bound = server.bind("127.0.0.1:0").await.unwrap();
    let resource = format!("http://{}/mcp", bound.local_addr());
    let verifier = JwtVerifier::discover(&issuer).unwrap();
    let guard = ResourceServer::new(&resource, &issuer, verifier).unwrap();
    let authorization = AuthorizationServer::new(&issuer).resource(&resource, &["notes:read"]);
    tokio::spawn(bound.layer(guard.scopes(["notes:read"])).serve());
    tokio::spawn(async move { axum::serve(listener, authorization.router()).await });
    GuardedServer {
        url: resource,
        issuer,
    }
}

/// Returns a bridge to a URL as a stdio server, and the lines of its stderr.
fn bridge(url: &str, tokens: &Path) -> (Command, mpsc::UnboundedReceiver<String>) {
    bridge_with(&["bridge", url], tokens)
}

/// Returns a bridge to the server of a configuration file, and the lines of its stderr.
fn bridge_of_file(
    url: &str,
    name: &str,
    folder: &Folder,
) -> (Command, mpsc::UnboundedReceiver<String>) {
    let server = json!({"url": url, "bridge": {"oauth": true}});
    let config = json!({"mcpServers": {name: server}, "bridge": {"stdio": true}});
    let file = folder.write("bridge.json", &config.to_string());
    bridge_with(&["bridge", "--config", &file], &folder.0.join("tokens"))
}

fn bridge_with(arguments: &[&str], tokens: &Path) -> (Command, mpsc::UnboundedReceiver<String>) {
    let (lines, received) = mpsc::unbounded_channel();
    let command = Command::new(BOWLINE)
        .args(arguments)
        .arg("--token-dir")
        .arg(tokens)
        .env("BROWSER", "true") // a program that does nothing
        .on_stderr(move |line| drop(lines.send(line.to_owned())));
    (command, received)
}

/// Waits for the address that the bridge prints.
async fn printed_address(stderr: &mut mpsc::UnboundedReceiver<String>) -> String {
    loop {
        let line = stderr.recv().await.expect("the bridge prints an address");
        if line.starts_with("http://") {
            return line;
        }
    }
}

/// Does what a browser does with the address that the bridge prints.
pub(crate) async fn sign_in(url: &str) {
    let redirect = SimulatedUser::new("ada").allow(url).await.unwrap();
    let rest = redirect.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let mut browser = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    browser.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    browser.read_to_string(&mut page).await.unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
}

#[tokio::test]
async fn the_bridge_signs_in_once_and_keeps_the_token_for_the_next_time() {
    let folder = Folder::new("once");
    in_time(async {
        let url = guarded_server().await.url;
        let (command, mut stderr) = bridge(&url, &folder.0);
        let first = Client::spawn(command).protocol_version(LEGACY);
        let first = tokio::spawn(first.into_future());
        sign_in(&printed_address(&mut stderr).await).await;
        let first = first.await.unwrap().unwrap();
        let who = first.call_tool("whoami", ()).await.unwrap().text();

        let (command, mut stderr) = bridge(&url, &folder.0);
        let second = Client::spawn(command).protocol_version(MODERN);
        let second = second.await.unwrap();
        let still = second.call_tool("whoami", ()).await.unwrap().text();
        second.close().await.unwrap();

        assert!(who.ends_with("ada"), "{who}");
        assert_eq!(still, who);
        assert_eq!(stderr.recv().await, None, "the user was asked again");
        assert_private(&folder.0);
    })
    .await;
}

#[tokio::test]
async fn the_servers_of_a_file_have_their_own_sign_in_and_tokens() {
    let folder = Folder::new("file");
    in_time(async {
        let url = guarded_server().await.url;
        let (command, mut stderr) = bridge_of_file(&url, "notes", &folder);
        let first = Client::spawn(command).protocol_version(MODERN);
        let first = first.await.unwrap();
        let call = first.call_tool("whoami", ()).start();
        let call = tokio::spawn(call);
        sign_in(&printed_address(&mut stderr).await).await;
        let who = call.await.unwrap().unwrap().text();

        let (command, mut stderr) = bridge_of_file(&url, "notes", &folder);
        let second = Client::spawn(command).protocol_version(MODERN);
        let second = second.await.unwrap();
        let still = second.call_tool("whoami", ()).await.unwrap().text();
        second.close().await.unwrap();

        assert!(who.ends_with("ada"), "{who}");
        assert_eq!(still, who);
        assert_eq!(stderr.recv().await, None, "the user was asked again");
        assert_private(&folder.0.join("tokens"));
        let (command, mut stderr) = bridge_of_file(&url, "other", &folder);
        let other = Client::spawn(command).protocol_version(MODERN);
        let other = tokio::spawn(other.into_future());
        let why = stderr.recv().await.unwrap();
        assert!(why.contains("server `other` requires a sign-in"), "{why}");
        other.abort();
    })
    .await;
}

#[tokio::test]
async fn a_sign_in_goes_on_when_the_client_gives_its_call_up() {
    let folder = Folder::new("goes-on");
    let tokens = folder.0.to_str().unwrap();
    in_time(async {
        let url = guarded_server().await.url;
        let mut bridge = Program::start(&[
            "bridge",
            &url,
            "--http",
            "127.0.0.1:0",
            "--token-dir",
            tokens,
        ]);
        let front = bridge.stderr_line("bowline: listening on ").await;
        let connect = Client::connect(&front);
        let given_up = tokio::spawn(connect.into_future());
        let address = bridge.stderr_line("http://").await;

        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        sign_in(&format!("http://{address}")).await;

        let client = Client::connect(&front).await.unwrap();
        let who = client.call_tool("whoami", ()).await.unwrap().text();
        assert!(who.ends_with("ada"), "{who}");
    })
    .await;
}

#[tokio::test]
async fn without_oauth_the_refusal_is_an_error_of_the_call() {
    in_time(async {
        let url = guarded_server().await.url;
        let command = Command::new(BOWLINE).args(["bridge", &url, "--no-oauth"]);

        let refused = Client::spawn(command).protocol_version(LEGACY).await;

        let error = refused.unwrap_err().to_string();
        assert!(error.contains(&url), "{error}");
    })
    .await;
}

/// A folder that is removed at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("bowline-cli-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// Writes a file, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::create_dir_all(&self.0).unwrap();
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

/// Checks that there are tokens in a folder, and that only their owner can read them.
fn assert_private(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(!files.is_empty());
    for file in files {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
