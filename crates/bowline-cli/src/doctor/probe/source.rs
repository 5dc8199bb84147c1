//! Requests from another origin, for another host, and preflight requests of a browser.

use http::Method;

use super::http::{Endpoint, HttpOutcome, Outgoing};

/// The answers to a harmless request, as it is and in disguise.
#[derive(Clone, Debug)]
pub(crate) struct SourceFacts {
    pub(crate) plain: HttpOutcome,
    /// With the Origin of an unknown web page.
    pub(crate) origin: HttpOutcome,
    /// With another Host; only if the server is on this machine.
    pub(crate) host: Option<HttpOutcome>,
    pub(crate) preflight: HttpOutcome,
}

/// Sends `request`, which must change nothing.
pub(crate) async fn examine_source(endpoint: &Endpoint, request: &Outgoing) -> SourceFacts {
    let plain = endpoint.send(request).await;
    let origin = endpoint
        .send(&request.clone().with("origin", FOREIGN_ORIGIN))
        .await;
    let host = match endpoint.address.is_loopback() && !endpoint.address.is_tls {
        true => Some(
            endpoint
                .send(&request.clone().with("host", FOREIGN_HOST))
                .await,
        ),
        false => None,
    };
    let preflight = Outgoing::new(Method::OPTIONS)
        .with("origin", FOREIGN_ORIGIN)
        .with("access-control-request-method", "POST")
        .with("access-control-request-headers", REQUEST_HEADERS);
    // A browser sends no credentials with it.
    let anonymous = Endpoint {
        headers: http::HeaderMap::new(),
        ..endpoint.clone()
    };
    SourceFacts {
        plain,
        origin,
        host,
        preflight: anonymous.send(&preflight).await,
    }
}

/// Reserved for names that do not exist.
pub(crate) const FOREIGN_ORIGIN: &str = "https://bowline-doctor.invalid";
const FOREIGN_HOST: &str = "bowline-doctor.invalid";
/// What a client in a browser sends.
const REQUEST_HEADERS: &str = "content-type,authorization,mcp-protocol-version,mcp-method,mcp-name";
