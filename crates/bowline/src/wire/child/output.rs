//! [`ChildOutput`], what a child printed that is not a message: the first and last lines, for errors and the log.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bowline_core::OutputLimit;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use super::command::OnStderr;
use crate::callback::catch_panic;
use crate::sync::Mutex;

/// The program of a child process, and the lines that it printed, in bounded memory.
///
/// `Display` prints the lines, with control characters escaped, or that there are none.
#[derive(Debug, Default)]
pub(super) struct ChildOutput {
    program: String,
    stdout: Mutex<LineExcerpt>,
    stderr: Mutex<LineExcerpt>,
}

impl ChildOutput {
    pub(super) fn new(program: &str) -> Self {
        Self {
            program: escaped(program),
            ..Self::default()
        }
    }

    /// The name of the program, without control characters.
    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// Keeps a line of stdout that is not a message. Returns it with control characters escaped.
    pub(super) fn record_stdout(&self, line: &[u8]) -> String {
        // Escaping never shortens, so the rest of a long line is not looked at.
        let line = &line[..line.len().min(MAX_LINE)];
        let line = escaped(String::from_utf8_lossy(line).trim_end());
        self.stdout.lock().push(&line);
        line
    }

    /// Reads `stderr` to its end, line by line.
    pub(super) async fn read_stderr(
        self: Arc<Self>,
        mut stderr: impl AsyncRead + Unpin,
        on_line: Option<OnStderr>,
        limit: OutputLimit,
    ) {
        let mut chunk = vec![0; MAX_LINE];
        let mut line = Vec::new();
        let mut sink = StderrSink::new(on_line, limit);
        loop {
            let reports_at = sink.reports_at();
            let read = tokio::select! {
                biased; // text that has arrived comes before the report, which the end of the text may make unnecessary
                read = stderr.read(&mut chunk) => read,
                () = sleep_until(reports_at) => {
                    sink.report_dropped(self.program());
                    continue;
                }
            };
            let Ok(count @ 1..) = read else {
                break;
            };
            for byte in &chunk[..count] {
                if *byte != b'\n' {
                    line.push(*byte);
                }
                if *byte == b'\n' || line.len() == MAX_LINE {
                    self.handle_stderr(&std::mem::take(&mut line), &mut sink);
                }
            }
        }
        if !line.is_empty() {
            self.handle_stderr(&line, &mut sink);
        }
        sink.report_rest(self.program());
    }

    fn handle_stderr(&self, line: &[u8], sink: &mut StderrSink) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches('\r');
        sink.report_dropped(self.program());
        sink.pass_on(line);
        // Also of what is dropped: the last lines of a flood may be those that explain the exit.
        self.stderr.lock().push(&escaped(line));
    }
}

impl fmt::Display for ChildOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stdout, stderr) = (
            self.stdout.lock().to_string(),
            self.stderr.lock().to_string(),
        );
        match (&*stdout, &*stderr) {
            ("", "") => f.write_str("it printed nothing"),
            ("", stderr) => write!(f, "it printed to stderr:\n{stderr}"),
            (stdout, "") => write!(f, "it printed to stdout:\n{stdout}"),
            (stdout, stderr) => write!(
                f,
                "it printed to stdout:\n{stdout}\nand to stderr:\n{stderr}"
            ),
        }
    }
}

/// The callback or the log that gets the lines of stderr, of a limited length per second.
struct StderrSink {
    on_line: Option<OnStderr>,
    limit: OutputLimit,
    started: Instant,
}

impl StderrSink {
    fn new(on_line: Option<OnStderr>, limit: OutputLimit) -> Self {
        Self {
            on_line,
            limit,
            started: Instant::now(),
        }
    }

    /// Passes on what the limit admits of a line.
    fn pass_on(&mut self, line: &str) {
        let length = line.len() + 1; // with the line feed, which an empty line has as well
        match self.limit.admit(length, self.started.elapsed()) {
            0 => {}
            admitted => self.write(&line[..line.floor_char_boundary(admitted)]),
        }
    }

    fn reports_at(&self) -> Option<Instant> {
        let at = self.limit.reports_at()?;
        Some(self.started + at)
    }

    /// Says how much was dropped, if there is room again.
    fn report_dropped(&mut self, program: &str) {
        if let Some(bytes) = self.limit.take_dropped(self.started.elapsed()) {
            self.write(&dropped_text(bytes, program));
        }
    }

    /// Says how much was dropped at the end.
    fn report_rest(&mut self, program: &str) {
        if let Some(bytes) = self.limit.take_all_dropped() {
            self.write(&dropped_text(bytes, program));
        }
    }

    fn write(&self, line: &str) {
        match &self.on_line {
            // A panic must not end the task that reads: the pipe would close, and the child's next write to stderr would
            // fail.
            Some(on_line) => catch_panic("a child's stderr", || on_line(line)),
            None => tracing::debug!(target: "bowline::stderr", "{line}"),
        }
    }
}

