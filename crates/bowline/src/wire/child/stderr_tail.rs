//! [`StderrTail`], which reads a child's stderr and keeps its last lines for the error of the exit.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::command::OnStderr;
use crate::callback::catch_panic;
use crate::sync::Mutex;

/// The last lines of a child's stderr, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct StderrTail(Mutex<VecDeque<String>>);

impl StderrTail {
    /// Reads `stderr` to its end, line by line.
    pub(super) async fn read(
        self: Arc<Self>,
        mut stderr: impl AsyncRead + Unpin,
        on_line: Option<OnStderr>,
    ) {
        let mut chunk = vec![0; MAX_LINE];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            for byte in &chunk[..count] {
                if *byte != b'\n' {
                    line.push(*byte);
                }
                if *byte == b'\n' || line.len() == MAX_LINE {
                    self.handle_line(&std::mem::take(&mut line), on_line.as_ref());
                }
            }
        }
        if !line.is_empty() {
            self.handle_line(&line, on_line.as_ref());
        }
    }

    fn handle_line(&self, line: &[u8], on_line: Option<&OnStderr>) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches('\r');
        match on_line {
            // A panic must not end this task: the pipe would close, and the child's next write to stderr would fail.
            Some(on_line) => catch_panic("a child's stderr", || on_line(line)),
            None => tracing::debug!(target: "bowline::stderr", "{line}"),
        }
        self.remember(line);
    }

    fn remember(&self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let end = line.floor_char_boundary(MAX_KEPT_LINE);
        let mut lines = self.0.lock();
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line[..end].to_owned());
    }
}

impl fmt::Display for StderrTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.lock();
        for (number, line) in lines.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}  {line}")?;
        }
        Ok(())
    }
}

/// The maximum bytes of a line; longer lines are split.
const MAX_LINE: usize = 8 * 1024;
/// The kept bytes per line and number of lines: 8 KiB in total.
const MAX_KEPT_LINE: usize = 512;
const MAX_LINES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `stderr`; returns the lines that the callback received, and the kept ones.
    async fn read(stderr: &[u8]) -> (Vec<String>, String) {
        let tail = Arc::new(StderrTail::default());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let on_line: OnStderr = Arc::new(move |line| sink.lock().push(line.to_owned()));

        tail.clone().read(stderr, Some(on_line)).await;

        (lines.lock().clone(), tail.to_string())
    }

    #[tokio::test]
    async fn every_line_is_reported_and_the_last_one_needs_no_newline() {
        let (lines, kept) = read(b"one\r\n\ntwo \xff\nthree").await;

        assert_eq!(lines, ["one", "", "two \u{fffd}", "three"]);
        assert_eq!(kept, "  one\n  two \u{fffd}\n  three");
    }

    #[tokio::test]
    async fn a_line_beyond_the_limit_is_split() {
        let (lines, kept) = read(&vec![b'x'; 2 * MAX_LINE + 1]).await;

        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [MAX_LINE, MAX_LINE, 1]);
        assert!(kept.len() < 2 * (MAX_KEPT_LINE + 3) + 4);
    }

    #[tokio::test]
    async fn only_the_last_lines_are_kept() {
        let stderr: String = (0..1000).map(|number| format!("{number}\n")).collect();

        let (_, kept) = read(stderr.as_bytes()).await;

        assert_eq!(kept.lines().count(), MAX_LINES);
        assert!(kept.starts_with("  984\n") && kept.ends_with("\n  999"));
    }
}
