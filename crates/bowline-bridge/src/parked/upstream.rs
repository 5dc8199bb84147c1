//! [`Upstream`]: a running call, as parked calls see it.

use std::future::Future;
use std::sync::Arc;

use bowline::exchange::Outcome;

use super::kept_notifications::KeptNotifications;

/// A running call of an upstream, with everything that must live as long as it, such as the lease of its connection.
///
/// Dropping it cancels the call.
pub(crate) trait Upstream: Send + 'static {
    /// Waits for the outcome while no client waits for it. Notifications go to `kept`.
    ///
    /// # Cancel safety
    ///
    /// Must be safe: the future is dropped when a retry takes the call over, and the outcome must not be lost with it.
    fn outcome(&mut self, kept: &Arc<KeptNotifications>) -> impl Future<Output = Outcome> + Send;

    /// Returns whether the call was sent, so that its effects may have happened.
    fn may_have_run(&self) -> bool {
        true
    }

    /// Returns the name of the server. A retry must be for the same one.
    fn server(&self) -> &str;

    /// Cancels the call, with a reason for the upstream.
    fn cancel(self, reason: &str);
}
