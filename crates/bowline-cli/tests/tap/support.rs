//! Runs `bowline tap` as a child process, and reads what it recorded.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_recording::{Exchange, Recording, Timeline};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

pub(crate) const BOWLINE: &str = env!("CARGO_BIN_EXE_bowline");
pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// Fails if the future takes longer than two minutes.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(120), future)
        .await
        .expect("the test takes less than two minutes")
}

/// A folder that is removed with everything in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bowline-tap-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running program. It is killed when this is dropped.
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: Option<Lines<BufReader<ChildStderr>>>,
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// Starts it with these variables in its environment.
    pub(crate) fn start_with(arguments: &[&str], env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(BOWLINE)
            .args(arguments)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().unwrap(),
            stderr: Some(BufReader::new(child.stderr.take().unwrap()).lines()),
            child,
        }
    }

    /// Starts the fixture over HTTP, and returns its URL.
    pub(crate) async fn http_fixture() -> (Self, String) {
        let mut server = Self::start(&["serve-demo", "--transport", "http"]);
        let mut line = String::new();
        BufReader::new(&mut server.stdout)
            .read_line(&mut line)
            .await
            .unwrap();
        let url = line.trim().strip_prefix("READY ").unwrap().to_owned();
        (server, url)
    }

    /// Starts a proxy to the URL, and returns its own.
    pub(crate) async fn proxy(url: &str, options: &[&str]) -> (Self, String) {
        let arguments = ["tap", url, "--http", "127.0.0.1:0"];
        let mut tap = Self::start(&[&arguments, options].concat());
        let url = tap.stderr_line("bowline: listening on ").await;
        (tap, url)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).await.unwrap();
        stdin.flush().await.unwrap();
    }

    pub(crate) async fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stdout.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    pub(crate) async fn read_line(&mut self) -> String {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.extend(self.read(1).await);
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// Waits for a line of stderr with this prefix, and returns the rest of it.
    pub(crate) async fn stderr_line(&mut self, prefix: &str) -> String {
        let mut seen = Vec::new();
        let stderr = self.stderr.as_mut().unwrap();
        while let Some(line) = stderr.next_line().await.unwrap() {
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.to_owned();
            }
            seen.push(line);
        }
        panic!("no line `{prefix}` on stderr, but {seen:?}");
    }

    pub(crate) async fn signal(&self, name: &str) {
        let mut command = Command::new("kill");
        command.args([&format!("-{name}"), &self.child.id().unwrap().to_string()]);
        assert!(command.status().await.unwrap().success());
    }

    /// Closes stdin, reads stdout to its end, and waits for the exit.
    pub(crate) async fn finish(mut self) -> (Vec<u8>, Option<i32>) {
        self.stdin = None;
        let mut rest = Vec::new();
        let stderr = self.stderr.take();
        let drain = async {
            if let Some(mut stderr) = stderr {
                while stderr.next_line().await.unwrap().is_some() {}
            }
        };
        let (read, ()) = tokio::join!(self.stdout.read_to_end(&mut rest), drain);
        read.unwrap();
        let status = self.child.wait().await.unwrap();
        (rest, status.code())
    }

    /// Stops a proxy, and waits until its recording is complete.
    pub(crate) async fn stop(self) {
        self.signal("TERM").await;
        self.finish().await;
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

/// Returns the lines that `bowline` prints, none of which exceeds 80 columns.
pub(crate) async fn lines_of(arguments: &[&str]) -> (Vec<String>, i32) {
    let output = bowline(arguments).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in lines.iter().filter(|_| !arguments.contains(&"--json")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    (lines, output.status.code().unwrap())
}

/// A recording with its timeline.
pub(crate) struct Recorded {
    pub(crate) recording: Recording,
    pub(crate) timeline: Timeline,
}

impl Recorded {
    pub(crate) fn open(file: impl AsRef<Path>) -> Self {
        let recording = Recording::open(file).unwrap();
        assert_eq!(recording.problems, []);
        let timeline = Timeline::of(&recording);
        Self {
            recording,
            timeline,
        }
    }

    /// Returns the first exchange of this tool.
    pub(crate) fn call(&self, tool: &str) -> &Exchange {
        let mut exchanges = self.timeline.exchanges();
        let call =
            exchanges.find(|it| it.method == "tools/call" && it.name.as_deref() == Some(tool));
        call.unwrap_or_else(|| panic!("no call of {tool} in {:#?}", self.timeline.entries()))
    }

    /// Fails if the recording violates the specification.
    pub(crate) fn assert_lawful(&self) {
        let report = bowline_recording::check(&self.recording);
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        assert_eq!(report.notes, [""; 0]);
    }
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
