//! One call with telemetry in each state, compared with the same call in a program that was built without it.

use std::process::Command;

use crate::machine::{self, Core};
use crate::measure::{Goal, Row, Spread};
use crate::options::Options;
use crate::program::{Program, Subject};

pub(crate) fn states(options: &Options) -> Vec<Row> {
    let server = rows(options, "http: tools/call", "a server over HTTP");
    let both_ends = rows(options, "in process: tools/call, both ends", "both ends");
    server.into_iter().chain(both_ends).collect()
}

fn rows(options: &Options, case: &str, ends: &str) -> Vec<Row> {
    let costs = costs(options, case);
    let row = |work: String, goal, figures: Vec<f64>| {
        let figure = Spread::of(figures).median;
        Row::plain(work, "µs CPU", goal, &[(Subject::Bowline, figure)])
    };
    let without = costs[0].clone();
    let mut rows = vec![row(format!("{ends}, without telemetry"), None, without)];
    for (state, samples) in STATES.iter().zip(&costs[1..]) {
        // Compared with the sample that is nearest in time.
        let more = samples
            .iter()
            .zip(&costs[0])
            .map(|(with, without)| with - without);
        let work = format!("{ends}, {}: in addition", state.work);
        rows.push(row(work, state.goal.map(Goal::Value), more.collect()));
    }
    rows
}

/// Returns the CPU time of a call in microseconds: without telemetry, and in each state of it, measured in turns.
fn costs(options: &Options, case: &str) -> [Vec<f64>; 4] {
    let mut samples: [Vec<f64>; 4] = Default::default();
    for _ in 0..options.rounds() {
        samples[0].push(cost(options, "bench-counts", case));
        for (state, samples) in STATES.iter().zip(&mut samples[1..]) {
            let case = format!("otel, {}: {case}", state.name);
            samples.push(cost(options, "bench-telemetry", &case));
        }
    }
    samples
}

/// Returns the CPU time of a call in microseconds. The difference of two runs excludes the start of the program.
fn cost(options: &Options, program: &str, case: &str) -> f64 {
    let total = |times: u64| {
        let mut command = Command::new(machine::program_folder().join(program));
        command.args([case, &times.to_string()]);
        Program::start(&mut command, Core::Test).cpu_ns_until_exit() as f64 / 1e3
    };
    let long = if options.quick { 20_000 } else { 100_000 };
    (total(long) - total(SHORT)) / (long - SHORT) as f64
}

/// A state of telemetry.
struct State {
    /// Its name in `bench-telemetry`.
    name: &'static str,
    work: &'static str,
    /// The most that a call may cost in addition, in microseconds.
    goal: Option<f64>,
}

const STATES: [State; 3] = [
    State {
        name: "not set",
        work: "compiled in and not configured",
        goal: Some(1.0),
    },
    State {
        name: "no provider",
        work: "configured without a provider",
        goal: None,
    },
    State {
        name: "exported",
        work: "with an exporter",
        goal: Some(10.0),
    },
];

const SHORT: u64 = 1_000;
