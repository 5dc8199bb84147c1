//! The standard input and output of this process as a wire.
//!
//! ```text
//! before   0 ── the client           1 ── the client
//! after    0 ── /dev/null            1 ── stderr         private descriptors ── the client
//! ```
//!
//! A stray `println!`, or a child that inherits our input and output, then meets the null device and
//! stderr and cannot reach the wire.

#[cfg(unix)]
mod threads;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix::take;

#[cfg(not(unix))]
mod other;
#[cfg(not(unix))]
use other::take;

use std::sync::atomic::{AtomicBool, Ordering};

use super::Lines;
use crate::{Error, Result};

/// Takes this process's standard input and output for a wire, one message a line.
///
/// From here on reading from standard input finds nothing, and what is written to standard output goes
/// to standard error (or nowhere, if the two are one and the same), for this process and for every child
/// it starts. Read nothing from standard input and print nothing before it: what was read is lost to the
/// wire, and what was printed is already on it.
///
/// Pipes and sockets are read and written without threads. Anything else (a file, a terminal) gets one
/// plain thread for each direction, since such descriptors cannot be waited for; a thread that waits for
/// input does not keep the process from ending.
///
/// Outside Unix the descriptors are not moved: there, whatever else is printed corrupts the wire.
///
/// # Errors
///
/// [`Error::Misuse`] if they were taken before, and [`Error::Transport`] if they cannot be used.
///
/// # Panics
///
/// Outside a tokio runtime with I/O enabled.
///
/// # Examples
///
/// ```no_run
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// let wire = bowline::wire::stdio()?.max_line(1024 * 1024);
/// server.serve(wire).await
/// # }
/// ```
pub fn stdio() -> Result<Lines> {
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Error::misuse(
            "standard input and output are in use already; they can be taken once per process",
        ));
    }
    let (read, write) = take().map_err(|error| Error::Transport {
        what: "standard input and output cannot be used".into(),
        source: Some(error.into()),
    })?;
    Ok(Lines::new(read, write))
}

static TAKEN: AtomicBool = AtomicBool::new(false);
