//! Liveness and readiness, for the probes of load balancers and of Kubernetes.
//!
//! | | serving | draining | refusing |
//! |---|---|---|---|
//! | liveness: should the process be restarted? | 200 | 200 | 200 |
//! | readiness: should it get new connections? | 200 | 503 | 503 |
//!
//! A bound server answers them outside of its layers and of the source policy: a probe has no credentials, and often has
//! an address as its `Host`. The response reveals only that the server runs.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::sync::Arc;
use std::task::{self, Poll};

use ::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use ::http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use bowline_core::http::paths::EndpointPaths;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tower_service::Service;

use super::body;
use super::connections::{Admission, Connection};
use super::http2_streams::Http2Streams;
use super::{ConnectionAccount, HttpBody, HttpService, ServiceState, overloaded};
use crate::shutdown::Shutdown;

/// A `tower` service that answers the probes of a load balancer; returned by [`HttpService::liveness`] and
/// [`HttpService::readiness`]. A [bound](HttpService::bind) service answers them by itself.
///
/// # Examples
///
/// ```
/// use bowline::Server;
///
/// let mcp = Server::new("calculator", "1.0.0").http();
/// let (live, ready) = (mcp.liveness(), mcp.readiness());
/// // axum::Router::new()
/// //     .route_service("/mcp", mcp)
/// //     .route_service("/livez", live)
/// //     .route_service("/readyz", ready)
/// ```
#[derive(Clone, Debug)]
#[must_use = "a service does nothing until it is mounted"]
pub struct HealthService {
    probe: Probe,
    shutdown: Shutdown,
}

/// What a probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Liveness,
    Readiness,
}

impl HttpService {
    /// Returns a service for liveness probes: status 200 as long as it answers, also while the server
    /// [drains](Self::drain). A failure means that the process should be restarted.
    pub fn liveness(&self) -> HealthService {
        HealthService::new(Probe::Liveness, &self.state)
    }

    /// Returns a service for readiness probes: status 200, and 503 as soon as a [drain](Self::drain) begins. A failure
    /// means that new connections should go elsewhere.
    pub fn readiness(&self) -> HealthService {
        HealthService::new(Probe::Readiness, &self.state)
    }
}

impl HealthService {
    fn new(probe: Probe, state: &ServiceState) -> Self {
        Self {
            probe,
            shutdown: state.shutdown.clone(),
        }
    }
}

impl<B> Service<Request<B>> for HealthService {
    type Response = Response<HttpBody>;
    type Error = Infallible;
    type Future = Ready<Result<Response<HttpBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.probe.response(&self.shutdown, request.version())))
    }
}

