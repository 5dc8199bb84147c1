//! The columns with a bridge between client and server. Their rows and cells are those of `bowline-bridge`.

#[path = "../../../crates/bowline-bridge/tests/cancellation/cell.rs"]
mod cell;
#[path = "../../../crates/bowline-bridge/tests/cancellation/child.rs"]
mod child;
#[path = "../../../crates/bowline-bridge/tests/cancellation/column.rs"]
mod column;
#[path = "../../../crates/bowline-bridge/tests/cancellation/server.rs"]
mod server;
#[path = "../../../crates/bowline-bridge/tests/cancellation/ways.rs"]
mod ways;

use std::fmt;
use std::fmt::Write;

use bowline::testing::{HandlerCounter, RecordingWire, WireRecord};
use bowline::wire;
use tokio::signal::unix::{SignalKind, signal};

use self::child::Report;
use self::column::{Front, Upstream};
use self::server::ServerCounters;
use self::ways::Way;

/// A way to abandon a call, through the bridge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BridgedCell {
    way: Way,
    front: Front,
    upstream: Upstream,
}

impl BridgedCell {
    /// Returns every cell, with those that do not apply.
    fn every() -> impl Iterator<Item = Self> {
        Way::ALL.iter().flat_map(|way| {
            Upstream::ALL.iter().flat_map(move |upstream| {
                Front::ALL.iter().map(move |front| Self {
                    way: *way,
                    front: *front,
                    upstream: *upstream,
                })
            })
        })
    }

    /// Returns every cell that applies.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::every().filter(|cell| cell.not_applicable().is_none())
    }

    fn not_applicable(self) -> Option<&'static str> {
        self.way.not_applicable(self.front, self.upstream)
    }

    /// Runs the cell. The clock is paused if no process is involved; there are no sockets.
    pub(crate) async fn run(self) {
        if !self.upstream.is_process() {
            tokio::time::pause();
        }
        self.way.run(self.front, self.upstream).await;
    }
}

/// Serves over stdin and stdout, and reports to stderr; the main function of a server in a child process.
pub(crate) async fn serve() {
    let counters = ServerCounters {
        handlers: HandlerCounter::with_callback(|counts| report(&Report::Handlers(counts))),
        subscriptions: HandlerCounter::with_callback(|counts| {
            report(&Report::Subscriptions(counts));
        }),
        ..ServerCounters::default()
    };
    let record = WireRecord::with_callback(|event| report(&Report::Event(event.clone())));
    let mut finish = signal(SignalKind::user_defined1()).unwrap();
    let finished = counters.finish.clone();
    tokio::spawn(async move {
        while finish.recv().await.is_some() {
            finished.notify_one();
        }
    });
    report(&Report::Ready(std::process::id()));
    let wire = RecordingWire::with_record(wire::stdio().unwrap(), &record);
    server::server(&counters).serve(wire).await.unwrap();
}

fn report(report: &Report) {
    eprintln!("{}", serde_json::to_string(report).unwrap());
}

/// Returns the cells that apply and have not passed.
pub(crate) fn missing(passed: &[BridgedCell]) -> Vec<String> {
    let passed: Vec<String> = passed.iter().map(BridgedCell::to_string).collect();
    let names = BridgedCell::all().map(|cell| cell.to_string());
    names.filter(|name| !passed.contains(name)).collect()
}

/// Renders one table for each upstream. `number` returns the number of a reason.
pub(crate) fn render(
    text: &mut String,
    passed: &[BridgedCell],
    mut number: impl FnMut(&'static str) -> usize,
) {
    let passed: Vec<String> = passed.iter().map(BridgedCell::to_string).collect();
    for upstream in Upstream::ALL {
        let fronts: Vec<String> = Front::ALL.iter().map(Front::to_string).collect();
        let (fronts, rules) = (fronts.join(" | "), "---|".repeat(fronts.len() + 1));
        let _ = writeln!(
            text,
            "\n### The bridge to {upstream}\n\n| | {fronts} |\n|{rules}"
        );
        for way in Way::ALL {
            let cells = Front::ALL.iter().map(|front| {
                let (way, front, upstream) = (*way, *front, *upstream);
                let cell = BridgedCell {
                    way,
                    front,
                    upstream,
                };
                match cell.not_applicable() {
                    Some(reason) => format!("n/a {}", number(reason)),
                    None if passed.contains(&cell.to_string()) => "✓".to_owned(),
                    None => String::new(),
                }
            });
            let cells: Vec<String> = cells.collect();
            let _ = writeln!(text, "| {} | {} |", way.name, cells.join(" | "));
        }
    }
}

impl fmt::Display for BridgedCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            way,
            front,
            upstream,
        } = self;
        write!(
            f,
            "{} ({front}, through the bridge to {upstream})",
            way.name
        )
    }
}
