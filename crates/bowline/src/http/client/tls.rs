//! `HyperClient` with TLS: rustls with ring, and the root certificates of the system.

use std::sync::Arc;

use hyper_rustls::HttpsConnectorBuilder;

use super::connection::{HttpVersionPolicy, service_connector};
use super::hyper_client::ConnectionOptions;
use super::pool::Pool;
use super::proxy::TcpConnector;
use super::{HttpClient, HyperClient};
use crate::{Error, Result};

impl HyperClient {
    /// Creates a client for `http` and `https`, through the proxies of the environment. Uses HTTP/2 if the server
    /// offers it in the TLS handshake.
    ///
    /// # Errors
    ///
    /// If the system's root certificates cannot be loaded.
    pub fn new() -> Result<Self> {
        Self::secure(&ConnectionOptions::default())
    }

    fn secure(options: &ConnectionOptions) -> Result<Self> {
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| Error::Transport {
                what: "failed to load the system's root certificates".into(),
                source: Some(error.into()),
            })?;
        let proxies = options.proxies.matcher();
        let tcp = TcpConnector::new(proxies.clone(), options.connect_timeout);
        let tls = tls.https_or_http();
        let connector = match options.version_policy {
            HttpVersionPolicy::Negotiated => tls.enable_all_versions().wrap_connector(tcp),
            HttpVersionPolicy::Http2Only => tls.enable_http2().wrap_connector(tcp),
        };
        let connector = service_connector(connector);
        let pool = Pool::new(connector, options.version_policy, options.connect_timeout);
        Ok(Self::from_pool(pool).with_proxies(proxies))
    }
}

/// Returns the HTTP client for `https` URLs.
pub(super) fn secure(options: &ConnectionOptions) -> Result<Arc<dyn HttpClient>> {
    Ok(Arc::new(HyperClient::secure(options)?))
}