impl Probe {
    fn response(self, shutdown: &Shutdown, version: Version) -> Response<HttpBody> {
        let is_draining = shutdown.is_draining();
        let (status, text) = match self {
            Self::Readiness if is_draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            Self::Liveness | Self::Readiness => (StatusCode::OK, "ok\n"),
        };
        let mut response = Response::new(HttpBody::from(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if is_draining {
            close_connection(version, &mut response);
        }
        response
    }
}

/// Closes an HTTP/1.1 connection after this response, so that the client opens its next one elsewhere. HTTP/2 has GOAWAY
/// instead, and forbids the header.
pub(super) fn close_connection(version: Version, response: &mut Response<HttpBody>) {
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

/// The paths at which a bound server answers probes.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthPaths(Vec<(String, Probe)>);

impl HealthPaths {
    pub(super) fn defaults() -> Self {
        Self(vec![
            (LIVENESS_PATH.to_owned(), Probe::Liveness),
            (READINESS_PATH.to_owned(), Probe::Readiness),
            (HEALTH_PATH.to_owned(), Probe::Readiness),
        ])
    }

    /// Answers a probe at `path`, in place of what is at `old`. MCP requests take precedence.
    pub(super) fn set(
        &mut self,
        old: &str,
        path: String,
        probe: Probe,
        endpoints: Option<&EndpointPaths>,
    ) {
        self.0.retain(|(own, _)| own != old && *own != path);
        if !endpoints.is_some_and(|endpoints| endpoints.matches(&path)) {
            self.0.push((path, probe));
        }
    }

    fn find<B>(&self, request: &Request<B>) -> Option<Probe> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let mut paths = self.0.iter().filter(|_| is_read);
        let (_, probe) = paths.find(|(path, _)| path == request.uri().path())?;
        Some(*probe)
    }
}

/// Converts a `tower` service into a service of hyper, which also answers probes, and refuses requests for which the
/// connection is not admitted or, over HTTP/2, the account of the connection has no room.
///
/// hyper-util's adapter in a second future would store each request twice, for as long as its response is pending.
pub(super) fn with_health<S>(
    state: &Arc<ServiceState>,
    paths: Option<Arc<HealthPaths>>,
    connection: &Arc<Connection>,
    http2: Option<Http2Streams>,
    service: S,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<HttpBody>,
    Error = Infallible,
    Future: Send + 'static,
> + use<S>
where
    S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let (state, connection) = (state.clone(), connection.clone());
    service_fn(move |mut request: Request<Incoming>| {
        let version = request.version();
        let probe = paths.as_ref().and_then(|paths| paths.find(&request));
        let unread = http2.as_ref().map(Http2Streams::charge).transpose();
        let admission = connection.begin_request();
        let is_full = matches!(admission, Admission::Full(_));
        let refused = match (&admission, &unread) {
            (Admission::Full(reached), _) | (_, Err(reached)) => Some(*reached),
            _ => None,
        };
        let early = match (probe, refused) {
            (Some(probe), _) => Some(probe.response(&state.shutdown, version)),
            (None, refused) => refused.map(|reached| body::rejection(overloaded(reached))),
        };
        let early = early.map(|mut response| {
            if is_full {
                close_connection(version, &mut response);
            }
            match &unread {
                Ok(_) => response,
                Err(_) => body::without_body(response),
            }
        });
        if let Some(http2) = &http2 {
            // Charges the request to the account of the connection.
            let account = ConnectionAccount(http2.account().clone());
            request.extensions_mut().insert(account);
        }
        let mut service = service.clone();
        async move {
            let running = match admission {
                Admission::Admitted(running) => Some(running),
                Admission::Full(_) => None,
                // The connection is being closed, and the request must not run.
                Admission::Evicted => std::future::pending().await,
            };
            let response = match early {
                Some(response) => response,
                None => {
                    poll_fn(|cx| service.poll_ready(cx)).await?;
                    service.call(request).await?
                }
            };
            Ok(body::on_connection(
                response,
                running,
                unread.unwrap_or_default(),
            ))
        }
    })
}

/// The default path of liveness probes.
pub(super) const LIVENESS_PATH: &str = "/livez";
/// The default path of readiness probes.
pub(super) const READINESS_PATH: &str = "/readyz";
/// Another default path of readiness probes.
pub(super) const HEALTH_PATH: &str = "/healthz";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Server;

    /// Returns the statuses of liveness and readiness, and whether they close the connection.
    fn probe(service: &HttpService) -> [(StatusCode, bool); 2] {
        [service.liveness(), service.readiness()].map(|mut health| {
            let response = health.call(Request::new(())).into_inner().unwrap();
            let closes = response.headers().contains_key(CONNECTION);
            (response.status(), closes)
        })
    }

    #[test]
    fn readiness_ends_with_the_beginning_of_a_drain_and_liveness_does_not() {
        const OK: StatusCode = StatusCode::OK;
        const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
        let service = Server::new("health", "1").http();

        let before = probe(&service);
        service.drain();
        let draining = probe(&service);
        service.shut_down(Duration::ZERO);

        assert_eq!(before, [(OK, false), (OK, false)]);
        assert_eq!(draining, [(OK, true), (UNAVAILABLE, true)]);
        assert_eq!(probe(&service), [(OK, true), (UNAVAILABLE, true)]);
    }

    #[test]
    fn http2_has_no_connection_header() {
        let shutdown = Shutdown::default();
        shutdown.drain();

        let response = Probe::Readiness.response(&shutdown, Version::HTTP_2);

        assert_eq!(response.headers().get(CONNECTION), None);
    }

    #[test]
    fn only_reads_of_a_health_path_are_probes() {
        let find = |paths: &HealthPaths, method, path| {
            let request = Request::builder().method(method).uri(path).body(());
            paths.find(&request.unwrap())
        };
        let paths = HealthPaths::defaults();

        assert_eq!(
            find(&paths, Method::GET, "/livez?verbose"),
            Some(Probe::Liveness)
        );
        assert_eq!(
            find(&paths, Method::HEAD, "/readyz"),
            Some(Probe::Readiness)
        );
        assert_eq!(
            find(&paths, Method::GET, "/healthz"),
            Some(Probe::Readiness)
        );
        assert_eq!(find(&paths, Method::POST, "/livez"), None);
        assert_eq!(find(&paths, Method::GET, "/mcp"), None);
        assert_eq!(find(&HealthPaths::default(), Method::GET, "/livez"), None);
    }

    #[test]
    fn a_path_that_is_set_replaces_the_default() {
        let mut paths = HealthPaths::defaults();

        paths.set(HEALTH_PATH, "/livez".to_owned(), Probe::Readiness, None);

        let found = paths.find(&Request::get("/livez").body(()).unwrap());
        assert_eq!(found, Some(Probe::Readiness), "as it was set");
        assert_eq!(
            paths.find(&Request::get("/healthz").body(()).unwrap()),
            None
        );
    }
}
