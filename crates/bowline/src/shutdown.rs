//! Asking for a shutdown, and waiting until somebody does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::signal::Signal;

/// Whether a shutdown was asked for. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown(Arc<State>);

#[derive(Debug, Default)]
struct State {
    asked: Signal,
    grace: Mutex<Duration>,
}

impl Shutdown {
    /// Asks for it; handlers may still run for `grace`.
    pub(crate) fn ask(&self, grace: Duration) {
        *self.grace() = grace;
        self.0.asked.raise();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.asked.is_raised()
    }

    /// Waits until it is asked for, and tells how long handlers may still run.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost by dropping it.
    pub(crate) async fn asked(&self) -> Duration {
        self.0.asked.wait().await;
        *self.grace()
    }

    fn grace(&self) -> MutexGuard<'_, Duration> {
        // No code that could panic runs under this lock.
        self.0.grace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
