//! The pieces of work, in the order of the report.

mod clients;
mod http_server;
mod stdio_server;

use crate::measure::Row;
use crate::options::Options;

type Leg = fn(&Options) -> Vec<Row>;

/// Every leg with its name on the command line.
pub(crate) const LEGS: &[(&str, Leg)] = &[
    ("http", http_server::modern),
    ("counts", http_server::counts),
    ("legacy", http_server::legacy),
    ("stdio", stdio_server::modern),
    ("http-client", clients::http),
    ("stdio-client", clients::stdio),
];

pub(crate) fn usage() -> String {
    let names: Vec<&str> = LEGS.iter().map(|(name, _)| *name).collect();
    format!(
        "Usage: bench-run [--quick] [--json] [--write FILE] [LEG]…\n\n  legs: {}",
        names.join(", ")
    )
}
