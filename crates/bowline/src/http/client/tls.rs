//! Requests in TLS: with ring, and the certificates of the system.

use std::sync::Arc;

use hyper_rustls::HttpsConnectorBuilder;

use super::connection::Versions;
use super::hyper_send::Reaching;
use super::pool::Pool;
use super::proxy::TcpConnector;
use super::{HttpSend, HyperSend};
use crate::{Error, Result};

impl HyperSend {
    /// Over TCP, with TLS for `https`; HTTP/2 where the server offers it in the TLS handshake; through the
    /// proxies that the environment names.
    ///
    /// # Errors
    ///
    /// If the system's certificates cannot be read.
    pub fn new() -> Result<Self> {
        Self::secure(&Reaching::default())
    }

    fn secure(reaching: &Reaching) -> Result<Self> {
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| Error::Transport {
                what: "the system's certificates cannot be read".into(),
                source: Some(error.into()),
            })?;
        let proxies = reaching.proxies.matcher();
        let tcp = TcpConnector::new(proxies.clone(), reaching.connect_timeout);
        let tls = tls.https_or_http();
        let connector = match reaching.versions {
            Versions::Negotiated => tls.enable_all_versions().wrap_connector(tcp),
            Versions::Http2Only => tls.enable_http2().wrap_connector(tcp),
        };
        let pool = Pool::over(connector, reaching.versions, reaching.connect_timeout);
        Ok(Self::by(pool).through(proxies))
    }
}

/// What sends to `https`.
pub(super) fn secure(reaching: &Reaching) -> Result<Arc<dyn HttpSend>> {
    Ok(Arc::new(HyperSend::secure(reaching)?))
}
