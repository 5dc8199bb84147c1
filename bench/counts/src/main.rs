//! Runs one kind of message: `bench-counts CASE TIMES`. `bench-run` runs it under valgrind and subtracts a short run
//! from a long one. Without arguments it lists the cases.
//!
//! Everything runs on one thread and in memory, so that the counts are deterministic.

mod core;
mod server;

use std::process::ExitCode;

/// Runs one kind of message this many times.
type Case = fn(u64);

const CASES: &[(&str, Case)] = &[
    ("core: a request and its answer", core::request),
    ("core: a call and its answer", core::call),
    ("core: a call that is abandoned", core::abandoned),
    ("core: a request that is cancelled", core::cancelled),
    ("core: progress of a call", core::progress),
    ("core: a notification", core::notification),
    ("core: a malformed frame", core::malformed),
    ("core: an HTTP request is admitted", core::admission),
    ("core: an event of a stream", core::event),
    ("http: tools/call", server::call),
    (
        "http: tools/call with three notices",
        server::call_with_progress,
    ),
    ("http: tools/call, legacy", server::legacy_call),
    ("http: tools/list", server::list),
    ("http: prompts/get", server::prompt),
    ("http: resources/read", server::read),
    ("http: server/discover", server::discover),
    ("http: a request that is refused", server::refused),
    ("memory: tools/call, both ends", server::over_memory),
    ("in process: tools/call, both ends", server::in_process),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [] => {
            for (name, _) in CASES {
                println!("{name}");
            }
            ExitCode::SUCCESS
        }
        [name, times] => {
            let case = CASES.iter().find(|(known, _)| known == name);
            let (Some((_, case)), Ok(times)) = (case, times.parse()) else {
                eprintln!("unknown case `{name}`, or `{times}` is not a number");
                return ExitCode::FAILURE;
            };
            case(times);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("Usage: bench-counts [CASE TIMES]");
            ExitCode::FAILURE
        }
    }
}
