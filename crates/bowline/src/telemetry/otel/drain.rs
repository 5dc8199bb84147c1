//! [`DrainTotals`], the drains of all servers that share a telemetry, and the instruments that observe them.

use std::sync::{Arc, Weak};

use opentelemetry::metrics::Meter;

use super::Shared;
use crate::shutdown::{DrainPhase, DrainReport, Shutdown, ShutdownShared};
use crate::telemetry::names::bowline;

/// The drains of servers, weakly, and what was refused and cancelled by those that are gone.
#[derive(Default)]
pub(super) struct DrainTotals {
    watched: Vec<Watched>,
    /// The counts of servers that no longer exist: a counter must not decrease.
    before: DrainCounts,
}

struct Watched {
    shutdown: Weak<ShutdownShared>,
    /// The counts that were seen last.
    counts: DrainCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct DrainCounts {
    draining: i64,
    refused: u64,
    cancelled: u64,
}

impl DrainTotals {
    pub(super) fn watch(&mut self, shutdown: &Shutdown) {
        self.update();
        let is_same = |watched: &Watched| watched.shutdown.as_ptr() == Arc::as_ptr(&shutdown.0);
        if !self.watched.iter().any(is_same) {
            self.watched.push(Watched {
                shutdown: Arc::downgrade(&shutdown.0),
                counts: DrainCounts::default(),
            });
        }
    }

    fn totals(&mut self) -> DrainCounts {
        self.update();
        let counts = self.watched.iter().map(|it| it.counts);
        counts.fold(self.before, DrainCounts::plus)
    }

    fn update(&mut self) {
        let before = &mut self.before;
        self.watched.retain_mut(|watched| {
            let Some(shutdown) = watched.shutdown.upgrade() else {
                // A server that is gone does not drain.
                watched.counts.draining = 0;
                *before = before.plus(watched.counts);
                return false;
            };
            watched.counts = DrainCounts::from(Shutdown(shutdown).report());
            true
        });
    }
}

impl DrainCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            draining: self.draining + other.draining,
            refused: self.refused + other.refused,
            cancelled: self.cancelled + other.cancelled,
        }
    }
}

impl From<DrainReport> for DrainCounts {
    fn from(report: DrainReport) -> Self {
        Self {
            draining: i64::from(report.phase != DrainPhase::Serving),
            refused: u64::try_from(report.refused).unwrap_or(u64::MAX),
            cancelled: u64::try_from(report.cancelled).unwrap_or(u64::MAX),
        }
    }
}

/// Creates the instruments that are observed when metrics are collected.
pub(super) fn observe(meter: &Meter, shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    meter
        .i64_observable_up_down_counter(bowline::SERVER_DRAINING)
        .with_unit("{server}")
        .with_description("Servers that drain.")
        .with_callback(move |observer| {
            if let Some(shared) = weak.upgrade() {
                observer.observe(shared.drains.lock().totals().draining, &[]);
            }
        })
        .build();
    let counters = [
        DrainCounter {
            name: bowline::SERVER_DRAIN_REFUSED,
            description: "Requests that were refused because the server drains.",
            value: |counts| counts.refused,
        },
        DrainCounter {
            name: bowline::SERVER_DRAIN_CANCELLED,
            description: "Requests that were cancelled at the end of a drain.",
            value: |counts| counts.cancelled,
        },
    ];
    for counter in counters {
        let DrainCounter {
            name,
            description,
            value,
        } = counter;
        let weak = Arc::downgrade(shared);
        meter
            .u64_observable_counter(name)
            .with_unit("{request}")
            .with_description(description)
            .with_callback(move |observer| {
                if let Some(shared) = weak.upgrade() {
                    observer.observe(value(shared.drains.lock().totals()), &[]);
                }
            })
            .build();
    }
}

struct DrainCounter {
    name: &'static str,
    description: &'static str,
    value: fn(DrainCounts) -> u64,
}
