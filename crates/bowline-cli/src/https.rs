//! The HTTP client of commands that send other requests than those of MCP: with TLS, and the system's certificates.

use std::time::Duration;

use http_body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::failure::Failure;

/// Creates a client over HTTP/1.1, or HTTP/2 if TLS negotiates it. `is_https` tells whether certificates are needed.
pub(crate) fn client<B>(is_https: bool) -> Result<Client<HttpsConnector<HttpConnector>, B>, Failure>
where
    B: Body<Data: Send> + Send,
{
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let builder = HttpsConnectorBuilder::new();
    let provider = rustls::crypto::ring::default_provider();
    let builder = match is_https {
        true => builder
            .with_provider_and_native_roots(provider)
            .map_err(|error| {
                Failure::other("failed to load the system's root certificates").caused_by(error)
            })?,
        // No certificates are needed, and a system may have none.
        false => builder.with_tls_config(
            rustls::ClientConfig::builder_with_provider(provider.into())
                .with_safe_default_protocol_versions()
                .map_err(|error| Failure::other("failed to configure TLS").caused_by(error))?
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth(),
        ),
    };
    let connector = builder
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector);
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        // Shorter than servers keep idle connections open, so that none is used that is just being closed.
        .pool_idle_timeout(IDLE_TIMEOUT)
        .build(connector);
    Ok(client)
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
