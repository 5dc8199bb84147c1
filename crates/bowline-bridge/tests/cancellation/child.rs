//! A server in a child process, which reports on its stderr what it gets and what it does.

use std::process::Command;
use std::sync::{Arc, Mutex};

use bowline::testing::{HandlerCounter, HandlerCounts, RecordedEvent, WireRecord};
use bowline::wire;
use serde::{Deserialize, Serialize};

use super::server::ServerCounters;

/// A line that the server writes to its stderr.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The process with this id expects signals.
    Ready(u32),
    Event(RecordedEvent),
    Handlers(HandlerCounts),
    Subscriptions(HandlerCounts),
}

/// A server in a child process. Clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct ChildServer(Arc<Mutex<Reported>>);

#[derive(Default)]
struct Reported {
    process: Option<u32>,
    is_killed: bool,
    handlers: HandlerCounts,
    subscriptions: HandlerCounts,
}

impl ChildServer {
    /// Returns the command that starts this program as the server. What it reports is recorded and counted.
    pub(crate) fn command(&self, counters: &ServerCounters, record: &WireRecord) -> wire::Command {
        let (server, counters, record) = (self.clone(), counters.clone(), record.clone());
        wire::Command::new(std::env::current_exe().unwrap())
            .arg("--serve-behind-bridge")
            .on_stderr(move |line| server.read_report(line, &counters, &record))
    }

    fn read_report(&self, line: &str, counters: &ServerCounters, record: &WireRecord) {
        let mut reported = self.0.lock().unwrap();
        match serde_json::from_str(line) {
            Ok(Report::Ready(process)) => reported.process = Some(process),
            Ok(Report::Event(event)) => record.push(event),
            // What it reported last may be read after it was killed.
            Ok(Report::Handlers(_) | Report::Subscriptions(_)) if reported.is_killed => {}
            Ok(Report::Handlers(counts)) => {
                count(&counters.handlers, &mut reported.handlers, counts);
            }
            Ok(Report::Subscriptions(counts)) => {
                count(&counters.subscriptions, &mut reported.subscriptions, counts);
            }
            // Most likely a panic, which belongs to the output of the failed test.
            Err(_) => println!("stderr of the server: {line}"),
        }
    }

    /// Lets the concurrent call finish, if this process has it.
    pub(crate) fn finish(&self) {
        self.signal("USR1");
    }

    /// Kills the process. Its handlers have ended then.
    pub(crate) fn kill(&self, counters: &ServerCounters) {
        self.signal("KILL");
        let mut reported = self.0.lock().unwrap();
        reported.is_killed = true;
        let ended = |mut counts: HandlerCounts| {
            counts.dropped = counts.started - counts.finished;
            counts
        };
        let handlers = ended(reported.handlers);
        count(&counters.handlers, &mut reported.handlers, handlers);
        let subscriptions = ended(reported.subscriptions);
        count(
            &counters.subscriptions,
            &mut reported.subscriptions,
            subscriptions,
        );
    }

    fn signal(&self, name: &str) {
        let process = {
            let reported = self.0.lock().unwrap();
            reported.process.filter(|_| !reported.is_killed)
        };
        if let Some(process) = process {
            let name = format!("-{name}");
            // It may have ended, because its connection is not needed any more.
            let _ = Command::new("kill")
                .args([&name, &process.to_string()])
                .output();
        }
    }
}

/// Adds to the counts of all servers what one of them has counted since its last report.
fn count(all: &HandlerCounter, last: &mut HandlerCounts, now: HandlerCounts) {
    let mut counts = all.counts();
    counts.started += now.started - last.started;
    counts.finished += now.finished - last.finished;
    counts.dropped += now.dropped - last.dropped;
    all.set(counts);
    *last = now;
}
