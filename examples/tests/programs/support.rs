//! Finds and runs the programs, each with a deadline.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use bowline::wire::Command;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{self, Child};

/// Returns the path of an example that cargo built next to this test.
///
/// `cargo test` with `--test` or with the name of a test builds no examples, and an old one would be tested in silence.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap();
    let program = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let path = target.join("examples").join(program);
    let source = format!("{}/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    let modified = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|file| file.modified())
            .ok()
    };
    assert!(
        modified(&path) >= modified(source.as_ref()),
        "{} is missing or older than its source: run `cargo build --examples`",
        path.display()
    );
    path
}

/// Returns a command for `Client::spawn`.
pub(crate) fn command(name: &str) -> Command {
    Command::new(example(name))
}

/// Fails if the future takes longer than three minutes, on a machine that may be busy.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    let limit = Duration::from_secs(180);
    tokio::time::timeout(limit, future)
        .await
        .expect("the example takes less than three minutes")
}

/// Runs a program to its end, with this standard input, and returns what it printed.
pub(crate) async fn run(name: &str, arguments: &[&Path], input: &str) -> String {
    let mut child = process::Command::new(example(name))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = in_time(child.wait_with_output()).await.unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}: {stderr}");
    stdout.unwrap()
}

/// Starts a program that serves HTTP on ports of the system's choice. Returns it, and the line that it prints then.
pub(crate) async fn serve(name: &str, addresses: usize) -> (Child, String) {
    let mut child = process::Command::new(example(name))
        .args(vec!["127.0.0.1:0"; addresses])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    in_time(stderr.read_line(&mut line)).await.unwrap();
    (child, line.trim().to_owned())
}

/// Ends a server as Ctrl-C does, where a test can: it must exit without an error.
pub(crate) async fn end(mut server: Child) {
    if cfg!(unix) {
        signal("-INT", &server.id().unwrap().to_string()).await;
        assert!(in_time(server.wait()).await.unwrap().success());
    }
}

/// Sends a signal to a process.
pub(crate) async fn signal(name: &str, pid: &str) {
    let status = process::Command::new("kill").args([name, pid]).status();
    assert!(status.await.unwrap().success());
}

/// A folder that is removed at the end of the test.
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("bowline-examples-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
