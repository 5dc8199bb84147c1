//! The log of what handlers did: one line for each event, appended by all processes to one file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What happened. The order of events is that of their lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A handler started, for the first time or again.
    Start,
    /// The effect of a step begins.
    Begin,
    /// The effect of a step is complete.
    End,
    /// `Context::step` returned, so the step is in the journal.
    Committed,
    /// The test found the step in the journal.
    Journalled,
    /// A process was killed.
    Killed,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) pid: u32,
    /// Names the call that the task was created by; `-` for a killed process.
    pub(crate) label: String,
    pub(crate) kind: EventKind,
    pub(crate) step: u32,
}

/// Appends events to a file.
#[derive(Debug)]
pub(crate) struct EventLog(File);

impl EventLog {
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self(file.unwrap())
    }

    pub(crate) fn write(&self, pid: u32, label: &str, kind: EventKind, step: u32) {
        let event = Event {
            at: now(),
            pid,
            label: label.to_owned(),
            kind,
            step,
        };
        // In one call, so that a kill does not divide the line.
        let line = format!("{event}\n");
        (&self.0).write_all(line.as_bytes()).unwrap();
    }
}

/// Reads the log.
pub(crate) fn read(path: &Path) -> Vec<Event> {
    let text = std::fs::read_to_string(path).unwrap();
    let events = text.lines().map(|line| match parse(line) {
        Some(event) => event,
        None => panic!("malformed line in the log: {line}"),
    });
    events.collect()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, pid, label, .. } = self;
        write!(f, "{at} {pid} {label} {:?} {}", self.kind, self.step)
    }
}

pub(crate) fn parse(line: &str) -> Option<Event> {
    let mut words = line.split(' ');
    Some(Event {
        at: words.next()?.parse().ok()?,
        pid: words.next()?.parse().ok()?,
        label: words.next()?.to_owned(),
        kind: parse_kind(words.next()?)?,
        step: words.next()?.parse().ok()?,
    })
}

fn parse_kind(name: &str) -> Option<EventKind> {
    use EventKind::{Begin, Committed, End, Journalled, Killed, Start};
    let all = [Start, Begin, End, Committed, Journalled, Killed];
    all.into_iter().find(|kind| format!("{kind:?}") == name)
}
