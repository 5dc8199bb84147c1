//! `ServerProcess`: a server as a child process, killed on drop, or when this program is killed.

use std::io::{self, BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{self, GroupGuard};

/// A server that listens. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    guard: GroupGuard,
    url: String,
}

impl ServerProcess {
    /// Starts a server that prints `READY` and its URL to standard output.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = Self::spawn(command, String::new())?;
        let mut line = String::new();
        if let Some(stdout) = &mut server.child.stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim().strip_prefix("READY ") {
            Some(url) => server.url = url.to_owned(),
            None => {
                let why = format!(
                    "expected `READY <url>` from the server {command:?}, got `{}`",
                    line.trim()
                );
                return Err(io::Error::other(why));
            }
        }
        Ok(server)
    }

    /// Starts a server that prints a line with this prefix and its URL to standard error. What it prints before the line
    /// is part of the error if it ends without it; what it prints afterwards is dropped.
    pub(crate) fn start_with_line(command: &mut Command, prefix: &str) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let mut server = Self::spawn(command, String::new())?;
        let mut printed = String::new();
        if let Some(stderr) = server.child.stderr.take() {
            let mut lines = BufReader::new(stderr).lines();
            while let Some(line) = lines.next().transpose()? {
                if let Some(url) = line.strip_prefix(prefix) {
                    server.url = url.to_owned();
                    thread::spawn(move || lines.for_each(drop));
                    return Ok(server);
                }
                printed = format!("{printed}{line}\n");
            }
        }
        let why = format!("the server {command:?} ended before it listened: {printed}");
        Err(io::Error::other(why))
    }

    /// Starts a server that is configured to listen on this port, and waits until it does.
    pub(crate) fn start_at(command: &mut Command, port: u16) -> io::Result<Self> {
        Self::start_at_when(command, port, |_| true)
    }

    /// Waits also until the server is ready, which is asked with the id of its process: some answer their first clients
    /// with an error.
    pub(crate) fn start_at_when(
        command: &mut Command,
        port: u16,
        is_ready: impl Fn(u32) -> bool,
    ) -> io::Result<Self> {
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self::spawn(command, format!("http://127.0.0.1:{port}"))?;
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() || !is_ready(server.child.id()) {
            if let Some(status) = server.child.try_wait()? {
                let why = format!("the server {command:?} exited before it was ready: {status}");
                return Err(io::Error::other(why));
            }
            if Instant::now() >= deadline {
                let seconds = START_LIMIT.as_secs();
                let why = format!("the server {command:?} was not ready within {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(server)
    }

    fn spawn(command: &mut Command, url: String) -> io::Result<Self> {
        process::set_process_group(command);
        let mut child = command.spawn()?;
        match GroupGuard::start(&child) {
            Ok(guard) => Ok(Self { child, guard, url }),
            Err(error) => {
                let _ = process::kill_group(&mut child);
                Err(error)
            }
        }
    }

    /// Sends SIGTERM, and waits until the process has ended.
    pub(crate) fn terminate(mut self, limit: Duration) -> io::Result<()> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        let deadline = Instant::now() + limit;
        while self.child.try_wait()?.is_none() {
            if Instant::now() >= deadline {
                return Err(io::Error::other("the server did not end after SIGTERM"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = process::kill_group(&mut self.child);
        let _ = self.child.wait();
        self.guard.dismiss();
    }
}

/// Long, because an interpreter with many packages takes seconds on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_server_prints_its_url() {
        let server = ServerProcess::start(&mut shell("echo READY http://host/mcp; exec sleep 600"));

        assert_eq!(server.unwrap().url(), "http://host/mcp");
    }

    #[test]
    fn a_server_prints_a_line_with_its_url_to_stderr() {
        let script = "echo hello >&2; echo at http://host/mcp >&2; exec sleep 600";
        let server = ServerProcess::start_with_line(&mut shell(script), "at ");
        assert_eq!(server.unwrap().url(), "http://host/mcp");

        let server = ServerProcess::start_with_line(&mut shell("echo in use >&2"), "at ");
        assert!(server.unwrap_err().to_string().contains("in use"));
    }

    #[test]
    fn a_server_and_its_children_are_killed_with_this_program() {
        let script = "sleep 600 & echo READY url; wait";
        let mut server = ServerProcess::start(&mut shell(script)).unwrap();
        let stdout = server.child.stdout.take().unwrap();

        // As if this program were killed.
        server.guard.end_pipe();

        let status = server.child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
        // Ends when the child of the server has closed it, too.
        assert_eq!(io::copy(&mut { stdout }, &mut io::sink()).unwrap(), 0);
    }

    #[test]
    fn a_server_that_exits_before_it_is_ready_is_an_error_with_its_output() {
        let server = ServerProcess::start(&mut shell("echo no such port"));

        assert!(server.unwrap_err().to_string().contains("no such port"));
    }

    #[test]
    fn a_server_that_exits_before_it_listens_is_an_error_with_its_status() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);

        let server = ServerProcess::start_at(&mut shell("exit 3"), port);

        assert!(server.unwrap_err().to_string().contains("exit status: 3"));
    }

    #[test]
    fn a_server_that_listens_is_waited_for_until_it_is_ready() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = std::cell::Cell::new(0);
        let is_ready = |_| {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };

        let server = ServerProcess::start_at_when(&mut shell("exec sleep 600"), port, is_ready);

        server.unwrap();
        assert_eq!(asked.get(), 3);
    }
}
