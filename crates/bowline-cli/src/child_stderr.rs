//! [`StderrWriter`]: passes the stderr of child processes on.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// Writes lines to stderr on a thread of its own. Clones share it.
///
/// A host may not read the stderr of this process. A write would then block, and with it every call on the same thread
/// of the runtime. Lines that come faster than they are read are lost.
#[derive(Clone, Debug)]
pub(crate) struct StderrWriter {
    lines: SyncSender<StderrItem>,
}

#[derive(Debug)]
enum StderrItem {
    Line(String),
    /// Answered when every line before it is written.
    Flush(SyncSender<()>),
}

impl StderrWriter {
    pub(crate) fn start() -> Self {
        let (lines, received) = sync_channel(MAX_QUEUED);
        // Ends with the last sender.
        std::thread::spawn(move || {
            for item in received {
                match item {
                    // Fails if stderr is closed; there is no other place to write to.
                    StderrItem::Line(line) => drop(writeln!(std::io::stderr(), "{line}")),
                    StderrItem::Flush(done) => drop(done.try_send(())),
                }
            }
        });
        Self { lines }
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
        let _ = self.lines.try_send(StderrItem::Line(line.to_owned()));
    }

    /// Waits a moment until all lines are written.
    pub(crate) fn flush(&self) {
        let (done, flushed) = sync_channel(1);
        if self.lines.try_send(StderrItem::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(FLUSH_TIME);
        }
    }
}

static SHARED: OnceLock<StderrWriter> = OnceLock::new();

const MAX_QUEUED: usize = 1024;
const FLUSH_TIME: Duration = Duration::from_millis(500);
