//! What became of the calls of the fixture's tool `slow`.

use std::time::Duration;

use bowline::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::clock;

/// Counts the handlers of `slow`. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Counters(watch::Sender<Tally>);

/// How many handlers of `slow` came how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Tally {
    /// How many began.
    pub started: u64,
    /// How many came to their end.
    pub finished: u64,
    /// How many were dropped before it.
    pub cancelled: u64,
    /// How many are at work.
    pub active: u64,
    /// When the latest was dropped, in nanoseconds of a clock that the processes of a machine share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<u64>,
}

impl Counters {
    /// What was counted so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        *self.0.borrow()
    }

    /// Hears of every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Tally> {
        self.0.subscribe()
    }

    /// Takes over what another process counted.
    pub fn set(&self, tally: Tally) {
        self.0.send_replace(tally);
    }

    /// Forgets what ended.
    pub fn reset(&self) {
        self.0.send_modify(|tally| {
            let active = tally.active;
            *tally = Tally {
                started: active,
                active,
                ..Tally::default()
            };
        });
    }

    /// Counts a handler that begins; until [`Working::finish`], dropping what this returns is the cancel.
    pub(crate) fn begin(&self) -> Working {
        self.0.send_modify(|tally| {
            tally.started += 1;
            tally.active += 1;
        });
        Working(Some(self.clone()))
    }
}

impl Tally {
    /// When the latest was dropped, by [`clock::now`].
    #[must_use]
    pub fn dropped_at(&self) -> Option<Duration> {
        self.cancelled_at.map(Duration::from_nanos)
    }
}

/// A handler at work.
#[derive(Debug)]
pub(crate) struct Working(Option<Counters>);

impl Working {
    pub(crate) fn finish(mut self) {
        if let Some(counters) = self.0.take() {
            counters.0.send_modify(|tally| {
                tally.finished += 1;
                tally.active -= 1;
            });
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let Some(counters) = self.0.take() else {
            return;
        };
        // First of all: everything below takes time.
        let now = clock::now();
        counters.0.send_modify(|tally| {
            tally.cancelled += 1;
            tally.active -= 1;
            tally.cancelled_at = u64::try_from(now.as_nanos()).ok();
        });
    }
}
