//! Records the fixture, and starts `bowline` with the recording.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::Client;
use bowline::client::{ClientBuilder, Host};
use bowline::types::ElicitResult;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

pub(crate) const BOWLINE: &str = env!("CARGO_BIN_EXE_bowline");
pub(crate) const VERSIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];

/// Fails if the future takes longer than two minutes.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(120), future)
        .await
        .expect("the test takes less than two minutes")
}

/// A recording of the fixture, which is removed with its folder.
pub(crate) struct Recorded {
    folder: PathBuf,
    pub(crate) file: String,
}

impl Recorded {
    /// Records some calls in this version.
    pub(crate) async fn new(version: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bowline-mock-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("fixture.jsonl").to_str().unwrap().to_owned();
        let tapped = bowline::wire::Command::new(BOWLINE).args([
            "tap",
            "--quiet",
            "--record",
            &file,
            "--",
            BOWLINE,
            "serve-demo",
        ]);
        let client = with_user(Client::spawn(tapped).protocol_version(version));
        let client = client.await.unwrap();
        client.list_tools().await.unwrap();
        use_fixture(&client).await;
        // Returns when the child has exited, and with it the recording is complete.
        client.close().await.unwrap();
        Self { folder, file }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Sets a user who answers to the question of the fixture.
pub(crate) fn with_user(builder: ClientBuilder) -> ClientBuilder {
    builder.host(Host::new().elicitation(async |_| ElicitResult::accept(json!({"name": "Ada"}))))
}

/// Calls the tools of the fixture, and checks what they return.
pub(crate) async fn use_fixture(client: &Client) {
    for text in ["one", "two"] {
        let echo = client.call_tool("echo", json!({"text": text})).await;
        assert_eq!(echo.unwrap().text(), text);
    }
    let sum = client
        .call_tool("add", json!({"a": 2, "b": 40}))
        .await
        .unwrap();
    assert_eq!(sum.text(), "42");
    let asked = client
        .call_tool("ask", json!({"prompt": "Who?"}))
        .await
        .unwrap();
    assert_eq!(asked.text(), "accepted:Ada");
}

/// A running `bowline`, which is killed when this is dropped.
pub(crate) struct Running {
    _child: Child,
    pub(crate) url: String,
}

impl Running {
    /// Starts `bowline` with these arguments, and waits until it prints its URL.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(BOWLINE)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).await.unwrap();
        let url = line.trim().strip_prefix("READY ").unwrap().to_owned();
        Self { _child: child, url }
    }
}

/// Runs `bowline` to its end.
pub(crate) async fn bowline(arguments: &[&str]) -> Output {
    let mut command = Command::new(BOWLINE);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("COLUMNS");
    command.output().await.unwrap()
}

/// Returns what `bowline` prints to stdout and stderr, and its exit code.
pub(crate) async fn output_of(arguments: &[&str]) -> (String, String, i32) {
    let Output {
        status,
        stdout,
        stderr,
    } = bowline(arguments).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), status.code().unwrap())
}
