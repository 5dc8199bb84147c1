//! A span around each request.

use std::time::Instant;

use bowline_core::era::Request;
use bowline_core::{Outcome, shortened};
use tracing::Instrument as _;

use super::{Layer, Next};
use crate::exchange::BoxFuture;

/// Puts a `tracing` span around each request, with its method, id and caller, and the `traceparent` that the
/// caller sent, so that a subscriber can continue the caller's trace. What a handler asks of other servers
/// carries it on by [`Draft::trace`](crate::client::Draft::trace).
///
/// # Examples
///
/// ```
/// use bowline::{Server, layer::Trace};
///
/// let server = Server::new("observed", "1.0.0").layer(Trace::new());
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Trace;

impl Trace {
    /// The layer.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl Layer for Trace {
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome> {
        let span = tracing::info_span!(
            "request",
            method = %shortened(&request.method),
            id = %shortened(next.context().request_id()),
            version = request.caller.dialect.version,
            traceparent = tracing::field::Empty,
        );
        if span.is_disabled() {
            return next.run(request);
        }
        if let Some(trace) = next.context().trace() {
            span.record("traceparent", trace.traceparent());
        }
        let started = Instant::now();
        Box::pin(
            async move {
                let outcome = next.run(request).await;
                let elapsed = started.elapsed();
                match &outcome {
                    Ok(_) => tracing::info!(?elapsed, "answered"),
                    Err(error) => tracing::info!(?elapsed, error = %shortened(error), "refused"),
                }
                outcome
            }
            .instrument(span),
        )
    }
}
