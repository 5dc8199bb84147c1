//! The cost of one `tools/call` in programs between clients and servers, each in the combinations that it has.

mod hanging;
pub(crate) use hanging::hanging;

mod running_bridge;
use running_bridge::{Behind, RunningBridge, UpstreamServer};

use crate::load::Era;
use crate::machine;
use crate::measure::{Goal, Row, Series, interleave};
use crate::options::Options;
use crate::program::Subject;

/// A combination of clients and servers.
struct Combination {
    work: &'static str,
    behind: Behind,
    era: Era,
    connections: usize,
    subjects: &'static [Subject],
    goal: Goal,
}

/// Every combination: CPU time per call, and memory after the last turn.
pub(crate) fn cost(options: &Options) -> Vec<Row> {
    let mut rows: Vec<Row> = COMBINATIONS
        .iter()
        .flat_map(|combination| measure(options, combination))
        .collect();
    rows.extend(process_for_each_request(options));
    rows
}

fn measure(options: &Options, combination: &Combination) -> Vec<Row> {
    let upstream = UpstreamServer::start(combination.behind);
    let mut notes = Vec::new();
    let mut bridges: Vec<(Subject, RunningBridge)> = Vec::new();
    for &subject in combination.subjects {
        let (era, connections) = (combination.era, combination.connections);
        match RunningBridge::start(subject, &upstream, options, era, connections) {
            Ok(bridge) => bridges.push((subject, bridge)),
            Err(error) => notes.push(format!("{}: {error}", subject.name())),
        }
    }
    let window = options.window();
    let mut series = interleave(options.rounds(), &mut bridges, |bridge| {
        bridge.measure(window)
    });
    let mut memory = Vec::new();
    for (subject, bridge) in &bridges {
        match bridge.failure() {
            Some(failure) => notes.push(format!("{}: {failure}", subject.name())),
            None => memory.push((*subject, megabytes(bridge))),
        }
    }
    series.retain(|one| memory.iter().any(|(subject, _)| *subject == one.subject));
    let work = combination.work;
    vec![
        Row::cpu(work, Some(combination.goal), &series)
            .of_bridges()
            .with_notes(notes),
        Row::plain(work, "MB resident", Some(Goal::Value(20.0)), &memory).of_bridges(),
    ]
}

fn megabytes(bridge: &RunningBridge) -> f64 {
    machine::resident_kib(bridge.id()) as f64 * 1024.0 / 1e6
}

/// A bridge in its default mode that starts a process for each request, which the other rows do not show.
fn process_for_each_request(options: &Options) -> Option<Row> {
    let upstream = UpstreamServer::start(Behind::Stdio);
    let started = RunningBridge::start_stateless_supergateway(&upstream, options);
    let mut bridge = match started {
        Ok(bridge) => bridge,
        Err(error) => {
            eprintln!("  did not run: {error}");
            return None;
        }
    };
    let (mut children_ns, mut replies) = (0, 0);
    let samples = (0..options.rounds()).map(|_| {
        let before = machine::ended_children_cpu_ns(bridge.id());
        let sample = bridge.measure(options.window());
        children_ns += machine::ended_children_cpu_ns(bridge.id()) - before;
        replies += sample.replies;
        sample
    });
    let series = Series {
        subject: Subject::Supergateway,
        samples: samples.collect(),
    };
    let note = match bridge.failure() {
        Some(failure) => format!("supergateway: {failure}"),
        None => format!(
            "supergateway: the processes take another {:.1} ms of CPU time per call (those of the warm-up included)",
            children_ns as f64 / 1e6 / replies.max(1) as f64
        ),
    };
    let work = "a stdio server for HTTP clients, a process for each request, 1 connection";
    let row = Row::cpu(work, None, &[series]);
    Some(row.of_bridges().with_notes(vec![note]))
}

const COMBINATIONS: &[Combination] = &[
    Combination {
        work: "HTTP to HTTP, 2026-07-28, 64 connections",
        behind: Behind::Http,
        era: Era::Modern,
        connections: 64,
        subjects: &[Subject::Raw, Subject::Bowline, Subject::FastMcp],
        goal: Goal::RatioAndValue(2.0, 50.0),
    },
    Combination {
        work: "HTTP to HTTP, 2026-07-28, 1 connection",
        behind: Behind::Http,
        era: Era::Modern,
        connections: 1,
        subjects: &[Subject::Raw, Subject::Bowline],
        goal: Goal::Ratio(2.0),
    },
    Combination {
        work: "HTTP to HTTP, 32 legacy sessions",
        behind: Behind::Http,
        era: Era::Legacy,
        connections: 32,
        subjects: &[Subject::Raw, Subject::Bowline, Subject::FastMcp],
        goal: Goal::Value(50.0),
    },
    Combination {
        work: "a stdio server for HTTP clients, 2026-07-28, 64 connections",
        behind: Behind::Stdio,
        era: Era::Modern,
        connections: 64,
        subjects: &[
            Subject::Bowline,
            Subject::McpProxy,
            Subject::Supergateway,
            Subject::FastMcp,
        ],
        goal: Goal::Value(50.0),
    },
    Combination {
        work: "a stdio server for HTTP clients, 32 legacy sessions",
        behind: Behind::Stdio,
        era: Era::Legacy,
        connections: 32,
        subjects: &[
            Subject::Bowline,
            Subject::McpProxy,
            Subject::Supergateway,
            Subject::FastMcp,
        ],
        goal: Goal::Value(50.0),
    },
];
