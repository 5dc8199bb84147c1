//! The legs of the benchmark, in the order of the report.

mod abandoned;
mod bridge;
mod build;
mod clients;
mod growth;
mod http_server;
mod local;
mod stdio_server;
mod subscriptions;
mod tasks;
mod telemetry;
mod threads;

use crate::measure::Row;
use crate::options::Options;

type Leg = fn(&Options) -> Vec<Row>;

/// All legs, with their names on the command line.
pub(crate) const LEGS: &[(&str, Leg)] = &[
    ("http", http_server::modern),
    ("counts", http_server::counts),
    ("legacy", http_server::legacy),
    ("stdio", stdio_server::modern),
    ("http-client", clients::http),
    ("stdio-client", clients::stdio),
    ("drops", abandoned::latency),
    ("stalled", abandoned::stalled),
    ("abandoned", abandoned::many),
    ("subscriptions", subscriptions::idle),
    ("progress", http_server::progress),
    ("h2c", http_server::http2),
    ("sizes", http_server::sizes),
    ("local", local::both_ends),
    ("threads", threads::one_and_two_cores),
    ("tasks", tasks::short),
    ("telemetry", telemetry::states),
    ("bridge", bridge::cost),
    ("bridge-hanging", bridge::hanging),
    ("bridge-drops", bridge::drops),
    ("growth", growth::curves),
    ("build", build::cold),
];

pub(crate) fn usage() -> String {
    let names: Vec<&str> = LEGS.iter().map(|(name, _)| *name).collect();
    format!(
        "Usage: bench-run [--quick] [--json] [--write FOLDER] [--bridges FILE] [LEG]…\n\n  legs: {}",
        names.join(", ")
    )
}
