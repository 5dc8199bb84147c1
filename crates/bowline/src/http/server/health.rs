//! The health path of a bound server: status 200 while it serves, 503 once it shuts down.
//!
//! It is answered outside of the layers and of the source policy: a probe of a load balancer has no credentials, and
//! often has an address as its `Host`. The response reveals only that the server runs.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tower_service::Service;

use super::{HttpBody, ServiceState};

/// Converts a `tower` service into a service of hyper, which also answers at the health path of `state`.
///
/// hyper-util's adapter in a second future would store each request twice, for as long as its response is pending.
pub(super) fn with_health<S>(
    state: &Arc<ServiceState>,
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
    let state = state.clone();
    service_fn(move |request: Request<Incoming>| {
        let health = health(&state, request.method(), request.uri().path());
        let mut service = service.clone();
        async move {
            if let Some(status) = health {
                return Ok(response(status));
            }
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        }
    })
}

/// Returns the status of a request at the health path; `None` for other requests.
fn health(state: &ServiceState, method: &Method, path: &str) -> Option<StatusCode> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    if !is_read || state.health_path != Some(path) {
        return None;
    }
    Some(match state.shutdown.is_requested() {
        false => StatusCode::OK,
        true => StatusCode::SERVICE_UNAVAILABLE,
    })
}

fn response(status: StatusCode) -> Response<HttpBody> {
    let text = match status {
        StatusCode::OK => "ok\n",
        _ => "shutting down\n",
    };
    let mut response = Response::new(HttpBody::from(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The health path of a bound server.
pub(super) const HEALTH_PATH: &str = "/healthz";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Server;

    #[test]
    fn the_health_path_has_status_503_after_a_shutdown_was_requested() {
        let service = Server::new("health", "1").http();
        let service = service.modify(|state| state.health_path = Some(HEALTH_PATH));
        let status = |method, path| Some(health(&service.state, method, path)?.as_u16());

        assert_eq!(status(&Method::GET, HEALTH_PATH), Some(200));
        assert_eq!(status(&Method::HEAD, HEALTH_PATH), Some(200));
        assert_eq!(status(&Method::POST, HEALTH_PATH), None);
        assert_eq!(status(&Method::GET, "/mcp"), None);
        service.shut_down(Duration::ZERO);
        assert_eq!(status(&Method::GET, HEALTH_PATH), Some(503));
    }

    #[test]
    fn a_mounted_service_has_no_health_path() {
        let service = Server::new("health", "1").http();

        assert_eq!(health(&service.state, &Method::GET, HEALTH_PATH), None);
    }
}
