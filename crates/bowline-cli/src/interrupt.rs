//! Ctrl-C: the first one ends the work, a second one leaves at once.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::exit::Exit;
use crate::failure::Failure;

/// Runs a future until it is ready, or until Ctrl-C drops it.
///
/// # Errors
///
/// Those of the future, and the interruption.
///
/// # Cancel safety
///
/// Dropping it drops the future.
pub(crate) async fn until_interrupted<T>(
    future: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    // Before the future starts anything that would have to be ended.
    INTERRUPTED.get_or_init(listen);
    tokio::select! {
        biased; // a result that is complete counts
        result = future => result,
        () = interrupted() => Err(Failure::interrupted()),
    }
}

/// Waits for Ctrl-C (SIGINT), or for SIGTERM on Unix. Returns at once if there was one already.
///
/// # Cancel safety
///
/// Safe: an interruption is remembered.
pub(crate) async fn interrupted() {
    let mut is_interrupted = INTERRUPTED.get_or_init(listen).clone();
    // Fails if the task has ended, with the runtime.
    if is_interrupted.wait_for(|it| *it).await.is_err() {
        std::future::pending().await
    }
}

/// Waits for the second Ctrl-C. Does not listen by itself: commands that never wait for [`interrupted`] keep the default.
///
/// # Cancel safety
///
/// Safe: the second Ctrl-C is remembered.
pub(crate) async fn interrupted_twice() {
    TWICE.notified().await;
}

static TWICE: Notify = Notify::const_new();
static INTERRUPTED: OnceLock<watch::Receiver<bool>> = OnceLock::new();

/// Listens once for the whole process, so that no signal is lost between two waits.
fn listen() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    let mut signals = Signals::new();
    tokio::spawn(async move {
        signals.next().await;
        sender.send_replace(true);
        signals.next().await;
        TWICE.notify_one();
        // If the command is blocked, for example because its output is not read.
        tokio::time::sleep(LEAVE_TIME).await;
        std::process::exit(Exit::Interrupted.code().into());
    });
    receiver
}

#[cfg(unix)]
struct Signals(Option<[tokio::signal::unix::Signal; 2]>);

#[cfg(unix)]
impl Signals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};

        let interrupt = signal(SignalKind::interrupt());
        let terminate = signal(SignalKind::terminate());
        Self(
            interrupt
                .and_then(|interrupt| Ok([interrupt, terminate?]))
                .ok(),
        )
    }

    async fn next(&mut self) {
        let Some([interrupt, terminate]) = &mut self.0 else {
            return std::future::pending().await; // without a handler the signal ends the process
        };
        tokio::select! {
            biased; // both mean the same
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Self {
        Self
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await // without a handler the signal ends the process
        }
    }
}

const LEAVE_TIME: Duration = Duration::from_secs(2);
