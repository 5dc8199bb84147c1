//! Sessions of legacy clients over HTTP.

use std::time::Duration;

use bowline::Limits;
use bowline::http::HttpService;
use bowline::http::legacy::Legacy;

/// Serves legacy clients over Streamable HTTP and HTTP+SSE. If each session may have a connection of its own, out of
/// `max_connections`, there are half as many sessions, so that new ones and modern clients find a connection.
pub(crate) fn serve(
    service: HttpService,
    max_connections: Option<usize>,
    idle_timeout: Duration,
) -> HttpService {
    let legacy = Legacy::sessions().http_sse().idle_timeout(idle_timeout);
    let service = service.legacy(legacy);
    let Some(max_connections) = max_connections else {
        return service;
    };
    service.limits(Limits {
        sessions: (max_connections / 2).max(1),
        ..Limits::default()
    })
}
