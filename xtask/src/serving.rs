//! A server in a process of its own, for as long as it is needed.

use std::io::{self, BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process;

/// A server that was started and can be reached; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    /// Starts a server that says `READY` and its URL on its standard output.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        process::in_its_own_group(command);
        let child = command.spawn()?;
        let mut serving = Self {
            child,
            url: String::new(),
        };
        let mut said = String::new();
        if let Some(stdout) = &mut serving.child.stdout {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        match said.trim().strip_prefix("READY ") {
            Some(url) => serving.url = url.to_owned(),
            None => {
                let why = format!("the server {command:?} said `{}`, and no URL", said.trim());
                return Err(io::Error::other(why));
            }
        }
        Ok(serving)
    }

    /// Starts a server that was told to listen at this port, and waits until it does.
    pub(crate) fn start_at(command: &mut Command, port: u16) -> io::Result<Self> {
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        process::in_its_own_group(command);
        let mut serving = Self {
            child: command.spawn()?,
            url: format!("http://127.0.0.1:{port}"),
        };
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = serving.child.try_wait()? {
                let why = format!("the server {command:?} ended before it listened: {status}");
                return Err(io::Error::other(why));
            }
            if Instant::now() >= deadline {
                let seconds = START_LIMIT.as_secs();
                let why = format!("the server {command:?} does not listen after {seconds} s");
                return Err(io::Error::other(why));
            }
            thread::sleep(POLL_EVERY);
        }
        Ok(serving)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = process::kill_group(&mut self.child);
        let _ = self.child.wait();
    }
}

/// An interpreter with many packages takes seconds on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(20);

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_server_says_where_it_is() {
        let serving = Serving::start(&mut shell("echo READY http://host/mcp; exec sleep 600"));

        assert_eq!(serving.unwrap().url(), "http://host/mcp");
    }

    #[test]
    fn a_server_that_ends_before_it_is_ready_is_an_error_that_tells_what_it_said() {
        let serving = Serving::start(&mut shell("echo no such port"));

        assert!(serving.unwrap_err().to_string().contains("no such port"));
    }

    #[test]
    fn a_server_that_ends_before_it_listens_is_an_error_that_tells_how_it_ended() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);

        let serving = Serving::start_at(&mut shell("exit 3"), port);

        assert!(serving.unwrap_err().to_string().contains("exit status: 3"));
    }
}
