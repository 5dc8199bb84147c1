//! A short task compared with the same call without one: both ends in one process, tasks in memory.

use std::process::Command;

use serde::Deserialize;

use crate::machine::{self, Core};
use crate::measure::{Goal, Row, Sample, Spread};
use crate::options::Options;
use crate::program::{Program, Subject};

pub(crate) fn short(options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, transport) in [("in process", "in-process"), ("HTTP", "http")] {
        let [call, task, full] = costs(options, transport);
        let row = |work: String, unit, goal, figure| {
            Row::plain(work, unit, goal, &[(Subject::Bowline, figure)])
        };
        rows.push(row(format!("a short call, {name}"), "µs CPU", None, call));
        rows.push(row(
            format!("the same as a task, {name}"),
            "µs CPU",
            None,
            task,
        ));
        rows.push(row(
            format!("a short task compared with the call, {name}"),
            "times",
            Some(Goal::Value(3.0)),
            task / call,
        ));
        rows.push(row(
            format!("a short task with 100,000 stored ones, {name}"),
            "µs CPU",
            None,
            full,
        ));
    }
    rows.push(Row::plain(
        "memory of a completed short task",
        "bytes",
        None,
        &[(Subject::Bowline, memory())],
    ));
    rows
}

/// Returns the CPU time of a call, a task, and a task with many stored ones, measured in turns.
fn costs(options: &Options, transport: &str) -> [f64; 3] {
    let window = options.window().as_millis().to_string();
    let turns = [("call", "0"), ("task", "0"), ("task", "100000")];
    let mut samples: [Vec<f64>; 3] = Default::default();
    for _ in 0..options.rounds() {
        for ((tool, stored), samples) in turns.iter().zip(&mut samples) {
            let line = run(&["load", transport, tool, stored, &window]);
            let sample: Result<Sample, _> = serde_json::from_str(&line);
            let sample = sample.unwrap_or_else(|error| panic!("`bench-tasks`: {error}: {line:?}"));
            samples.push(sample.cost());
        }
    }
    samples.map(|samples| Spread::of(samples).median)
}

fn memory() -> f64 {
    #[derive(Deserialize)]
    struct Memory {
        bytes_per_task: f64,
    }
    let memory: Result<Memory, _> = serde_json::from_str(&run(&["memory", "20000"]));
    memory.map_or(f64::NAN, |memory| memory.bytes_per_task)
}

fn run(arguments: &[&str]) -> String {
    let mut command = Command::new(machine::program_folder().join("bench-tasks"));
    Program::start(command.args(arguments), Core::Test).line()
}
