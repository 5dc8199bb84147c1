//! [`Timeout`], a layer that limits how long a handler may run.

use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{ErrorCode, RpcError};

use super::{Layer, Next};
use crate::exchange::BoxFuture;

/// Drops a handler that runs longer than the limit, and answers with an internal error.
///
/// Subscriptions (`subscriptions/listen`) are not limited: they run until they are cancelled.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::{Server, Tool, layer::Timeout};
///
/// let slow = Tool::new("slow", async || "done").layer(Timeout::new(Duration::from_secs(60)));
/// let server = Server::new("calculator", "1.0.0").tool(slow).layer(Timeout::new(Duration::from_secs(90)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Timeout {
    timeout: Duration,
}

impl Timeout {
    /// Limits the run time of handlers to `timeout`.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self { timeout }
    }
}

impl Layer for Timeout {
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome> {
        if request.method == "subscriptions/listen" {
            return next.run(request);
        }
        let timeout = self.timeout;
        Box::pin(async move {
            let timely = tokio::time::timeout(timeout, next.run(request)).await;
            timely.unwrap_or_else(|_| {
                let why = format!("handler timed out after {timeout:?}");
                Err(RpcError::new(ErrorCode::INTERNAL_ERROR, why))
            })
        })
    }
}
