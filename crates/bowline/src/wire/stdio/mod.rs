//! [`stdio`], which makes a wire of the standard input and output of this process.
//!
//! ```text
//! before   0 ── client               1 ── client
//! after    0 ── /dev/null            1 ── stderr         private descriptors ── client
//! ```
//!
//! Without this, a `println!` or a child process that inherits stdin and stdout would corrupt the wire.

#[cfg(unix)]
mod threads;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix::take_stdio;

#[cfg(not(unix))]
mod other;
#[cfg(not(unix))]
use other::take_stdio;

use std::sync::atomic::{AtomicBool, Ordering};

use super::Lines;
use crate::telemetry::TransportKind;
use crate::{Error, Result};

/// Creates a wire over the standard input and output of this process, with one message per line.
///
/// Afterwards reads from stdin return end-of-file, and writes to stdout go to stderr (or are discarded, if both are the
/// same file), for this process and for its future children. Do not read from stdin or print to stdout before: bytes
/// that were read are lost, and bytes that were printed are on the wire.
///
/// Pipes and sockets are read and written asynchronously. Files and terminals do not support that and get one thread
/// per direction; a thread that waits for input does not prevent the process from exiting.
///
/// On other systems than Unix the descriptors are not moved, so printing to stdout corrupts the wire.
///
/// # Errors
///
/// [`Error::Misuse`] if it was called before, and [`Error::Transport`] if the descriptors cannot be used.
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
            "standard input and output are already in use; `stdio` can be called once per process",
        ));
    }
    let (read, write) = take_stdio().map_err(|error| Error::Transport {
        what: "failed to open standard input and output".into(),
        source: Some(error.into()),
    })?;
    Ok(Lines::new(read, write).over(TransportKind::Pipe))
}

static TAKEN: AtomicBool = AtomicBool::new(false);
