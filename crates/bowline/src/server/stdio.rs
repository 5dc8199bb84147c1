//! Serving a [`Server`] over standard input and output, with shutdown on signals.

use std::io;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Server;
use crate::{Error, Result, wire};

impl Server {
    /// Serves the client that started this process, over standard input and output.
    ///
    /// The wire is first moved away from descriptors 0 and 1, so that neither `println!` nor a child process
    /// can corrupt it; see [`wire::stdio`].
    ///
    /// Returns when the client closes standard input, after running handlers had two seconds to finish. On
    /// SIGTERM or SIGINT (Ctrl-C outside Unix) the server shuts down with the same grace period; on a second
    /// signal it returns immediately. The default handling of both signals is replaced for the whole process.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if standard input and output are already in use, [`Error::Transport`] if they or the
    /// signals are not available, and as [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the wire and drops every handler. Standard input and output are not restored.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// #[tokio::main]
    /// async fn main() -> bowline::Result<()> {
    ///     bowline::Server::new("calculator", "1.0.0").serve_stdio().await
    /// }
    /// ```
    pub async fn serve_stdio(self) -> Result<()> {
        let wire = wire::stdio()?;
        let mut signals = Signals::new().map_err(|error| Error::Transport {
            what: "failed to install signal handlers".into(),
            source: Some(error.into()),
        })?;
        // A spawned task, because `block_on` polls the future of `main` on a thread outside of the workers, or only
        // after the I/O driver has run: responses would be delayed. The set aborts the task when it is dropped.
        let mut serving = JoinSet::new();
        serving.spawn(self.clone().serve(wire));
        // The wire is polled first: one that has ended needs no shutdown.
        tokio::select! {
            biased;
            served = outcome(&mut serving) => return served,
            () = signals.next() => self.shut_down(GRACE),
        }
        tokio::select! {
            biased;
            served = outcome(&mut serving) => served,
            () = signals.next() => Ok(()),
        }
    }
}

/// Waits for the only task of the set, and resumes its panic.
async fn outcome(task: &mut JoinSet<Result<()>>) -> Result<()> {
    match task.join_next().await {
        Some(Ok(served)) => served,
        Some(Err(failed)) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::Closed), // the runtime is shutting down
        },
        None => Ok(()),
    }
}

/// The signals that end a process: SIGTERM and SIGINT.
#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            // Both mean the same, so the order does not matter.
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    #[allow(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await // without a handler there is no signal to wait for
        }
    }
}

/// The grace period of running handlers after a signal.
const GRACE: Duration = Duration::from_secs(2);
