//! Logs of the library, on stderr.

use tracing_subscriber::filter::LevelFilter;

/// Writes warnings to stderr; with `-v` also debug messages, with `-vv` everything.
pub(crate) fn log_to_stderr(verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .finish();
    // Fails if there is a subscriber already, which then gets the events.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
