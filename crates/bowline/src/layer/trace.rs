//! [`Trace`], a layer that opens a `tracing` span for each request.

use std::time::Instant;

use bowline_core::era::Request;
use bowline_core::{Outcome, shortened};
use tracing::Instrument as _;

use super::{Layer, Next};
use crate::exchange::BoxFuture;

/// Opens a `tracing` span for each request, with its method, id, protocol version and `traceparent`, so that a
/// subscriber can continue the caller's trace. A handler passes it on to other servers with
/// [`RequestBuilder::trace`](crate::client::RequestBuilder::trace).
///
/// # Examples
///
/// ```
/// use bowline::{Server, layer::Trace};
///
/// let server = Server::new("calculator", "1.0.0").layer(Trace::new());
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Trace;

impl Trace {
    /// Creates the layer.
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
                    Ok(_) => tracing::info!(?elapsed, "completed"),
                    Err(error) => tracing::info!(?elapsed, error = %shortened(error), "failed"),
                }
                outcome
            }
            .instrument(span),
        )
    }
}
