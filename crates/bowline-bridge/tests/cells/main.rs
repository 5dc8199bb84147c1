//! The cells of the bridge: each revision over each wire in front × the same behind × each check.
//!
//! ```text
//! cargo test -p bowline-bridge --test cells                                       # all
//! CELLS='2026-07-28 HTTP > 2024-11-05 stdio: cancel' cargo test …                 # cells whose name contains the text
//! BLESS=1 cargo test -p bowline-bridge --test cells                               # all; rewrites CELLS.md
//! ```
//!
//! Both ends are written with raw bytes, and share nothing with the engine of `bowline`: a front client
//! (`front/`), an upstream server that records what it sees at its socket (`upstream/`), and between them a
//! [`Middle`](middle::Middle).
//!
//! ```text
//! check ── FrontClient ── FrontWire ═══ Middle ═══ RawServer ── record ── check
//! ```

mod bridged;
mod checks;
mod endpoint;
mod front;
mod http1;
mod meddling;
mod middle;
mod runner;
mod table;
mod upstream;

use std::fmt::Write;

use bridged::Bridged;
use checks::Check;
use meddling::Meddling;
use middle::Direct;
use runner::{Job, Ran};
use table::Results;

#[test]
fn every_check_passes_in_every_cell() {
    let direct = runner::run_all(&Direct);
    let bridged = runner::run_all(&Bridged);

    if runner::selection().is_none() {
        let (direct, bridged) = (runner::run_cancels(&Direct), runner::run_cancels(&Bridged));
        println!("cancels without a bridge: {}", cancel_times(&direct));
        println!("cancels through the bridge: {}", cancel_times(&bridged));
    }
    let failures = failures(direct.iter().chain(&bridged));
    let table = match runner::selection() {
        Some(_) => Ok(()),
        None => table::check(&Results { direct, bridged }),
    };
    assert!(failures.is_empty(), "{failures}");
    table.unwrap();
}

#[test]
fn every_check_fails_in_every_cell_if_the_server_has_the_fault_that_it_looks_for() {
    let mut jobs = Job::all(&Direct);
    jobs.retain(|job| job.check.forbidden(job.front, job.upstream).is_none());

    let ran = runner::run_faulty(&Direct, jobs, |job| Some(job.check.fault()));

    let unnoticed: Vec<String> = passed(&ran).map(|job| job.to_string()).collect();
    assert_eq!(unnoticed, [""; 0]);
}

#[test]
fn the_faults_of_a_bad_bridge_are_noticed() {
    let mut unnoticed = Vec::new();
    for fault in Meddling::ALL {
        let mut jobs = Job::all(&fault);
        let is_concerned = |check: &Check| fault.noticed_by().contains(check);
        jobs.retain(|job| {
            job.check.forbidden(job.front, job.upstream).is_none() && is_concerned(&job.check)
        });

        let ran = runner::run_faulty(&fault, jobs, |_| None);

        unnoticed.extend(passed(&ran).map(|job| format!("{fault:?} in {job}")));
    }
    assert_eq!(unnoticed, [""; 0]);
}

fn passed(ran: &[Ran]) -> impl Iterator<Item = Job> {
    let passed = ran.iter().filter(|one| one.result.is_ok());
    passed.map(|one| one.job)
}

/// The time from a cancel by the client to its arrival at the socket of the server. It is not checked: on a machine that
/// does other work, the slowest one shows that work. That no timer is on the way is checked in `tests/cancellation/`.
fn cancel_times(ran: &[Ran]) -> String {
    let mut times: Vec<_> = ran
        .iter()
        .filter_map(|one| Some((one.cancel_time?, one.job)))
        .collect();
    times.sort_by_key(|(time, _)| *time);
    match (times.get(times.len() / 2), times.last()) {
        (Some((median, _)), Some((slowest, job))) => {
            format!("median {median:?}, slowest {slowest:?} ({job})")
        }
        _ => "none".to_owned(),
    }
}

/// The failures, the first ones with what happened.
fn failures<'a>(ran: impl Iterator<Item = &'a Ran>) -> String {
    let mut text = String::new();
    let failed = ran.filter_map(|one| Some((one.job, one.result.as_ref().err()?)));
    for (at, (job, error)) in failed.enumerate() {
        let error = match at {
            0..10 => error.as_str(),
            _ => error.lines().next().unwrap_or_default(),
        };
        let _ = write!(text, "\n{job}\n    {error}\n");
    }
    text
}
