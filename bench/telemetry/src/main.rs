//! Runs one call with telemetry in one state: `bench-telemetry CASE TIMES`, like `bench-counts`. It is another program,
//! because the feature `otel` must not be in that one.

mod calls;
mod exporter;

use std::process::ExitCode;

use bowline::telemetry::Telemetry;

/// Runs one kind of call this many times.
type Case = fn(Option<Telemetry>, u64);

/// The states of telemetry: the feature alone, without providers, and with an SDK that exports.
const STATES: &[(&str, fn() -> Option<Telemetry>)] = &[
    ("not set", || None),
    ("no provider", || Some(Telemetry::new())),
    ("exported", || Some(exporter::telemetry())),
];

const CASES: &[(&str, Case)] = &[
    ("http: tools/call", calls::over_http),
    ("in process: tools/call, both ends", calls::in_process),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let all = CASES.iter().flat_map(|(case, run)| {
        let states = STATES.iter();
        states.map(move |(state, telemetry)| (format!("otel, {state}: {case}"), run, telemetry))
    });
    match words.as_slice() {
        [] => {
            all.for_each(|(name, ..)| println!("{name}"));
            ExitCode::SUCCESS
        }
        [name, times] => {
            let case = all.into_iter().find(|(known, ..)| known == name);
            let (Some((_, run, telemetry)), Ok(times)) = (case, times.parse()) else {
                eprintln!("unknown case `{name}`, or `{times}` is not a number");
                return ExitCode::FAILURE;
            };
            run(telemetry(), times);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("Usage: bench-telemetry [CASE TIMES]");
            ExitCode::FAILURE
        }
    }
}
