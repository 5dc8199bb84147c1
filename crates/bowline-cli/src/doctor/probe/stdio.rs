//! A server as a child process: what it writes, when, and how it ends.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::accept_messages;
use super::channel::{Channel, ChannelFailure, ChannelState};
use crate::target::CommandTarget;

/// A running server.
#[derive(Debug)]
pub(crate) struct StdioProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Line>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    /// Ends with stderr.
    stderr_reader: Option<JoinHandle<()>>,
    started: Instant,
    /// Lines of stdout that are not messages.
    pub(crate) noise: Vec<String>,
    /// How many there were.
    pub(crate) noise_count: usize,
    /// How long the first message took.
    pub(crate) first_message_after: Option<Duration>,
    state: ChannelState,
}

/// A line of stdout.
#[derive(Debug)]
enum Line {
    /// With the time at which it was read.
    Message(Instant, Value),
    Noise(String),
    /// Longer than the limit.
    TooLong,
}

impl StdioProcess {
    /// Starts the server.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub(crate) fn start(target: &CommandTarget) -> std::io::Result<Self> {
        let mut command = tokio::process::Command::from(target.command());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.kill_on_drop(true);
        let started = Instant::now();
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let (send, lines) = mpsc::channel(MAX_QUEUED_LINES);
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read_messages(stdout, send));
        }
        let stderr: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let stderr_reader = child.stderr.take().map(|output| {
            let reading = read_stderr(output, stderr.clone());
            tokio::spawn(reading)
        });
        Ok(Self {
            child,
            stdin,
            lines,
            stderr,
            stderr_reader,
            started,
            noise: Vec::new(),
            noise_count: 0,
            first_message_after: None,
            state: ChannelState::default(),
        })
    }

    /// Returns the last lines of stderr.
    pub(crate) fn stderr_tail(&self) -> Vec<String> {
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        stderr.iter().cloned().collect()
    }

    /// Describes the exit of a process that has closed its stdout.
    async fn exit_failure(&mut self) -> ChannelFailure {
        self.stdin = None;
        let how = match timeout(EXIT_TIME, self.child.wait()).await {
            Ok(Ok(status)) => describe_exit(status),
            _ => "it closed stdout and runs on".to_owned(),
        };
        // What it printed last may still be in the pipe, which a process that it started may keep open.
        if let Some(reader) = self.stderr_reader.take() {
            let _ = timeout(EXIT_TIME, reader).await;
        }
        ChannelFailure::Ended(how)
    }

    /// Closes stdin, and returns whether the process has exited in this time.
    pub(crate) async fn exits_at_end_of_input(&mut self, limit: Duration) -> bool {
        self.stdin = None;
        // A process that waits for its stdout to be read could not exit.
        let exiting = async {
            while self.lines.recv().await.is_some() {}
            self.child.wait().await
        };
        let has_exited = timeout(limit, exiting).await.is_ok();
        self.kill();
        has_exited
    }

    /// Kills the process, and those that it started.
    fn kill(&mut self) {
        #[cfg(unix)]
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok())
            && let Some(group) = rustix::process::Pid::from_raw(pid)
        {
            // Fails if the group has ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.start_kill();
    }
}

impl Channel for StdioProcess {
    async fn write(&mut self, message: &Value, limit: Duration) -> Result<(), ChannelFailure> {
        let Some(stdin) = &mut self.stdin else {
            return Err(self.exit_failure().await);
        };
        let line = format!("{message}\n");
        let writing = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.flush().await
        };
        match timeout(limit, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.exit_failure().await),
            Err(_) => Err(ChannelFailure::TimedOut(limit)),
        }
    }

    /// Counts what is not a message.
    async fn next_message(
        &mut self,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(Instant, Value), ChannelFailure> {
        loop {
            let line = tokio::time::timeout_at(deadline, self.lines.recv()).await;
            match line {
                Ok(Some(Line::Message(at, message))) => {
                    let elapsed = at.saturating_duration_since(self.started);
                    self.first_message_after.get_or_insert(elapsed);
                    return Ok((at, message));
                }
                Ok(Some(Line::Noise(text))) => {
                    self.noise_count += 1;
                    if self.noise.len() < MAX_NOISE {
                        self.noise.push(text);
                    }
                }
                Ok(Some(Line::TooLong)) => {
                    let why = format!("it wrote a line of more than {MAX_LINE} bytes");
                    return Err(ChannelFailure::Ended(why));
                }
                Ok(None) => return Err(self.exit_failure().await),
                Err(_) => return Err(ChannelFailure::TimedOut(limit)),
            }
        }
    }

    fn state(&mut self) -> &mut ChannelState {
        &mut self.state
    }
}

impl Drop for StdioProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn describe_exit(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("it exited with code {code}"),
        None => format!("it was ended by {status}"),
    }
}

async fn read_messages(stdout: impl AsyncRead + Unpin, lines: mpsc::Sender<Line>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let line = match read_line(&mut reader, MAX_LINE).await {
            None => return,
            Some(Err(())) => {
                drop(lines.send(Line::TooLong).await);
                return;
            }
            Some(Ok(line)) => line,
        };
        let mut messages = accept_messages(&line);
        let text = String::from_utf8_lossy(&line);
        if messages.is_empty() && !text.trim().is_empty() {
            let text: String = text.trim_end().chars().take(MAX_QUOTED).collect();
            if lines.send(Line::Noise(text)).await.is_err() {
                return;
            }
        }
        for message in messages.drain(..) {
            let message = Line::Message(Instant::now(), message);
            if lines.send(message).await.is_err() {
                return;
            }
        }
    }
}

async fn read_stderr(stderr: impl AsyncRead + Unpin, tail: Arc<Mutex<VecDeque<String>>>) {
    let mut reader = BufReader::new(stderr);
    while let Some(line) = read_line(&mut reader, MAX_LINE).await {
        let line = line.unwrap_or_default();
        let text = String::from_utf8_lossy(&line);
        let text: String = text.trim_end().chars().take(MAX_QUOTED).collect();
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == MAX_STDERR_LINES {
            tail.pop_front();
        }
        tail.push_back(text);
    }
}

/// Reads a line; `None` at the end, an error if it exceeds the limit.
async fn read_line(
    reader: &mut BufReader<impl AsyncRead + Unpin>,
    limit: usize,
) -> Option<Result<Vec<u8>, ()>> {
    let mut line = Vec::new();
    let read = reader.take(limit as u64).read_until(b'\n', &mut line).await;
    match read {
        Ok(0) | Err(_) => None,
        Ok(length) if length == limit && !line.ends_with(b"\n") => Some(Err(())),
        Ok(_) => Some(Ok(line)),
    }
}

const MAX_LINE: usize = 16 << 20;
/// Few, because each may be as long as the limit.
const MAX_QUEUED_LINES: usize = 2;
const MAX_NOISE: usize = 5;
const MAX_STDERR_LINES: usize = 10;
const MAX_QUOTED: usize = 200;
/// A process that has closed its stdout exits soon, or not at all.
const EXIT_TIME: Duration = Duration::from_secs(1);
