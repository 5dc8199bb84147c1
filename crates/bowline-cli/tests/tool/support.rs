//! Runs `bowline` as a child process, and serves what it talks to.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

pub(crate) const BOWLINE: &str = env!("CARGO_BIN_EXE_bowline");
pub(crate) const VERSIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];

/// Fails if the future takes longer than two minutes.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    let limit = Duration::from_secs(120);
    tokio::time::timeout(limit, future)
        .await
        .expect("the test takes less than two minutes")
}

/// What a program printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Returns stdout as one JSON value.
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(json) => json,
            Err(error) => panic!("{error}: {self:?}"),
        }
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(BOWLINE);
    command
        .args(words)
        .env("BROWSER", "true") // a program that does nothing
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs `bowline` with these words until it ends.
pub(crate) async fn run(words: &[&str]) -> Ended {
    run_with(words, |_| {}).await
}

/// Runs `bowline` with other settings of the process.
pub(crate) async fn run_with(words: &[&str], configure: impl FnOnce(&mut Command)) -> Ended {
    let mut command = command(words);
    configure(&mut command);
    let output = command.output().await.unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running `bowline`. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) stdout: Lines<BufReader<ChildStdout>>,
    stderr: Option<ChildStderr>,
}

impl Program {
    pub(crate) fn start(words: &[&str]) -> Self {
        let mut child = command(words).spawn().unwrap();
        Self {
            stdout: BufReader::new(child.stdout.take().unwrap()).lines(),
            stderr: child.stderr.take(),
            child,
        }
    }

    /// Returns the next line of stdout.
    pub(crate) async fn line(&mut self) -> String {
        let line = self.stdout.next_line().await.unwrap();
        match line {
            Some(line) => line,
            None => panic!("no more lines"),
        }
    }

    pub(crate) fn take_stderr(&mut self) -> ChildStderr {
        self.stderr.take().unwrap()
    }

    pub(crate) async fn interrupt(&self) {
        let mut command = Command::new("kill");
        command.args(["-INT", &self.child.id().unwrap().to_string()]);
        assert!(command.status().await.unwrap().success());
    }

    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().await.unwrap().code()
    }

    /// Waits for the end, and returns the rest of what was printed.
    pub(crate) async fn end(mut self) -> Ended {
        let mut stderr = String::new();
        let mut stdout = String::new();
        let lines = async {
            while let Some(line) = self.stdout.next_line().await.unwrap() {
                stdout.push_str(&line);
                stdout.push('\n');
            }
        };
        let mut pipe = self.stderr.take().unwrap();
        let (read, ()) = tokio::join!(pipe.read_to_string(&mut stderr), lines);
        read.unwrap();
        let status = self.child.wait().await.unwrap();
        Ended {
            code: status.code(),
            stdout,
            stderr,
        }
    }
}

/// The fixture, served over HTTP by another process.
pub(crate) struct HttpFixture {
    pub(crate) url: String,
    _process: Program,
}

impl HttpFixture {
    pub(crate) async fn start() -> Self {
        let mut process = Program::start(&["serve-demo", "--transport", "http"]);
        let line = process.line().await;
        let url = line.strip_prefix("READY ").unwrap().to_owned();
        Self {
            url,
            _process: process,
        }
    }
}

/// A directory that is removed when this is dropped.
pub(crate) struct TempDir(pub(crate) std::path::PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("bowline-tool-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
