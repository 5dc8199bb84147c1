//! [`StderrWriter`]: passes the stderr of child processes on.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Writes lines to stderr on a thread of its own. Clones share it.
///
/// A host may not read the stderr of this process. A write would then block, and with it every call on the same thread
/// of the runtime. Lines that come faster than they are read are dropped and counted.
#[derive(Clone, Debug)]
pub(crate) struct StderrWriter {
    lines: SyncSender<StderrItem>,
    unfinished: Arc<UnfinishedLine>,
    /// The bytes that were dropped and not reported.
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum StderrItem {
    Line(String),
    /// Answered when every line before it is written.
    Flush(SyncSender<()>),
}

impl StderrWriter {
    pub(crate) fn start() -> Self {
        Self::start_with(io::stderr(), LINE_TIME)
    }

    fn start_with(mut stderr: impl Write + Send + 'static, line_time: Duration) -> Self {
        let (lines, received) = sync_channel(MAX_QUEUED);
        let unfinished = Arc::new(UnfinishedLine::default());
        let other = unfinished.clone();
        let dropped = Arc::new(AtomicU64::new(0));
        let unreported = dropped.clone();
        // Ends with the last sender.
        std::thread::spawn(move || {
            for item in received {
                match item {
                    // One write, so that nothing of another process comes between its parts. Fails if stderr is closed;
                    // there is no other place to write to.
                    StderrItem::Line(line) => {
                        let mut line = format!("{line}\n");
                        match unreported.swap(0, Ordering::Relaxed) {
                            0 => {}
                            bytes => line.push_str(&format!(
                                "… {bytes} bytes of stderr dropped, which is read too slowly\n"
                            )),
                        }
                        drop(other.write_after_it(line_time, || stderr.write_all(line.as_bytes())));
                    }
                    StderrItem::Flush(done) => drop(done.try_send(())),
                }
            }
        });
        Self {
            lines,
            unfinished,
            dropped,
        }
    }

    /// Returns a writer for the output of a child, which is passed on as it comes. Lines of `self` are written between
    /// its lines.
    pub(crate) fn child_output<W>(&self, to: W) -> ChildOutput<W> {
        ChildOutput {
            to,
            unfinished: self.unfinished.clone(),
        }
    }

    /// Returns the writer of commands that have only one.
    pub(crate) fn shared() -> Self {
        SHARED.get_or_init(Self::start).clone()
    }

    /// Waits a moment until all lines of the [shared](Self::shared) writer are written.
    pub(crate) fn flush_shared() {
        SHARED.get().into_iter().for_each(Self::flush);
    }

    pub(crate) fn write(&self, line: &str) {
        let sent = self.lines.try_send(StderrItem::Line(line.to_owned()));
        if sent.is_err() {
            let bytes = line.len() as u64 + 1;
            self.dropped.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Waits a moment until all lines are written.
    pub(crate) fn flush(&self) {
        self.flush_within(FLUSH_TIME);
    }

    fn flush_within(&self, time: Duration) {
        let (done, flushed) = sync_channel(1);
        if self.lines.try_send(StderrItem::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(time);
        }
    }
}

/// The output of a child, in any pieces.
#[derive(Debug)]
pub(crate) struct ChildOutput<W> {
    to: W,
    unfinished: Arc<UnfinishedLine>,
}

impl<W: Write> Write for ChildOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unfinished
            .write_part(bytes, |bytes| self.to.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(unix)]
impl<W: std::os::fd::AsFd> std::os::fd::AsFd for ChildOutput<W> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.to.as_fd()
    }
}

/// Whether the output of a child has stopped within a line. Its lock is held while anything is written.
#[derive(Debug, Default)]
struct UnfinishedLine {
    is_unfinished: Mutex<bool>,
    changed: Condvar,
}

impl UnfinishedLine {
    fn write_part(
        &self,
        bytes: &[u8],
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut is_unfinished = self
            .is_unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = write(bytes)?;
        if let Some(last) = bytes[..count].last() {
            *is_unfinished = *last != b'\n';
            self.changed.notify_all();
        }
        Ok(count)
    }

    /// Waits for the end of the line, but not for long: it may be a prompt.
    fn write_after_it<T>(&self, line_time: Duration, write: impl FnOnce() -> T) -> T {
        let is_unfinished = self
            .is_unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(is_unfinished, line_time, |it| *it);
        let _lock = waited.unwrap_or_else(PoisonError::into_inner);
        write()
    }
}

static SHARED: OnceLock<StderrWriter> = OnceLock::new();

const MAX_QUEUED: usize = 1024;
const FLUSH_TIME: Duration = Duration::from_millis(500);
/// How long a line waits for the end of a line of the child.
const LINE_TIME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that two writers share.
    #[derive(Clone, Debug, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_waits_for_the_end_of_a_line_of_the_child() {
        let written = Written::default();
        let writer = StderrWriter::start_with(written.clone(), Duration::from_secs(60));
        let mut child = writer.child_output(written.clone());
        child.write_all(b"coun").unwrap();
        writer.write("own");

        child.write_all(b"ts\n").unwrap();
        writer.flush_within(Duration::from_secs(60)); // on a busy machine

        assert_eq!(written.text(), "counts\nown\n");
    }

    /// A reader that reads nothing until the sender is dropped.
    struct Blocked(std::sync::mpsc::Receiver<()>, Written);

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_are_not_read_are_counted() {
        let (unblock, blocked) = std::sync::mpsc::channel();
        let written = Written::default();
        let to = Blocked(blocked, written.clone());
        let writer = StderrWriter::start_with(to, Duration::from_millis(1));
        for _ in 0..10 * MAX_QUEUED {
            writer.write("line");
        }

        drop(unblock);
        let started = std::time::Instant::now();
        let (mut passed, mut dropped) = (0, 0);
        while passed + dropped < 50 * MAX_QUEUED && started.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
            let text = written.text();
            let is_line = |line: &&str| *line == "line";
            passed = 5 * text.lines().filter(is_line).count();
            let reports = text.lines().filter_map(|line| line.strip_prefix("… "));
            let counts = reports.map(|it| it.split(' ').next().unwrap().parse::<usize>().unwrap());
            dropped = counts.sum();
        }

        assert_eq!(passed + dropped, 50 * MAX_QUEUED);
        assert!(passed <= 5 * (MAX_QUEUED + 1), "{passed}");
    }

    #[test]
    fn a_line_is_written_beside_a_prompt() {
        let written = Written::default();
        let writer = StderrWriter::start_with(written.clone(), Duration::from_millis(1));
        let mut child = writer.child_output(written.clone());
        child.write_all(b"Your name? ").unwrap();

        writer.write("own");
        writer.flush_within(Duration::from_secs(60)); // on a busy machine

        assert_eq!(written.text(), "Your name? own\n");
    }
}
