//! Adapters for tower: a responder as a service, a tower layer as a [`Layer`].

use std::sync::Arc;
use std::task::{self, Poll};

use bowline_core::Outcome;
use bowline_core::era::Request;
use bowline_types::{Json, RpcError};
use tower_layer::Layer as TowerLayer;
use tower_service::Service;

use super::{Layer, Next};
use crate::exchange::{BoxFuture, Context, Responder};

/// A request and its context: the request type of [`ResponderService`] and [`NextService`].
#[derive(Clone, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a responder takes exactly these two"
)]
pub struct ServiceRequest {
    /// The request.
    pub request: Request,
    /// The context of the request.
    pub cx: Context,
}

/// A responder as a tower service.
///
/// # Examples
///
/// ```
/// use bowline::{Server, layer::ResponderService};
///
/// let service = ResponderService::new(Server::new("calculator", "1.0.0"));
/// ```
#[derive(Clone)]
pub struct ResponderService(Arc<dyn Responder>);

impl ResponderService {
    /// Creates a service that passes requests to `responder`.
    #[must_use]
    pub fn new(responder: impl Responder) -> Self {
        Self(Arc::new(responder))
    }
}

impl Service<ServiceRequest> for ResponderService {
    type Response = Json;
    type Error = RpcError;
    type Future = BoxFuture<'static, Outcome>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ServiceRequest) -> Self::Future {
        let responder = self.0.clone();
        Box::pin(async move { responder.respond(request.request, request.cx).await })
    }
}

impl std::fmt::Debug for ResponderService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponderService").finish_non_exhaustive()
    }
}

/// [`Next`] as a tower service: the inner service of a tower layer.
#[derive(Clone, Debug)]
pub struct NextService(Next);

impl Service<ServiceRequest> for NextService {
    type Response = Json;
    type Error = RpcError;
    type Future = BoxFuture<'static, Outcome>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ServiceRequest) -> Self::Future {
        let mut next = self.0.clone();
        next.cx = request.cx;
        next.run(request.request)
    }
}

/// A [`Layer`] made from a tower layer.
///
/// The tower layer creates a service for each request. State that spans requests, such as a rate limit, must be kept in
/// the layer, not in the service, as tower's `GlobalConcurrencyLimitLayer` does.
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
    /// Wraps a tower layer.
    #[must_use]
    pub fn new(layer: L) -> Self {
        Self(layer)
    }
}

impl<L, S> Layer for FromTower<L>
where
    L: TowerLayer<NextService, Service = S> + Send + Sync + 'static,
    S: Service<ServiceRequest, Response = Json, Error = RpcError> + Send + 'static,
    S::Future: Send + 'static,
{
    fn handle(&self, request: Request, next: Next) -> BoxFuture<'static, Outcome> {
        let cx = next.context().clone();
        let mut service = self.0.layer(NextService(next));
        Box::pin(async move {
            std::future::poll_fn(|task| service.poll_ready(task)).await?;
            service.call(ServiceRequest { request, cx }).await
        })
    }
}
