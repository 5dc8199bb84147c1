//! A limit on how many requests are handled at once.

use std::sync::Arc;

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{ErrorCode, RpcError};
use tokio::sync::Semaphore;

use super::{Layer, Next};
use crate::exchange::BoxFuture;

/// Sheds requests beyond a number, over all wires together: they are answered by "overloaded" at once.
///
/// Nobody queues here. A caller that is told at once can go elsewhere; one that waits cannot.
///
/// # Examples
///
/// ```
/// use bowline::{Server, layer::Limit};
///
/// let server = Server::new("busy", "1.0.0").layer(Limit::new(100));
/// ```
#[derive(Clone, Debug)]
pub struct Limit {
    places: Arc<Semaphore>,
}

impl Limit {
    /// At most this many at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
        }
    }
}

impl Layer for Limit {
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome> {
        match self.places.clone().try_acquire_owned() {
            Ok(place) => Box::pin(async move {
                let outcome = next.run(request).await;
                drop(place);
                outcome
            }),
            Err(_) => {
                let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "overloaded");
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }
}
