//! The cost of one `tools/call` in programs between clients and servers, each in the combinations that it has.

mod drops;
pub(crate) use drops::drops;

mod hanging;
pub(crate) use hanging::hanging;

mod running_bridge;
use running_bridge::{Behind, RunningBridge, UpstreamServer};

use crate::load::Era;
use crate::machine;
use crate::measure::{Goal, Row, interleave};
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
    COMBINATIONS
        .iter()
        .flat_map(|combination| measure(options, combination))
        .collect()
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
            None => {
                memory.push((*subject, megabytes(bridge)));
                notes.extend(children_note(*subject, bridge));
            }
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

/// Returns a note if the bridge starts a process for each request, or for a few: their CPU time is not in the row.
fn children_note(subject: Subject, bridge: &RunningBridge) -> Option<String> {
    let name = subject.name();
    let per_call = bridge.ended_children_ms_per_call()?;
    Some(format!(
        "{name}: the processes that it started and that have ended took another {per_call:.1} ms of CPU time per call"
    ))
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
