//! Logs of the library, on stderr.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;

/// Writes warnings to stderr, for a person at a terminal; with `-v` also debug messages, with `-vv` everything.
pub(crate) fn log_to_stderr(verbosity: u8) {
    let level = level(verbosity);
    // What the protocol will lose one day is not the concern of someone who calls a tool.
    let deprecation = match verbosity {
        0 => LevelFilter::OFF,
        _ => level,
    };
    let targets = Targets::new()
        .with_default(level)
        .with_target("bowline::deprecation", deprecation);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(verbosity > 0)
        .without_time();
    let subscriber = tracing_subscriber::registry().with(targets).with(lines);
    // Fails if there is a subscriber already, which then gets the events.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Writes warnings to stderr with their times, for a program that runs for long; with `-v` also debug messages, with
/// `-vv` everything.
pub(crate) fn log_service_to_stderr(verbosity: u8) {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level(verbosity))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .finish();
    // Fails if there is a subscriber already, which then gets the events.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}
