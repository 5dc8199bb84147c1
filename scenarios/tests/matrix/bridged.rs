//! The columns with a bridge between client and server. Their rows and cells are those of `bowline-bridge`.

#[path = "../../../crates/bowline-bridge/tests/cancellation/cell.rs"]
mod cell;
#[path = "../../../crates/bowline-bridge/tests/cancellation/column.rs"]
mod column;
#[path = "../../../crates/bowline-bridge/tests/cancellation/server.rs"]
mod server;
#[path = "../../../crates/bowline-bridge/tests/cancellation/ways.rs"]
mod ways;

use std::fmt;
use std::fmt::Write;

use self::column::{Front, Upstream};
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

    /// Runs the cell. No socket or process is involved, so the clock is paused.
    pub(crate) async fn run(self) {
        tokio::time::pause();
        self.way.run(self.front, self.upstream).await;
    }
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
