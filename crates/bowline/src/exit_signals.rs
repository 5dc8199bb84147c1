//! Serving until the process is told to exit: SIGTERM or SIGINT, Ctrl-C outside Unix.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::{Error, Result};

/// Runs `serving` to its end. At the first signal calls `shut_down` with the grace period of running handlers; at the
/// second one returns immediately.
pub(crate) async fn serve_until_signal(
    serving: impl Future<Output = Result<()>> + Send + 'static,
    shut_down: impl FnOnce(Duration),
) -> Result<()> {
    let mut signals = Signals::new().map_err(|error| Error::Transport {
        what: "failed to install signal handlers".into(),
        source: Some(error.into()),
    })?;
    // A spawned task, because `block_on` polls the future of `main` on a thread outside of the workers, or only after
    // the I/O driver has run: responses would be delayed. The set aborts the task when it is dropped.
    let mut task = JoinSet::new();
    task.spawn(serving);
    // The task is polled first: one that has ended needs no shutdown.
    tokio::select! {
        biased;
        served = outcome(&mut task) => return served,
        () = signals.next() => shut_down(GRACE),
    }
    tokio::select! {
        biased;
        served = outcome(&mut task) => served,
        () = signals.next() => Ok(()),
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