fn dropped_text(bytes: u64, program: &str) -> String {
    format!("… {bytes} bytes of stderr of `{program}` dropped")
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The first lines, which often have the error, and the last ones, which have it in a stack trace.
#[derive(Debug, Default)]
struct LineExcerpt {
    first: Vec<String>,
    omitted: usize,
    last: VecDeque<String>,
}

impl LineExcerpt {
    fn push(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let line = line[..line.floor_char_boundary(MAX_KEPT_LINE)].to_owned();
        if self.first.len() < MAX_FIRST {
            return self.first.push(line);
        }
        if self.last.len() == MAX_LAST {
            self.last.pop_front();
            self.omitted += 1;
        }
        self.last.push_back(line);
    }
}

impl fmt::Display for LineExcerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for line in &self.first {
            write!(f, "{separator}  {line}")?;
            separator = "\n";
        }
        if self.omitted > 0 {
            write!(f, "\n  … ({} lines omitted)", self.omitted)?;
        }
        for line in &self.last {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

/// Escapes control characters, which could change what a terminal shows.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    escaped
}

/// The maximum bytes of a line; longer lines are split.
const MAX_LINE: usize = 8 * 1024;
/// The kept bytes per line and number of lines: 8 KiB in total for each stream.
const MAX_KEPT_LINE: usize = 512;
const MAX_FIRST: usize = 8;
const MAX_LAST: usize = 8;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Reads `stderr`; returns the lines that the callback received, and the kept ones.
    async fn read(stderr: &[u8]) -> (Vec<String>, String) {
        let output = Arc::new(ChildOutput::new("server"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let on_line: OnStderr = Arc::new(move |line| sink.lock().push(line.to_owned()));

        output
            .clone()
            .read_stderr(stderr, Some(on_line), OutputLimit::default())
            .await;

        let kept = output.stderr.lock().to_string();
        (lines.lock().clone(), kept)
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
    async fn only_the_first_and_the_last_lines_are_kept() {
        let stderr: String = (0..1000).map(|number| format!("{number}\n")).collect();

        let (_, kept) = read(stderr.as_bytes()).await;

        assert_eq!(kept.lines().count(), MAX_FIRST + 1 + MAX_LAST);
        assert!(kept.starts_with("  0\n  1\n") && kept.ends_with("\n  998\n  999"));
        assert!(kept.contains("\n  7\n  … (984 lines omitted)\n  992\n"));
    }

    #[tokio::test]
    async fn control_characters_are_escaped_in_kept_lines_only() {
        let (lines, kept) = read(b"\x1b[31mred\x07").await;

        assert_eq!(lines, ["\u{1b}[31mred\u{7}"]);
        assert_eq!(kept, r"  \u{1b}[31mred\u{7}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_limited_and_what_is_dropped_is_counted() {
        let (mut child, stderr) = tokio::io::duplex(1 << 20);
        let output = Arc::new(ChildOutput::new("server"));
        let (lines, mut received) = tokio::sync::mpsc::unbounded_channel();
        let on_line: OnStderr = Arc::new(move |line| drop(lines.send(line.to_owned())));
        let reading = tokio::spawn(output.clone().read_stderr(
            stderr,
            Some(on_line),
            OutputLimit::default(),
        ));

        let flood = "0123456789abcde\n".repeat(10_000);
        child.write_all(flood.as_bytes()).await.unwrap();
        for _ in 0..4096 {
            assert_eq!(received.recv().await.unwrap(), "0123456789abcde");
        }
        // Without another line, when there is room again.
        let report = received.recv().await.unwrap();
        assert_eq!(report, "… 94464 bytes of stderr of `server` dropped");

        child.write_all(b"more\n").await.unwrap();
        assert_eq!(received.recv().await.unwrap(), "more");
        child.write_all(flood.as_bytes()).await.unwrap();
        child.write_all(b"last").await.unwrap();
        drop(child);
        reading.await.unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| received.try_recv().ok()).collect();
        assert!(rest.len() <= 4097, "{}", rest.len());
        assert!(
            rest.last()
                .unwrap()
                .contains("bytes of stderr of `server` dropped")
        );
        assert!(output.to_string().ends_with("\n  last"), "{output}");
    }

    #[test]
    fn a_long_line_of_stdout_is_kept_in_part() {
        let output = ChildOutput::new("server");

        output.record_stdout(&vec![b'\x1b'; 1 << 20]);

        assert!(output.to_string().len() < MAX_KEPT_LINE + 100);
    }

    #[test]
    fn both_streams_are_printed_and_silence_is_named() {
        let output = ChildOutput::new("ser\nver");
        assert_eq!(output.to_string(), "it printed nothing");

        output.record_stdout(b"Usage: server\r");
        output.handle_stderr(
            b"no arguments",
            &mut StderrSink::new(None, OutputLimit::default()),
        );

        assert_eq!(output.program(), r"ser\nver");
        assert_eq!(
            output.to_string(),
            "it printed to stdout:\n  Usage: server\nand to stderr:\n  no arguments"
        );
    }
}
