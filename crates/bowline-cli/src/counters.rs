//! Counts how the calls of the fixture's tool `slow` ended.

use std::time::Duration;

use bowline::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::clock;

/// The counters of the handlers of `slow`. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counters(watch::Sender<SlowCallCounts>);

/// The number of handlers of `slow` in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SlowCallCounts {
    /// How many have started.
    pub started: u64,
    /// How many have returned.
    pub finished: u64,
    /// How many were dropped before they returned.
    pub cancelled: u64,
    /// How many are running.
    pub active: u64,
    /// When the latest was dropped, in nanoseconds of a clock that all processes of the machine share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<u64>,
}

impl Counters {
    /// Returns the current counts.
    #[must_use]
    pub fn counts(&self) -> SlowCallCounts {
        *self.0.borrow()
    }

    /// Returns a receiver that is notified of every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<SlowCallCounts> {
        self.0.subscribe()
    }

    /// Replaces the counts by those of another process.
    pub fn set(&self, counts: SlowCallCounts) {
        self.0.send_replace(counts);
    }

    /// Resets the counts, except for running handlers.
    pub fn reset(&self) {
        self.0.send_modify(|counts| {
            let active = counts.active;
            *counts = SlowCallCounts {
                started: active,
                active,
                ..SlowCallCounts::default()
            };
        });
    }

    /// Counts a started handler. It counts as cancelled if the guard is dropped before [`SlowCallGuard::finish`].
    pub(crate) fn begin(&self) -> SlowCallGuard {
        self.0.send_modify(|counts| {
            counts.started += 1;
            counts.active += 1;
        });
        SlowCallGuard(Some(self.clone()))
    }
}

impl SlowCallCounts {
    /// Returns when the latest handler was dropped, by [`clock::now`].
    #[must_use]
    pub fn dropped_at(&self) -> Option<Duration> {
        self.cancelled_at.map(Duration::from_nanos)
    }
}

/// A guard for a running handler.
#[derive(Debug)]
pub(crate) struct SlowCallGuard(Option<Counters>);

impl SlowCallGuard {
    pub(crate) fn finish(mut self) {
        if let Some(counters) = self.0.take() {
            counters.0.send_modify(|counts| {
                counts.finished += 1;
                counts.active -= 1;
            });
        }
    }
}

impl Drop for SlowCallGuard {
    fn drop(&mut self) {
        let Some(counters) = self.0.take() else {
            return;
        };
        // Read first: the code below would add to the measured latency.
        let now = clock::now();
        counters.0.send_modify(|counts| {
            counts.cancelled += 1;
            counts.active -= 1;
            counts.cancelled_at = u64::try_from(now.as_nanos()).ok();
        });
    }
}
