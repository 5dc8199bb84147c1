//! Runs `bowline` as a child process, and reads its stderr.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bowline_cli::SlowCallCounts;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

pub(crate) const BOWLINE: &str = env!("CARGO_BIN_EXE_bowline");
pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// Fails if the future takes longer than three minutes, on a machine that may be busy.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    let limit = Duration::from_secs(180);
    tokio::time::timeout(limit, future)
        .await
        .expect("the test takes less than three minutes")
}

/// A running `bowline`. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(BOWLINE)
            .args(arguments)
            .env("BROWSER", "true") // a program that does nothing
            .env("OTHER", "other") // not for the command behind a bridge
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()).lines(),
            stderr: BufReader::new(child.stderr.take().unwrap()).lines(),
            child,
        }
    }

    /// Starts a bridge to this command over HTTP, and returns its URL.
    pub(crate) async fn bridge_to(command: &[&str]) -> (Self, String) {
        let http = ["bridge", "--http", "127.0.0.1:0"];
        // No load balancer has to notice that it ends.
        let arguments = [&http[..], &["--drain-delay", "0", "--"]].concat();
        let mut bridge = Self::start(&[&arguments, command].concat());
        let line = bridge.stderr_line("bowline: listening on ").await;
        (bridge, line)
    }

    /// Waits for a line of stderr with this prefix, and returns the rest of it.
    pub(crate) async fn stderr_line(&mut self, prefix: &str) -> String {
        let mut seen = Vec::new();
        while let Some(line) = self.stderr.next_line().await.unwrap() {
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.to_owned();
            }
            seen.push(line);
        }
        panic!("no line `{prefix}` on stderr, but {seen:?}");
    }

    /// Reads the lines of stderr to its end.
    pub(crate) async fn stderr_rest(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.stderr.next_line().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    /// Waits until the counters of `serve-demo --report` meet a condition.
    pub(crate) async fn counts(&mut self, condition: impl Fn(&SlowCallCounts) -> bool) {
        loop {
            let line = self.stderr_line("counts ").await;
            if condition(&serde_json::from_str(&line).unwrap()) {
                return;
            }
        }
    }

    pub(crate) async fn stdout_line(&mut self) -> Option<String> {
        self.stdout.next_line().await.unwrap()
    }

    /// Sends a request over stdin, and returns the next message of stdout.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.send(&request).await;
        self.next_message().await
    }

    /// Writes a message to stdin.
    pub(crate) async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
    }

    pub(crate) async fn next_message(&mut self) -> Value {
        let line = self.stdout_line().await.expect("a message");
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) async fn terminate(&self) {
        self.signal("TERM").await;
    }

    pub(crate) async fn signal(&self, name: &str) {
        send_signal(name, &self.id()).await;
    }

    pub(crate) fn id(&self) -> String {
        self.child.id().unwrap().to_string()
    }

    pub(crate) async fn exit(&mut self) -> ExitStatus {
        self.child.wait().await.unwrap()
    }
}

async fn send_signal(name: &str, pid: &str) {
    let mut command = Command::new("kill");
    command.args([&format!("-{name}"), pid]);
    assert!(command.status().await.unwrap().success());
}

/// Sends SIGKILL, to a process that may have ended.
pub(crate) async fn kill(pid: &str) {
    Command::new("kill")
        .args(["-KILL", pid])
        .status()
        .await
        .unwrap();
}

/// Returns the ids of the children of a process.
pub(crate) async fn children_of(pid: &str) -> Vec<String> {
    let output = Command::new("pgrep").args(["-P", pid]).output().await;
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    output.split_whitespace().map(str::to_owned).collect()
}

/// Waits until a process has exited. One that was killed with its parent may remain as a zombie.
pub(crate) async fn wait_for_exit(pid: &str) {
    loop {
        let mut command = Command::new("ps");
        let output = command.args(["-o", "stat=", "-p", pid]).output().await;
        let state = String::from_utf8(output.unwrap().stdout).unwrap();
        if state.trim().is_empty() || state.starts_with('Z') {
            return;
        }
    }
}
