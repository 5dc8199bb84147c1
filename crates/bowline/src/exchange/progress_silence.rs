//! What heartbeats need of a [`Context`]: how long its progress was silent, and a report that says nothing new.

use std::time::Duration;

use super::Context;

/// How long the progress of a request was silent.
#[derive(Clone, Copy)]
pub(crate) struct ProgressSilence {
    /// The time since the caller was sent a report, or since the watch began.
    pub(crate) since_sent: Duration,
    /// The time since the handler made a report, or since the watch began. Heartbeats do not count.
    pub(crate) since_reported: Duration,
}

impl Context {
    /// Starts to watch the progress, typed and raw. From then on a raw report is sent only if it is greater than all
    /// previous ones.
    pub(crate) fn watch_progress(&self) {
        self.reports().watch();
    }

    /// Returns how long the progress was silent, if it is watched.
    pub(crate) fn progress_silence(&self) -> ProgressSilence {
        let (since_sent, since_reported) = self.reports().silence();
        ProgressSilence {
            since_sent,
            since_reported,
        }
    }

    /// Sends a report that is above the last one by the smallest step.
    pub(crate) fn send_progress_heartbeat(&self) {
        let reports = self.reports();
        reports.send_heartbeat(|report| self.send_report(report));
    }
}
