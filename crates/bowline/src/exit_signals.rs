//! Serving until the process is told to exit: SIGTERM or SIGINT, Ctrl-C outside Unix.

use std::future::Future;
use std::io;

use tokio::task::JoinSet;

use crate::shutdown::{DrainReport, Shutdown};
use crate::{Error, Result};

/// What a signal does.
pub(crate) struct SignalHandling {
    shutdown: Shutdown,
    has_delay: bool,
}

impl SignalHandling {
    /// SIGTERM drains with the delay, SIGINT without: no load balancer waits for a person at a terminal.
    pub(crate) fn new(shutdown: &Shutdown) -> Self {
        Self {
            shutdown: shutdown.clone(),
            has_delay: true,
        }
    }

    /// Drains without the delay: the only client is the one that has sent the signal, and no probe waits for it.
    pub(crate) fn without_delay(shutdown: &Shutdown) -> Self {
        Self {
            has_delay: false,
            ..Self::new(shutdown)
        }
    }

    fn begin(&self, signal: ExitSignal, running: usize) {
        let settings = self.shutdown.settings();
        if self.has_delay && signal == ExitSignal::Terminate {
            let (delay, grace) = (settings.delay, settings.grace);
            tracing::info!(running, ?delay, ?grace, "draining after SIGTERM");
            self.shutdown.drain();
        } else {
            let grace = settings.grace;
            tracing::info!(running, ?grace, "draining; a second signal ends it at once");
            self.shutdown.request(grace);
        }
    }
}

/// Runs `serving` to its end. The first signal begins the drain; the second one returns immediately, and counts the
/// requests that `running` returns as cancelled.
pub(crate) async fn serve_until_signal(
    serving: impl Future<Output = Result<()>> + Send + 'static,
    handling: SignalHandling,
    running: impl Fn() -> usize,
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
        signal = signals.next() => handling.begin(signal, running()),
    }
    let served = tokio::select! {
        biased;
        served = outcome(&mut task) => served,
        _ = signals.next() => {
            handling.shutdown.count_cancelled(running());
            Ok(())
        }
    };
    let DrainReport {
        refused, cancelled, ..
    } = handling.shutdown.report();
    if cancelled > 0 {
        tracing::warn!(refused, cancelled, "drained; requests were cancelled");
    } else {
        tracing::info!(refused, cancelled, "drained");
    }
    served
}

/// A signal that ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(unix), allow(dead_code, reason = "SIGTERM exists on Unix only"))]
enum ExitSignal {
    /// SIGTERM, of a supervisor.
    Terminate,
    /// SIGINT or Ctrl-C, of a person.
    Interrupt,
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

    async fn next(&mut self) -> ExitSignal {
        tokio::select! {
            // SIGINT first: it is the one that ends sooner.
            biased;
            _ = self.interrupt.recv() => ExitSignal::Interrupt,
            _ = self.terminate.recv() => ExitSignal::Terminate,
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

    async fn next(&mut self) -> ExitSignal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await // without a handler there is no signal to wait for
        }
        ExitSignal::Interrupt
    }
}
