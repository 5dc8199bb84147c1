//! `HyperClient` with TLS: rustls with ring, the root certificates of the system, and those of the application.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use hyper_rustls::HttpsConnectorBuilder;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::connection::{BoxError, Connector, HttpVersionPolicy, service_connector};
use super::hyper_client::ConnectionOptions;
use super::pool::Pool;
use super::proxy::TcpConnector;
use super::{HttpClient, HyperClient};
use crate::http::pem;
use crate::{Error, Result};

/// The certificates that the application added. `Debug` does not print them.
#[derive(Clone, Default)]
pub(crate) struct TlsOptions {
    roots: Vec<CertificateDer<'static>>,
    identity: Option<Arc<Identity>>,
}

/// The certificate of the client, with its intermediate ones, and its private key.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl TlsOptions {
    pub(crate) fn add_root(&mut self, pem: &[u8]) -> Result<()> {
        let added = pem::certificates("the root certificate", pem)?;
        self.roots.extend(added);
        Ok(())
    }

    pub(crate) fn set_identity(&mut self, chain: &[u8], key: &[u8]) -> Result<()> {
        let chain = pem::certificates("the client certificate", chain)?;
        let key = pem::private_key("the private key of the client certificate", key)?;
        self.identity = Some(Arc::new(Identity { chain, key }));
        Ok(())
    }

    fn config(&self) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("the TLS configuration", &error))?
            .with_root_certificates(self.roots()?);
        let Some(identity) = &self.identity else {
            return Ok(config.with_no_client_auth());
        };
        let (chain, key) = (identity.chain.clone(), identity.key.clone_key());
        config
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable("the client certificate and its private key", &error))
    }

    /// Returns the roots of the system and those that were added. The system may have none if some were added.
    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        let (usable, _) = roots.add_parsable_certificates(system.certs);
        if usable == 0 && self.roots.is_empty() {
            let error = system.errors.into_iter().next();
            return Err(Error::Transport {
                what: "failed to load the system's root certificates".into(),
                source: error.map(Into::into),
            });
        }
        for root in &self.roots {
            roots
                .add(root.clone())
                .map_err(|error| unusable("the root certificate", &error))?;
        }
        Ok(roots)
    }
}

impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions")
            .field("roots", &self.roots.len())
            .field("has_identity", &self.identity.is_some())
            .finish()
    }
}

fn unusable(what: &str, error: &rustls::Error) -> Error {
    Error::misuse(format!("{what} cannot be used: {error}"))
}

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
        let tls = HttpsConnectorBuilder::new().with_tls_config(options.tls.config()?);
        let proxies = options.proxies.matcher();
        let tcp = TcpConnector::new(proxies.clone(), options.connect_timeout);
        let tls = tls.https_or_http();
        let connector = match options.version_policy {
            HttpVersionPolicy::Negotiated => tls.enable_all_versions().wrap_connector(tcp),
            HttpVersionPolicy::Http2Only => tls.enable_http2().wrap_connector(tcp),
        };
        let connector = with_explained_errors(service_connector(connector));
        let pool = Pool::new(connector, options.version_policy, options.connect_timeout);
        Ok(Self::from_pool(pool).with_proxies(proxies))
    }
}

/// Returns the HTTP client for `https` URLs.
pub(super) fn secure(options: &ConnectionOptions) -> Result<Arc<dyn HttpClient>> {
    Ok(Arc::new(HyperClient::secure(options)?))
}

fn with_explained_errors(connector: impl Connector) -> impl Connector {
    move |uri| {
        let connecting = connector.connect(uri);
        async move { connecting.await.map_err(explain) }
    }
}

/// Adds what to do to the error of an untrusted certificate.
fn explain(error: BoxError) -> BoxError {
    match find_rustls_error(&*error) {
        // `BadSignature`: a trusted authority has the name of the issuer, but not its key.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => Box::new(UntrustedCertificate(error)),
        _ => error,
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the server's certificate is not signed by a trusted authority; add its authority with `add_root_certificate`"
)]
struct UntrustedCertificate(#[source] BoxError);

fn find_rustls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    // `io::Error::source` skips the error inside.
    let inner = match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    };
    find_rustls_error(inner?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_key() {
        let mut options = TlsOptions::default();
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        let set = options.set_identity(certificate.as_bytes(), key.as_bytes());

        assert!(set.is_ok());
        let shown = format!("{options:?}");
        assert_eq!(shown, "TlsOptions { roots: 0, has_identity: true }");
    }
}
