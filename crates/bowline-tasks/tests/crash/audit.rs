//! What the log of a run proves, and how long it took until tasks ran again.

use std::collections::{BTreeMap, BTreeSet};

use crate::event_log::{Event, EventKind};
use crate::server_process::Mode;

/// The result of an audit.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    pub(crate) violations: Vec<String>,
    /// For each task that ran again: the milliseconds from the kill to the start of its handler.
    pub(crate) recoveries: Vec<u64>,
    /// Steps that a process began after another one had taken over its task.
    pub(crate) stale_begins: usize,
    pub(crate) starts: usize,
    pub(crate) begins: usize,
}

/// Checks the log. A label starts with the name of its mode.
pub(crate) fn audit(events: &[Event]) -> Audit {
    let mut audit = Audit::default();
    let mut tasks: BTreeMap<&str, TaskLog> = BTreeMap::new();
    for event in events {
        match event.kind {
            EventKind::Killed => {
                let interrupted = tasks.values_mut().filter(|task| task.runs_in(event.pid));
                interrupted.for_each(|task| task.killed_at = Some(event.at));
            }
            _ => audit.add(tasks.entry(&event.label).or_default(), event),
        }
    }
    audit
}

/// What happened to one task so far.
#[derive(Debug, Default)]
struct TaskLog {
    /// The processes in which its handler started.
    starts: Vec<u32>,
    killed_at: Option<u64>,
    begun: BTreeSet<u32>,
    committed: BTreeSet<u32>,
}

impl TaskLog {
    fn runs_in(&self, pid: u32) -> bool {
        self.starts.last() == Some(&pid)
    }
}

impl Audit {
    fn add(&mut self, task: &mut TaskLog, event: &Event) {
        match event.kind {
            EventKind::Start => self.start(task, event),
            EventKind::Begin => self.begin(task, event),
            EventKind::Committed | EventKind::Journalled => {
                task.committed.insert(event.step);
            }
            EventKind::End | EventKind::Killed => {}
        }
    }

    fn start(&mut self, task: &mut TaskLog, event: &Event) {
        self.starts += 1;
        if !task.starts.is_empty() && Mode::of(&event.label) == Mode::NotResumable {
            self.violated(event, "a tool that is not resumable ran again");
        }
        task.starts.push(event.pid);
        if let Some(killed_at) = task.killed_at.take() {
            self.recoveries.push(event.at.saturating_sub(killed_at));
        }
    }

    fn begin(&mut self, task: &mut TaskLog, event: &Event) {
        self.begins += 1;
        if !task.begun.insert(event.step) && Mode::of(&event.label) == Mode::AtMostOnce {
            self.violated(event, "a step ran twice that must run at most once");
        }
        if task.committed.contains(&event.step) {
            match task.runs_in(event.pid) {
                true => self.violated(event, "a step ran again after it was committed"),
                // Only a lost lease can end a run that has no journal entry to write.
                false => self.stale_begins += 1,
            }
        }
    }

    fn violated(&mut self, event: &Event, what: &str) {
        self.violations.push(format!("{what}: {event}"));
    }
}

#[test]
fn an_audit_finds_each_violation() {
    let log = |lines: &[&str]| {
        let lines = lines.iter().map(|line| crate::event_log::parse(line));
        audit(&lines.map(Option::unwrap).collect::<Vec<_>>())
    };
    for (lines, expected) in [
        (
            &["0 1 NotResumable.0 Start 0", "5 2 NotResumable.0 Start 0"][..],
            "a tool that is not resumable ran again",
        ),
        (
            &["0 1 AtMostOnce.0 Begin 3", "5 2 AtMostOnce.0 Begin 3"],
            "a step ran twice that must run at most once",
        ),
        (
            &[
                "0 1 AtLeastOnce.0 Start 0",
                "1 1 AtLeastOnce.0 Begin 0",
                "2 0 AtLeastOnce.0 Journalled 0",
                "3 1 - Killed 0",
                "4 2 AtLeastOnce.0 Start 0",
                "5 2 AtLeastOnce.0 Begin 0",
            ],
            "a step ran again after it was committed",
        ),
    ] {
        let violations = log(lines).violations;

        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].starts_with(expected), "{violations:?}");
    }
}

#[test]
fn an_audit_accepts_an_interrupted_step_that_runs_again_and_measures_the_recovery() {
    let lines = [
        "0 1 AtLeastOnce.0 Start 0",
        "1 1 AtLeastOnce.0 Begin 0",
        "10 1 - Killed 0",
        "25 2 AtLeastOnce.0 Start 0",
        "26 2 AtLeastOnce.0 Begin 0",
    ];
    let lines = lines.map(|line| crate::event_log::parse(line).unwrap());

    let audit = audit(&lines);

    assert_eq!(audit.violations, [""; 0]);
    assert_eq!(audit.recoveries, [15]);
}
