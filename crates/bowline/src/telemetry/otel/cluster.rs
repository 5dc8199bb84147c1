//! [`ClusterTotals`], the messages of all clusters that share a telemetry, and the instruments that observe them.

use std::sync::Arc;

use opentelemetry::metrics::Meter;

use super::Shared;
use crate::cluster::{Cluster, ClusterCounts, WeakCluster};
use crate::telemetry::names::bowline;

/// The clusters that servers are part of, weakly, and the counts of those that are gone.
#[derive(Default)]
pub(super) struct ClusterTotals {
    watched: Vec<Watched>,
    /// The counts of clusters that no longer exist: a counter must not decrease.
    before: ClusterCounts,
}

struct Watched {
    cluster: WeakCluster,
    /// The counts that were seen last.
    counts: ClusterCounts,
}

impl ClusterTotals {
    pub(super) fn watch(&mut self, cluster: &Cluster) {
        self.update();
        let is_same = |watched: &Watched| watched.cluster.is(cluster);
        if !self.watched.iter().any(is_same) {
            self.watched.push(Watched {
                cluster: cluster.downgrade(),
                counts: ClusterCounts::default(),
            });
        }
    }

    fn totals(&mut self) -> ClusterCounts {
        self.update();
        let counts = self.watched.iter().map(|it| it.counts);
        counts.fold(self.before, plus)
    }

    fn update(&mut self) {
        let before = &mut self.before;
        self.watched
            .retain_mut(|watched| match watched.cluster.upgrade() {
                Some(cluster) => {
                    watched.counts = cluster.counts();
                    true
                }
                None => {
                    *before = plus(*before, watched.counts);
                    false
                }
            });
    }
}

fn plus(mut one: ClusterCounts, other: ClusterCounts) -> ClusterCounts {
    one.told += other.told;
    one.lost += other.lost;
    one.delivered += other.delivered;
    one.missed += other.missed;
    one
}

/// Creates the instruments that are observed when metrics are collected.
pub(super) fn observe(meter: &Meter, shared: &Arc<Shared>) {
    let counters = [
        ClusterCounter {
            name: bowline::CLUSTER_TOLD,
            unit: "{message}",
            description: "Messages to groups of replicas that the engine has taken.",
            value: |counts| counts.told,
        },
        ClusterCounter {
            name: bowline::CLUSTER_LOST,
            unit: "{message}",
            description: "Messages to groups of replicas that could not be sent.",
            value: |counts| counts.lost,
        },
        ClusterCounter {
            name: bowline::CLUSTER_DELIVERED,
            unit: "{message}",
            description: "Messages to groups of replicas that were received.",
            value: |counts| counts.delivered,
        },
        ClusterCounter {
            name: bowline::CLUSTER_MISSED,
            unit: "{event}",
            description: "How many times messages to this replica may have been lost.",
            value: |counts| counts.missed,
        },
    ];
    for counter in counters {
        let weak = Arc::downgrade(shared);
        meter
            .u64_observable_counter(counter.name)
            .with_unit(counter.unit)
            .with_description(counter.description)
            .with_callback(move |observer| {
                if let Some(shared) = weak.upgrade() {
                    let totals = shared.clusters.lock().totals();
                    observer.observe((counter.value)(totals), &[]);
                }
            })
            .build();
    }
}

struct ClusterCounter {
    name: &'static str,
    unit: &'static str,
    description: &'static str,
    value: fn(ClusterCounts) -> u64,
}
