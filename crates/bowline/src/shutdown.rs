//! [`Shutdown`], the shutdown signal of a server and its connections.

use std::sync::Arc;
use std::time::Duration;

use crate::signal::Signal;
use crate::sync::{Mutex, MutexGuard};

/// A shutdown signal with a grace period. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown(Arc<ShutdownState>);

#[derive(Debug, Default)]
struct ShutdownState {
    requested: Signal,
    grace: Mutex<Duration>,
}

impl Shutdown {
    /// Requests the shutdown; handlers may run for another `grace`.
    pub(crate) fn request(&self, grace: Duration) {
        *self.grace() = grace;
        self.0.requested.raise();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.requested.is_raised()
    }

    /// Waits until the shutdown is requested, and returns its grace period.
    ///
    /// # Cancel safety
    ///
    /// Safe: the request is not consumed.
    pub(crate) async fn requested(&self) -> Duration {
        self.0.requested.wait().await;
        *self.grace()
    }

    fn grace(&self) -> MutexGuard<'_, Duration> {
        self.0.grace.lock()
    }
}
