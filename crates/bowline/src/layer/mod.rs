//! Layers: what is done around every request, whatever carries it.
//!
//! A layer is an async function of a request and what comes next. It may look at the request, change it,
//! answer it itself, pass it on, look at the outcome, or change that.
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
//! When the caller gives up, the layer's future is dropped together with the handler's inside it.

mod limit;
pub use limit::Limit;

mod timeout;
pub use timeout::Timeout;

mod tower;
pub use tower::{Arriving, FromTower, NextService, ResponderService};

mod trace;
pub use trace::Trace;

use std::future::Future;
use std::sync::Arc;

use bowline_core::Outcome;
use bowline_core::era::{Caller, Request};
use bowline_types::ClientCapabilities;

use crate::exchange::{BoxFuture, Context, Params, Principal, Responder};

/// Something that is done around requests.
///
/// # Examples
///
/// ```
/// use bowline::Server;
/// use bowline::exchange::{Outcome, Principal, Request};
/// use bowline::layer::Next;
///
/// /// Everybody is Ada here.
/// async fn as_ada(request: Request, next: Next) -> Outcome {
///     next.on_behalf_of(Principal::named("ada")).run(request).await
/// }
///
/// let server = Server::new("trusting", "1.0.0").layer(as_ada);
/// ```
pub trait Layer: Send + Sync + 'static {
    /// Handles a request on its way in, and its outcome on the way out.
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

/// What comes after a layer: the layers inside it, and at last the responder.
#[derive(Clone)]
#[must_use = "a request that is not passed on is not answered"]
pub struct Next {
    stack: Arc<Stack>,
    /// How many layers are behind us.
    passed: usize,
    cx: Context,
}

struct Stack {
    layers: Vec<Arc<dyn Layer>>,
    responder: Arc<dyn Responder>,
}

impl Next {
    /// All of `layers`, and then `responder`.
    pub(crate) fn around(
        layers: &[Arc<dyn Layer>],
        responder: impl Responder,
        cx: Context,
    ) -> Self {
        let stack = Stack {
            layers: layers.to_vec(),
            responder: Arc::new(responder),
        };
        Self {
            stack: Arc::new(stack),
            passed: 0,
            cx,
        }
    }

    /// What a handler may know and do for the current request.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// Says on whose behalf the request is made. For layers that have checked a credential.
    pub fn on_behalf_of(mut self, principal: Principal) -> Self {
        self.cx = self.cx.with_principal(principal);
        self
    }

    /// Passes the request on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handler.
    pub fn run(self, request: Request) -> BoxFuture<'static, Outcome> {
        match self.stack.layers.get(self.passed).cloned() {
            Some(layer) => layer.handle(
                request,
                Self {
                    passed: self.passed + 1,
                    ..self
                },
            ),
            None => Box::pin(async move { self.stack.responder.respond(request, self.cx).await }),
        }
    }
}

impl std::fmt::Debug for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ahead = self.stack.layers.len() - self.passed;
        f.debug_struct("Next")
            .field("layers_ahead", &ahead)
            .finish_non_exhaustive()
    }
}

/// A responder with layers around it. The first layer is the outermost.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::layer::{Layered, Timeout};
/// use bowline::{Client, Server};
///
/// # async fn example(server: Server) -> bowline::Result<()> {
/// let patient = Layered::new(server).layer(Timeout::new(Duration::from_secs(10)));
/// let client = Client::to(&patient).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Layered {
    stack: Arc<Stack>,
}

impl Layered {
    /// `responder` without any layer yet.
    #[must_use]
    pub fn new(responder: impl Responder) -> Self {
        let stack = Stack {
            layers: Vec::new(),
            responder: Arc::new(responder),
        };
        Self {
            stack: Arc::new(stack),
        }
    }

    /// Adds a layer inside those that are there.
    #[must_use]
    pub fn layer(self, layer: impl Layer) -> Self {
        let mut layers = self.stack.layers.clone();
        layers.push(Arc::new(layer));
        let stack = Stack {
            layers,
            responder: self.stack.responder.clone(),
        };
        Self {
            stack: Arc::new(stack),
        }
    }
}

impl Responder for Layered {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        Next {
            stack: self.stack.clone(),
            passed: 0,
            cx,
        }
        .run(request)
    }

    fn scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
        self.stack.responder.scopes(method, params)
    }

    fn check(&self) -> crate::Result<()> {
        self.stack.responder.check()
    }

    fn roots_changed(&self, caller: &Caller) {
        self.stack.responder.roots_changed(caller);
    }

    fn answers(&self) -> ClientCapabilities {
        self.stack.responder.answers()
    }
}

impl std::fmt::Debug for Layered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layered")
            .field("layers", &self.stack.layers.len())
            .finish_non_exhaustive()
    }
}
