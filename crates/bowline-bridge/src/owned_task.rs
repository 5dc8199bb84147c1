//! [`OwnedTask`]: work that goes on while its request is not polled, and ends with it.
//!
//! The future of a request is polled by the connection of its client, which stops while the client reads nothing. What
//! other requests wait for must not depend on it.

use bowline::RpcError;
use tokio::task::JoinHandle;

/// A task that is aborted when this is dropped.
pub(crate) struct OwnedTask<T>(JoinHandle<Result<T, RpcError>>);

impl<T: Send + 'static> OwnedTask<T> {
    pub(crate) fn spawn(
        future: impl Future<Output = Result<T, RpcError>> + Send + 'static,
    ) -> Self {
        Self(tokio::spawn(future))
    }

    /// Waits for the task.
    ///
    /// # Errors
    ///
    /// Those of the task, or if it has panicked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the task.
    pub(crate) async fn join(mut self) -> Result<T, RpcError> {
        let joined = (&mut self.0).await;
        joined.unwrap_or_else(|error| Err(RpcError::internal(error.to_string())))
    }
}

impl<T> Drop for OwnedTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
