//! [`HandlerCounter`], which counts how handlers end.

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Counts the handlers that start, finish, and are dropped before they finish. Clones share the counts.
///
/// # Examples
///
/// ```
/// use bowline::testing::HandlerCounter;
/// use bowline::{Client, Server, Tool};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let handlers = HandlerCounter::default();
/// let counter = handlers.clone();
/// let slow = Tool::new("slow", move || {
///     let counter = counter.clone();
///     async move { counter.run(std::future::pending::<String>()).await }
/// });
/// let client = Client::in_process(&Server::new("sleeper", "1.0.0").tool(slow)).await?;
///
/// tokio::select! {
///     reply = client.call_tool("slow", ()) => panic!("{reply:?}"),
///     _ = handlers.wait_for(|counts| counts.started == 1) => {}
/// }
///
/// assert_eq!(handlers.wait_for(|counts| counts.dropped == 1).await.finished, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct HandlerCounter {
    counts: watch::Sender<HandlerCounts>,
    on_change: Option<fn(HandlerCounts)>,
}

/// How many handlers started, finished, and were dropped before they finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HandlerCounts {
    /// How many have started.
    pub started: usize,
    /// How many have returned.
    pub finished: usize,
    /// How many were dropped before they returned, or panicked.
    pub dropped: usize,
}

impl HandlerCounter {
    /// Creates a counter that also passes the counts to `on_change` after each change, to report them to another
    /// process.
    #[must_use]
    pub fn with_callback(on_change: fn(HandlerCounts)) -> Self {
        let (counts, on_change) = (watch::Sender::default(), Some(on_change));
        Self { counts, on_change }
    }

    /// Runs and counts a handler. It has started with the first poll.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handler and counts it as dropped.
    pub async fn run<T>(&self, handler: impl Future<Output = T>) -> T {
        self.change(|counts| counts.started += 1);
        let mut guard = HandlerGuard {
            counter: self,
            is_finished: false,
        };
        let output = handler.await;
        guard.is_finished = true;
        output
    }

    /// Returns the current counts.
    #[must_use]
    pub fn counts(&self) -> HandlerCounts {
        *self.counts.borrow()
    }

    /// Replaces the counts, such as by those of another process.
    pub fn set(&self, counts: HandlerCounts) {
        self.change(|old| *old = counts);
    }

    /// Waits until the counts satisfy a condition, and returns them.
    ///
    /// # Cancel safety
    ///
    /// Safe: waiting changes nothing.
    pub async fn wait_for(
        &self,
        mut condition: impl FnMut(&HandlerCounts) -> bool,
    ) -> HandlerCounts {
        let mut counts = self.counts.subscribe();
        match counts.wait_for(|counts| condition(counts)).await {
            Ok(counts) => *counts,
            // Unreachable: `self` holds the sender.
            Err(_) => self.counts(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut HandlerCounts)) {
        let mut changed = HandlerCounts::default();
        self.counts.send_modify(|counts| {
            change(counts);
            changed = *counts;
        });
        // Called after unlocking: a callback is foreign code.
        if let Some(on_change) = self.on_change {
            on_change(changed);
        }
    }
}

/// Counts the end of a handler.
struct HandlerGuard<'a> {
    counter: &'a HandlerCounter,
    is_finished: bool,
}

impl Drop for HandlerGuard<'_> {
    fn drop(&mut self) {
        let is_finished = self.is_finished;
        self.counter.change(|counts| match is_finished {
            true => counts.finished += 1,
            false => counts.dropped += 1,
        });
    }
}
