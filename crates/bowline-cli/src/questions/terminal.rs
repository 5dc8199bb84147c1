//! [`Terminal`], where a person answers questions.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use tokio::sync::{Mutex, mpsc};

use crate::status_line::StatusLine;

/// Lines of stdin, and questions on stderr. One question is asked at a time.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Started with the first question.
    lines: Mutex<Option<mpsc::Receiver<String>>>,
    status: StatusLine,
}

impl Terminal {
    /// Returns `None` if stdin is not a terminal.
    pub(crate) fn new(status: StatusLine) -> Option<Self> {
        let lines = Mutex::new(None);
        io::stdin().is_terminal().then_some(Self { lines, status })
    }

    /// Begins a conversation. No other one can begin before it is dropped.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future leaves the queue of conversations.
    pub(crate) async fn converse(&self) -> Conversation<'_> {
        let mut lines = self.lines.lock().await;
        if lines.is_none() {
            *lines = Some(read_lines());
        }
        self.status.pause();
        let status = self.status.clone();
        Conversation { lines, status }
    }
}

/// A conversation with the person at the terminal.
pub(crate) struct Conversation<'a> {
    lines: tokio::sync::MutexGuard<'a, Option<mpsc::Receiver<String>>>,
    status: StatusLine,
}

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        self.status.resume();
    }
}

impl Conversation<'_> {
    /// Prints text for the person. It must be visible already.
    pub(crate) fn say(&self, text: &str) {
        eprintln!("{text}");
    }

    /// Prints a prompt and returns the next line; `None` at the end of stdin.
    ///
    /// # Cancel safety
    ///
    /// Safe: a line is removed from the queue only when it is returned.
    pub(crate) async fn ask(&mut self, prompt: &str) -> Option<String> {
        eprint!("{prompt} ");
        let _ = io::stderr().flush();
        self.lines.as_mut()?.recv().await
    }
}

/// Reads stdin on a thread of its own: a read cannot be cancelled, and the runtime must not wait for it.
fn read_lines() -> mpsc::Receiver<String> {
    let (lines, received) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            // Fails when the command ends.
            if lines.blocking_send(line).is_err() {
                break;
            }
        }
    });
    received
}
