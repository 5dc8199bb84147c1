//! What a child says on stderr: passed on line by line, and the end of it kept for its epitaph.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::command::OnStderr;
use crate::callback::contained;

/// The last lines of a child's stderr, in bounded space.
#[derive(Debug, Default)]
pub(super) struct LastWords(Mutex<VecDeque<String>>);

impl LastWords {
    /// Reads `stderr` to its end.
    pub(super) async fn hear(
        self: Arc<Self>,
        mut stderr: impl AsyncRead + Unpin,
        on_line: Option<OnStderr>,
    ) {
        let mut chunk = vec![0; MOST_IN_LINE];
        let mut line = Vec::new();
        while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
            for byte in &chunk[..count] {
                if *byte != b'\n' {
                    line.push(*byte);
                }
                if *byte == b'\n' || line.len() == MOST_IN_LINE {
                    self.take_in(&std::mem::take(&mut line), on_line.as_ref());
                }
            }
        }
        if !line.is_empty() {
            self.take_in(&line, on_line.as_ref());
        }
    }

    fn take_in(&self, line: &[u8], on_line: Option<&OnStderr>) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches('\r');
        match on_line {
            // A panic of theirs must not end the hearing: the child would die of a broken pipe.
            Some(on_line) => contained("a child's stderr", || on_line(line)),
            None => tracing::debug!(target: "bowline::stderr", "{line}"),
        }
        self.remember(line);
    }

    fn remember(&self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let end = line.floor_char_boundary(MOST_KEPT_OF_LINE);
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MOST_LINES {
            lines.pop_front();
        }
        lines.push_back(line[..end].to_owned());
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, line) in lines.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}  {line}")?;
        }
        Ok(())
    }
}

/// What is handed on as one line, at most.
const MOST_IN_LINE: usize = 8 * 1024;
/// What is kept of a line, and how many lines are: 8 KiB in all.
const MOST_KEPT_OF_LINE: usize = 512;
const MOST_LINES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Hears `stderr` through; returns the lines that were handed on and those that were kept.
    async fn hear(stderr: &[u8]) -> (Vec<String>, String) {
        let words = Arc::new(LastWords::default());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let on_line: OnStderr = Arc::new(move |line| sink.lock().unwrap().push(line.to_owned()));

        words.clone().hear(stderr, Some(on_line)).await;

        (lines.lock().unwrap().clone(), words.to_string())
    }

    #[tokio::test]
    async fn every_line_is_handed_on_and_the_last_need_not_be_ended() {
        let (lines, kept) = hear(b"one\r\n\ntwo \xff\nthree").await;

        assert_eq!(lines, ["one", "", "two \u{fffd}", "three"]);
        assert_eq!(kept, "  one\n  two \u{fffd}\n  three");
    }

    #[tokio::test]
    async fn a_line_without_end_comes_in_pieces() {
        let (lines, kept) = hear(&vec![b'x'; 2 * MOST_IN_LINE + 1]).await;

        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [MOST_IN_LINE, MOST_IN_LINE, 1]);
        assert!(kept.len() < 2 * (MOST_KEPT_OF_LINE + 3) + 4);
    }

    #[tokio::test]
    async fn only_the_last_lines_are_kept() {
        let stderr: String = (0..1000).map(|number| format!("{number}\n")).collect();

        let (_, kept) = hear(stderr.as_bytes()).await;

        assert_eq!(kept.lines().count(), MOST_LINES);
        assert!(kept.starts_with("  984\n") && kept.ends_with("\n  999"));
    }
}
