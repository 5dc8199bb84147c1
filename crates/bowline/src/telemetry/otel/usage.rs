//! [`UsageTotals`], the usage of all servers that share a telemetry, and the instruments that observe it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use super::Shared;
use crate::limits::{Account, Limit, Usage};
use crate::telemetry::names::bowline;

/// The accounts of servers, weakly, and what was refused by those that are gone.
#[derive(Default)]
pub(super) struct UsageTotals {
    watched: Vec<Watched>,
    /// The refusals of accounts that no longer exist: a counter must not decrease.
    refused_before: [u64; Limit::ALL.len()],
}

struct Watched {
    account: Weak<Account>,
    /// The refusals that were seen last.
    refused: [u64; Limit::ALL.len()],
}

impl UsageTotals {
    pub(super) fn watch(&mut self, account: &Arc<Account>) {
        self.remove_dropped();
        let is_same = |watched: &Watched| watched.account.as_ptr() == Arc::as_ptr(account);
        if !self.watched.iter().any(is_same) {
            self.watched.push(Watched {
                account: Arc::downgrade(account),
                refused: [0; Limit::ALL.len()],
            });
        }
    }

    fn usages(&mut self) -> Vec<Usage> {
        let usages = self.watched.iter_mut().filter_map(|watched| {
            let usage = watched.account.upgrade()?.usage();
            watched.refused = Limit::ALL.map(|limit| usage.refused(limit));
            Some(usage)
        });
        let usages = usages.collect();
        self.remove_dropped();
        usages
    }

    pub(super) fn sum(&mut self, value: impl Fn(&Usage) -> usize) -> i64 {
        let sum: usize = self.usages().iter().map(value).sum();
        i64::try_from(sum).unwrap_or(i64::MAX)
    }

    fn refused(&mut self, limit: usize) -> u64 {
        self.usages();
        let now: u64 = self.watched.iter().map(|it| it.refused[limit]).sum();
        self.refused_before[limit] + now
    }

    fn remove_dropped(&mut self) {
        let before = &mut self.refused_before;
        self.watched.retain(|watched| {
            let is_alive = watched.account.strong_count() > 0;
            if !is_alive {
                let counts = before.iter_mut().zip(watched.refused);
                counts.for_each(|(before, refused)| *before += refused);
            }
            is_alive
        });
    }
}

/// Creates the instruments that are observed when metrics are collected.
pub(super) fn observe(meter: &Meter, shared: &Arc<Shared>) {
    observe_usage(meter, shared);
    let active = [
        (
            bowline::SERVER_ACTIVE_REQUESTS,
            "Requests that a server is answering.",
            0,
        ),
        (
            bowline::CLIENT_ACTIVE_REQUESTS,
            "Requests of clients without an answer yet.",
            1,
        ),
        (
            bowline::SERVER_ACTIVE_TASKS,
            "Tasks that this process runs.",
            2,
        ),
    ];
    for (name, description, which) in active {
        let shared = Arc::downgrade(shared);
        meter
            .i64_observable_up_down_counter(name)
            .with_unit(if which == 2 { "{task}" } else { "{request}" })
            .with_description(description)
            .with_callback(move |observer| {
                if let Some(shared) = shared.upgrade() {
                    let counts = [&shared.handled, &shared.sent, &shared.tasks];
                    observer.observe(counts[which].load(Ordering::Relaxed), &[]);
                }
            })
            .build();
    }
}

fn observe_usage(meter: &Meter, shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    meter
        .i64_observable_up_down_counter(bowline::SERVER_QUEUED)
        .with_unit("By")
        .with_description("Bytes that a server holds for its peers.")
        .with_callback(move |observer| {
            let Some(shared) = weak.upgrade() else { return };
            let mut usage = shared.usage.lock();
            for (queue, bytes) in [
                ("request", usage.sum(|usage| usage.request_bytes)),
                ("output", usage.sum(|usage| usage.output_bytes)),
                ("event", usage.sum(|usage| usage.event_bytes)),
                ("kept", usage.sum(|usage| usage.kept_bytes)),
            ] {
                observer.observe(bytes, &[KeyValue::new(bowline::QUEUE, queue)]);
            }
        })
        .build();
    let weak = Arc::downgrade(shared);
    meter
        .i64_observable_up_down_counter(bowline::SERVER_CONNECTIONS)
        .with_unit("{connection}")
        .with_description("HTTP connections.")
        .with_callback(move |observer| {
            if let Some(shared) = weak.upgrade() {
                observer.observe(shared.usage.lock().sum(|usage| usage.connections), &[]);
            }
        })
        .build();
    let weak = Arc::downgrade(shared);
    meter
        .u64_observable_counter(bowline::SERVER_LIMIT_REACHED)
        .with_unit("{refusal}")
        .with_description("Refusals, dropped messages and closed connections because of a limit.")
        .with_callback(move |observer| {
            let Some(shared) = weak.upgrade() else { return };
            let mut usage = shared.usage.lock();
            for (index, limit) in Limit::ALL.into_iter().enumerate() {
                let attribute = KeyValue::new(bowline::LIMIT, limit.name());
                observer.observe(usage.refused(index), &[attribute]);
            }
        })
        .build();
}
