//! [`ConcurrencyLimit`], a layer that limits concurrent requests.

use std::sync::Arc;

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{ErrorCode, RpcError};
use tokio::sync::Semaphore;

use super::{Layer, Next};
use crate::exchange::BoxFuture;

/// Limits the number of concurrent requests, over all connections together.
///
/// Requests beyond the limit are not queued: they fail immediately with "overloaded", so that a caller can retry
/// elsewhere.
///
/// # Examples
///
/// ```
/// use bowline::{Server, layer::ConcurrencyLimit};
///
/// let server = Server::new("calculator", "1.0.0").layer(ConcurrencyLimit::new(100));
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    permits: Arc<Semaphore>,
}

impl ConcurrencyLimit {
    /// Allows at most `max_requests` concurrent requests.
    #[must_use]
    pub fn new(max_requests: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(max_requests.min(Semaphore::MAX_PERMITS))),
        }
    }
}

impl Layer for ConcurrencyLimit {
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome> {
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Box::pin(async move {
                let outcome = next.run(request).await;
                drop(permit);
                outcome
            }),
            Err(_) => {
                let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "overloaded");
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }
}
