//! [`Replicas`]: servers of scenarios as three replicas behind a proxy, on a real engine.

#![allow(
    clippy::print_stdout,
    reason = "a test harness prints to standard output"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use bowline::cluster::Cluster;
use cluster_tests::{Engine, Stickiness};

use crate::Scenario;

/// How the servers of scenarios are replicated, as `cargo xtask cluster` sets it:
///
/// | variable | value |
/// |---|---|
/// | `BOWLINE_SCENARIO_ENGINE` | the URL of an engine; none: one process for each server |
/// | `BOWLINE_SCENARIO_STICKS` | set: the requests of one connection reach one replica; unset: each another |
#[derive(Clone, Debug)]
pub struct Replicas {
    url: String,
    engine: Engine,
    stickiness: Stickiness,
    key: [u8; 32],
}

impl Replicas {
    /// Reads the variables.
    ///
    /// # Panics
    ///
    /// If the URL is of no engine.
    pub(crate) fn of_environment() -> Option<Self> {
        let url = std::env::var("BOWLINE_SCENARIO_ENGINE").ok()?;
        let sticks = std::env::var_os("BOWLINE_SCENARIO_STICKS").is_some();
        Some(Self {
            engine: Engine::of_url(&url).unwrap(),
            url,
            stickiness: match sticks {
                true => Stickiness::Connection,
                false => Stickiness::Never,
            },
            key: [0; 32],
        })
    }

    /// Returns the same for the `nth` scenario. Scenarios with different keys do not affect each other.
    pub(crate) fn of_scenario(&self, nth: u32) -> Self {
        let mut replicas = self.clone();
        replicas.key[..4].copy_from_slice(&std::process::id().to_be_bytes());
        replicas.key[4..8].copy_from_slice(&nth.to_be_bytes());
        replicas
    }

    /// Returns why a scenario does not hold with replicas.
    pub(crate) fn reason_against(scenario: &Scenario) -> Option<&'static str> {
        let path = scenario.path();
        let found = OF_ONE_PROCESS.iter().find(|(name, _)| path == *name);
        found.map(|(_, reason)| *reason)
    }

    pub(crate) fn stickiness(&self) -> Stickiness {
        self.stickiness
    }

    /// Connects a replica.
    pub(crate) async fn connect(&self) -> Cluster {
        let connected = Engine::connect(&self.url, self.key).await;
        connected.unwrap().cluster
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sticks = match self.stickiness {
            Stickiness::Connection => "sticks by connection",
            _ => "never sticks",
        };
        write!(f, "{}, {sticks}", self.engine.name())
    }
}

/// The servers that a scenario has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Served {
    /// None that could be replicated: it tests a client with a scripted server, or a server of its own making.
    Nothing,
    /// One process, because the scenario looks into its service.
    OneProcess,
    /// Replicas.
    Replicas,
}

impl Served {
    pub(crate) fn add(&mut self, served: Self) {
        *self = (*self).max(served);
    }
}

/// What the scenarios of a run have started.
#[derive(Debug, Default)]
pub(crate) struct Servings(Mutex<BTreeMap<String, (Served, usize)>>);

impl Servings {
    pub(crate) fn add(&self, scenario: &str, served: Served) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.entry(scenario.to_owned()).or_insert((served, 0));
        entry.0.add(served);
        entry.1 += 1;
    }

    /// Prints how many runs had replicas, and names the scenarios that had none, with the reason.
    pub(crate) fn print(&self, excluded: &BTreeMap<String, &str>) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |wanted: Served| all.iter().filter(move |(_, (served, _))| *served == wanted);
        let runs = |wanted| of(wanted).map(|(_, (_, runs))| runs).sum::<usize>();
        println!(
            "replicated: {} scenarios, {} runs",
            of(Served::Replicas).count(),
            runs(Served::Replicas)
        );
        for (served, reason) in [
            (Served::OneProcess, "looks into the service of one process"),
            (Served::Nothing, "has no server that could be replicated"),
        ] {
            for (scenario, (_, runs)) in of(served) {
                println!("not replicated: {scenario} ({runs} runs): it {reason}");
            }
        }
        for (scenario, reason) in excluded {
            println!("not run: {scenario}: {reason}");
        }
    }
}

/// What replicas do differently by design, with the reason; `docs/replicas.md` says the same.
const OF_ONE_PROCESS: &[(&str, &str)] = &[
    (
        "subscriptions::changes_are_delivered_in_order_with_their_kind",
        "messages between replicas have no order",
    ),
    (
        "http_server_legacy::a_second_get_stream_is_rejected",
        "a GET at another replica takes over instead: the newest wins",
    ),
    (
        "http_server_legacy::missed_events_are_replayed_in_order",
        "a GET stream that goes on at another replica starts with every change that may have been missed, because events are stored where they were sent",
    ),
];
