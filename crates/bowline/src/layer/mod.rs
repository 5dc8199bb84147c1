//! Layers: middleware around every request, on every transport.
//!
//! A layer is an async function of a request and [`Next`]. It may read or change the request, answer it, pass it on,
//! and read or change the outcome.
//!
//! ```
//! use bowline::layer::Next;
//! use bowline::exchange::{Outcome, Request};
//!
//! async fn time(request: Request, next: Next) -> Outcome {
//!     let (method, started) = (request.method.clone(), std::time::Instant::now());
//!     let outcome = next.run(request).await;
//!     println!("{method} took {:?}", started.elapsed());
//!     outcome
//! }
//! ```
//!
//! # Cancel safety
//!
//! When a request is cancelled, the layer's future is dropped together with the handler's inside it.

mod concurrency_limit;
pub use concurrency_limit::ConcurrencyLimit;

mod progress_heartbeat;
pub use progress_heartbeat::ProgressHeartbeat;

mod timeout;
pub use timeout::Timeout;

mod tower;
pub use tower::{FromTower, NextService, ResponderService, ServiceRequest};

use std::future::Future;
use std::sync::Arc;

use bowline_core::Outcome;
use bowline_core::era::Request;

use crate::exchange::{BoxFuture, Context, Principal};

/// Middleware around requests.
///
/// # Examples
///
/// ```
/// use bowline::Server;
/// use bowline::exchange::{Outcome, Principal, Request};
/// use bowline::layer::Next;
///
/// /// Runs every request on behalf of Ada.
/// async fn as_ada(request: Request, next: Next) -> Outcome {
///     next.with_principal(Principal::named("ada")).run(request).await
/// }
///
/// let server = Server::new("calculator", "1.0.0").layer(as_ada);
/// ```
///
/// A closure that captures:
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use bowline::Server;
/// use bowline::exchange::Request;
/// use bowline::layer::Next;
///
/// let count = Arc::new(AtomicUsize::new(0));
/// let counter = count.clone();
/// let server = Server::new("calculator", "1.0.0").layer(move |request: Request, next: Next| {
///     counter.fetch_add(1, Ordering::Relaxed);
///     async move { next.run(request).await }
/// });
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Handles a request; `next` passes it on to the inner layers and the responder.
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome>;
}

impl<F, R> Layer for F
where
    F: Fn(Request, Next) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome> {
        Box::pin(self(request, next))
    }
}

/// The inner layers and the responder, as seen from a layer.
#[derive(Clone)]
#[must_use = "the inner layers and the responder run only if `run` is called"]
pub struct Next {
    stack: Arc<LayerStack>,
    /// The number of outer layers, which have run already.
    depth: usize,
    cx: Context,
}

struct LayerStack {
    layers: Vec<Arc<dyn Layer>>,
    inner: Box<InnerFn>,
}

/// Answers a request that has passed all layers.
type InnerFn = dyn Fn(Request, Context) -> BoxFuture<'static, Outcome> + Send + Sync;

impl Next {
    /// Creates the start of a stack: all of `layers`, then `inner`.
    pub(crate) fn new(
        layers: &[Arc<dyn Layer>],
        inner: impl Fn(Request, Context) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
        cx: Context,
    ) -> Self {
        let stack = LayerStack {
            layers: layers.to_vec(),
            inner: Box::new(inner),
        };
        Self {
            stack: Arc::new(stack),
            depth: 0,
            cx,
        }
    }

    /// Returns the context of the request.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// Sets the principal of the request, for layers that have verified a credential.
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.cx = self.cx.with_principal(principal);
        self
    }

    /// Passes the request to the next layer, or to the responder after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handler.
    pub fn run(self, request: Request) -> BoxFuture<'static, Outcome> {
        match self.stack.layers.get(self.depth).cloned() {
            Some(layer) => layer.handle(
                request,
                Self {
                    depth: self.depth + 1,
                    ..self
                },
            ),
            None => (self.stack.inner)(request, self.cx),
        }
    }
}

impl std::fmt::Debug for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ahead = self.stack.layers.len() - self.depth;
        f.debug_struct("Next")
            .field("layers_ahead", &ahead)
            .finish_non_exhaustive()
    }
}
