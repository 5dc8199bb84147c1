//! The health path of a bound server: status 200 while it serves, and 503 once it shuts down on connections that are still
//! open. The listener is closed then, so that probes on new connections fail.
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

/// Converts a `tower` service into a service of hyper, which also answers at `health_path`. Calls `on_request` for every
/// request, also for those at the health path.
///
/// hyper-util's adapter in a second future would store each request twice, for as long as its response is pending.
pub(super) fn with_health<S, F>(
    state: &Arc<ServiceState>,
    health_path: Option<Arc<str>>,
    on_request: F,
    service: S,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<HttpBody>,
    Error = Infallible,
    Future: Send + 'static,
> + use<S, F>
where
    F: Fn(&mut Request<Incoming>),
    S: Service<Request<Incoming>, Response = Response<HttpBody>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let state = state.clone();
    service_fn(move |mut request: Request<Incoming>| {
        on_request(&mut request);
        let is_health = is_health_request(health_path.as_deref(), &request);
        let health = is_health.then(|| status(&state));
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

fn is_health_request<B>(health_path: Option<&str>, request: &Request<B>) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    is_read && health_path == Some(request.uri().path())
}

fn status(state: &ServiceState) -> StatusCode {
    match state.shutdown.is_requested() {
        false => StatusCode::OK,
        true => StatusCode::SERVICE_UNAVAILABLE,
    }
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

/// The default health path of a bound server.
pub(super) const HEALTH_PATH: &str = "/healthz";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Server;

    #[test]
    fn the_status_is_503_after_a_shutdown_was_requested() {
        let service = Server::new("health", "1").http();

        let before = status(&service.state);
        service.shut_down(Duration::ZERO);

        assert_eq!(before, StatusCode::OK);
        assert_eq!(status(&service.state), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn only_reads_of_the_health_path_are_health_requests() {
        let is_health = |health_path, method, path| {
            let request = Request::builder().method(method).uri(path).body(());
            is_health_request(health_path, &request.unwrap())
        };

        assert!(is_health(Some("/livez"), Method::GET, "/livez?verbose"));
        assert!(is_health(Some("/livez"), Method::HEAD, "/livez"));
        assert!(!is_health(Some("/livez"), Method::POST, "/livez"));
        assert!(!is_health(Some("/livez"), Method::GET, "/mcp"));
        assert!(!is_health(None, Method::GET, "/livez"));
    }
}
