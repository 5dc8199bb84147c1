//! Ctrl-C: the first one ends the work, a second one leaves at once.

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
    tokio::select! {
        biased; // a result that is complete counts
        result = future => result,
        () = interrupted() => Err(Failure::interrupted()),
    }
}

/// Waits for Ctrl-C (SIGINT), or for SIGTERM on Unix. After that, a second one ends the process.
///
/// # Cancel safety
///
/// Safe: a signal is not consumed before this returns.
pub(crate) async fn interrupted() {
    signal().await;
    tokio::spawn(async {
        signal().await;
        std::process::exit(Exit::Interrupted.code().into());
    });
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};

    let interrupt = signal(SignalKind::interrupt());
    let terminate = signal(SignalKind::terminate());
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        return std::future::pending().await; // without a handler the signal ends the process
    };
    tokio::select! {
        biased; // both mean the same
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await // without a handler the signal ends the process
    }
}
