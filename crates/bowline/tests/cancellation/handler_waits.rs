//! Waits for the handlers of a [`HandlerMonitor`] on a paused clock.

use std::time::Duration;

use bowline::testing::HandlerCounts;

use crate::handler_monitor::HandlerMonitor;

impl HandlerMonitor {
    pub(crate) fn counts(&self) -> HandlerCounts {
        self.counter.counts()
    }

    pub(crate) fn reset(&self) {
        self.counter.set(HandlerCounts::default());
    }

    /// Waits until the counts satisfy `condition`; panics if they never do.
    pub(crate) async fn wait_until(&self, condition: impl Fn(&HandlerCounts) -> bool) {
        let waiting = self.counter.wait_for(condition);
        // The paused clock advances only when every task is idle, so this elapses only if the counts no longer change.
        let waited = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        assert!(waited.is_ok(), "every task is idle at {:?}", self.counts());
    }

    pub(crate) async fn wait_for_started(&self, count: usize) {
        self.wait_until(|counts| counts.started == count).await;
    }

    pub(crate) async fn wait_for_dropped(&self, count: usize) {
        self.wait_until(|counts| counts.dropped == count).await;
    }
}
