//! [`Program`], a child process with a deadline, killed on drop.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;

/// A running program, and the lines that it has printed.
pub(crate) struct Program {
    child: Child,
    /// The command line, for errors.
    line: String,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    deadline: Instant,
}

/// The exit code of a program, and what it printed since it was last asked.
#[derive(Debug)]
pub(crate) struct Ended {
    line: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Program {
    /// Starts a program that must end within `limit`.
    pub(crate) fn start(command: &mut Command, limit: Duration) -> Result<Self> {
        let line = format!("{command:?}");
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("failed to start {line}: {error}"))?;
        Ok(Self {
            stdout: lines(child.stdout.take()),
            stderr: lines(child.stderr.take()),
            child,
            line,
            deadline: Instant::now() + limit,
        })
    }

    /// Returns the next line of stdout.
    pub(crate) fn line(&self) -> Result<String> {
        let left = self.left();
        self.line_within(left)?.ok_or_else(|| self.timed_out())
    }

    /// Returns the next line of stdout; `None` if there is none in this time.
    pub(crate) fn line_within(&self, time: Duration) -> Result<Option<String>> {
        match self.stdout.recv_timeout(time.min(self.left())) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let stderr: Vec<String> = self.stderr.iter().collect();
                let (line, stderr) = (&self.line, stderr.join("; "));
                Err(format!("{line} ended too early: {stderr}"))
            }
        }
    }

    /// Waits for a line of stderr that contains this text, and returns it.
    pub(crate) fn stderr_line(&self, text: &str) -> Result<String> {
        let mut seen = String::new();
        loop {
            match self.stderr.recv_timeout(self.left()) {
                Ok(line) if line.contains(text) => return Ok(line),
                Ok(line) => seen.push_str(&line),
                Err(RecvTimeoutError::Timeout) => return Err(self.timed_out()),
                Err(RecvTimeoutError::Disconnected) => {
                    let line = &self.line;
                    return Err(format!("{line} ended without `{text}`: {seen:.300}"));
                }
            }
        }
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub(crate) fn interrupt(&self) -> Result<()> {
        let mut kill = Command::new("kill");
        kill.args(["-INT", &self.child.id().to_string()]);
        match kill.status() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("failed to interrupt {}: {other:?}", self.line)),
        }
    }

    /// Waits until the program has ended.
    pub(crate) fn end(mut self) -> Result<Ended> {
        // Both pipes end with the program.
        let stdout = self.rest(&self.stdout)?;
        let stderr = self.rest(&self.stderr)?;
        loop {
            let status = self.child.try_wait().map_err(|error| error.to_string())?;
            match status {
                Some(status) => {
                    return Ok(Ended {
                        line: std::mem::take(&mut self.line),
                        code: status.code(),
                        stdout,
                        stderr,
                    });
                }
                None if self.left().is_zero() => return Err(self.timed_out()),
                None => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    fn rest(&self, lines: &Receiver<String>) -> Result<String> {
        let mut text = String::new();
        loop {
            match lines.recv_timeout(self.left()) {
                Ok(line) => text.extend([line.as_str(), "\n"]),
                Err(RecvTimeoutError::Disconnected) => return Ok(text),
                Err(RecvTimeoutError::Timeout) => return Err(self.timed_out()),
            }
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn timed_out(&self) -> String {
        format!("{} did not end in time", self.line)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Fails unless the exit code is this one.
    pub(crate) fn expect(&self, code: i32) -> Result<&Self> {
        match self.code == Some(code) {
            true => Ok(self),
            false => Err(format!("expected exit code {code} of {}", self.describe())),
        }
    }

    /// Returns stdout as one JSON value.
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout)
            .map_err(|error| format!("expected JSON ({error}) from {}", self.describe()))
    }

    /// Returns each line of stdout as a JSON value.
    pub(crate) fn json_lines(&self) -> Result<Vec<Value>> {
        let lines = self.stdout.lines().map(serde_json::from_str);
        let lines: std::result::Result<_, _> = lines.collect();
        lines.map_err(|error| format!("expected JSON lines ({error}) from {}", self.describe()))
    }

    /// Returns the command line with its output, for errors.
    pub(crate) fn describe(&self) -> String {
        let Self {
            line,
            code,
            stdout,
            stderr,
        } = self;
        let code = code.map_or("a signal".to_owned(), |code| code.to_string());
        format!("{line}, which ended with {code}: {stdout:.600} {stderr:.600}")
    }
}

/// Reads the lines of a pipe in a thread, which ends with the pipe.
fn lines(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let pipe = pipe.into_iter();
        for line in pipe.flat_map(|pipe| BufReader::new(pipe).split(b'\n')) {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[allow(
        clippy::unwrap_used,
        reason = "clippy exempts only `#[test]` functions, not their helpers"
    )]
    fn shell(script: &str, limit: Duration) -> Program {
        let mut command = Command::new("sh");
        Program::start(command.args(["-c", script]), limit).unwrap()
    }

    #[test]
    fn the_lines_the_exit_code_and_the_rest_are_returned() {
        let program = shell("echo first; echo second; echo why >&2; exit 3", MINUTE);

        assert_eq!(program.line().unwrap(), "first");
        let ended = program.end().unwrap();

        assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), "second\n"));
        assert!(ended.expect(0).unwrap_err().contains("why"));
    }

    #[test]
    fn a_program_that_does_not_end_is_an_error() {
        let program = shell("exec sleep 600", Duration::from_millis(50));

        assert!(program.end().unwrap_err().contains("in time"));
    }

    #[test]
    fn a_program_that_ends_too_early_is_an_error_with_its_stderr() {
        let program = shell("echo why >&2", MINUTE);

        assert!(program.line().unwrap_err().contains("why"));
    }

    const MINUTE: Duration = Duration::from_secs(60);
}
