//! Asking for a shutdown, and waiting until somebody does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Whether a shutdown was asked for. Clones are the same.
///
/// Those who wait hear of it in the order in which they began to, so that what follows can be repeated; a
/// `watch` would wake them in any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown(Arc<State>);

#[derive(Debug, Default)]
struct State {
    grace: Mutex<Option<Duration>>,
    asked: Notify,
}

impl Shutdown {
    /// Asks for it; handlers may still run for `grace`.
    pub(crate) fn ask(&self, grace: Duration) {
        *self.lock() = Some(grace);
        self.0.asked.notify_waiters();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.lock().is_some()
    }

    /// Waits until it is asked for, and tells how long handlers may still run.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost by dropping it.
    pub(crate) async fn asked(&self) -> Duration {
        loop {
            // Counts from here on, so that nothing is missed between looking and waiting.
            let asked = self.0.asked.notified();
            let grace = *self.lock();
            match grace {
                Some(grace) => return grace,
                None => asked.await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Duration>> {
        // No code that could panic runs under this lock.
        self.0.grace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
