//! Both ways between layers and tower.

use std::sync::Arc;
use std::task::{self, Poll};

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{Json, RpcError};
use tower_layer::Layer as TowerLayer;
use tower_service::Service;

use super::{Layer, Next};
use crate::exchange::{BoxFuture, Context, Responder};

/// A request and its context, as a tower service takes them.
#[derive(Clone, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a handler gets these two and no more"
)]
pub struct Arriving {
    /// What is asked.
    pub request: Request,
    /// What a handler may know and do for it.
    pub cx: Context,
}

/// A responder as a tower service.
///
/// # Examples
///
/// ```
/// use bowline::{Server, layer::ResponderService};
///
/// let service = ResponderService::new(Server::new("anywhere", "1.0.0"));
/// ```
#[derive(Clone)]
pub struct ResponderService(Arc<dyn Responder>);

impl ResponderService {
    /// The service that asks `responder`.
    #[must_use]
    pub fn new(responder: impl Responder) -> Self {
        Self(Arc::new(responder))
    }
}

impl Service<Arriving> for ResponderService {
    type Response = Json;
    type Error = RpcError;
    type Future = BoxFuture<'static, Outcome>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, arriving: Arriving) -> Self::Future {
        let responder = self.0.clone();
        Box::pin(async move { responder.respond(arriving.request, arriving.cx).await })
    }
}

impl std::fmt::Debug for ResponderService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponderService").finish_non_exhaustive()
    }
}

/// What comes after a tower layer, as a tower service.
#[derive(Clone, Debug)]
pub struct NextService(Next);

impl Service<Arriving> for NextService {
    type Response = Json;
    type Error = RpcError;
    type Future = BoxFuture<'static, Outcome>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, arriving: Arriving) -> Self::Future {
        let mut next = self.0.clone();
        next.cx = arriving.cx;
        next.run(arriving.request)
    }
}

/// A tower layer as one of ours.
///
/// The tower service is made anew for each request. A tower layer whose service keeps state of its own, such as
/// a rate, must share it behind the layer, as tower's own layers for concurrency and rates can.
///
/// # Examples
///
/// ```
/// use bowline::{Server, layer::FromTower};
/// use tower_layer::Identity;
///
/// let server = Server::new("layered", "1.0.0").layer(FromTower::new(Identity::new()));
/// ```
#[derive(Clone, Debug)]
pub struct FromTower<L>(L);

impl<L> FromTower<L> {
    /// Our form of `layer`.
    #[must_use]
    pub fn new(layer: L) -> Self {
        Self(layer)
    }
}

impl<L, S> Layer for FromTower<L>
where
    L: TowerLayer<NextService, Service = S> + Send + Sync + 'static,
    S: Service<Arriving, Response = Json, Error = RpcError> + Send + 'static,
    S::Future: Send + 'static,
{
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome> {
        let cx = next.context().clone();
        let mut service = self.0.layer(NextService(next));
        Box::pin(async move {
            std::future::poll_fn(|task| service.poll_ready(task)).await?;
            service.call(Arriving { request, cx }).await
        })
    }
}
