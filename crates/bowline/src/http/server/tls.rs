//! TLS for [`BoundServer`]: the certificate of the server, and the handshake of each connection.

use std::sync::Arc;
use std::time::Duration;

use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::BoundServer;
use crate::http::pem;
use crate::signal::Signal;
use crate::{Error, Result};

/// The certificate and the private key of a server, for [`BoundServer::tls`]. `Debug` does not print them.
///
/// Offers TLS 1.2 and 1.3, and HTTP/2 and HTTP/1.1 by ALPN.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use bowline::Server;
/// use bowline::http::server::TlsConfig;
///
/// let tls = TlsConfig::from_pem(std::fs::read("chain.pem")?, std::fs::read("key.pem")?)?;
/// let bound = Server::new("calculator", "1.0.0").http().bind("0.0.0.0:8443").await?;
/// bound.tls(tls).serve_until_signal().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "it has no effect until it is passed to `BoundServer::tls`"]
pub struct TlsConfig {
    config: Arc<ServerConfig>,
}

impl TlsConfig {
    /// Reads a certificate, followed by its intermediate certificates, and its private key (PKCS #8, PKCS #1 or SEC 1).
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if one of them is missing or malformed, or the key does not belong to the certificate.
    pub fn from_pem(
        certificate_chain: impl AsRef<[u8]>,
        private_key: impl AsRef<[u8]>,
    ) -> Result<Self> {
        let chain = pem::certificates("the certificate chain", certificate_chain.as_ref())?;
        let key = pem::private_key("the private key", private_key.as_ref())?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|error| unusable("the certificate and its private key", &error))?;
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        Self::new(WebPkiClientVerifier::no_client_auth(), resolver)
    }

    /// Requires clients to have a certificate that is signed by one of these authorities. Connections without one are
    /// closed in the handshake.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if there is no certificate in `authorities`, or one is malformed.
    pub fn require_client_certificate(self, authorities: impl AsRef<[u8]>) -> Result<Self> {
        let what = "the certificate of the clients' authority";
        let mut roots = RootCertStore::empty();
        for certificate in pem::certificates(what, authorities.as_ref())? {
            roots
                .add(certificate)
                .map_err(|error| unusable(what, &error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| unusable(what, &error))?;
        Self::new(verifier, self.config.cert_resolver.clone())
    }

    fn new(
        clients: Arc<dyn ClientCertVerifier>,
        resolver: Arc<dyn ResolvesServerCert>,
    ) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("the TLS configuration", &error))?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Performs the handshake of a connection; `None` if it fails, takes too long, or `ended` is raised before.
    pub(super) async fn accept(
        &self,
        ended: &Signal,
        stream: TcpStream,
    ) -> Option<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.config.clone());
        let handshake = acceptor.accept_with(stream, |connection| {
            connection.set_buffer_limit(Some(MAX_UNSENT_BYTES));
        });
        let accepted = tokio::select! {
            biased;
            accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake) => accepted,
            () = ended.wait() => return None,
        };
        match accepted {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("no TLS handshake within {HANDSHAKE_TIMEOUT:?}"),
        }
        None
    }
}

impl<S> BoundServer<S> {
    /// Serves over TLS. A connection counts against [`Limits::connections`](crate::Limits::connections) from its first
    /// byte, and is closed if its handshake takes longer than ten seconds.
    pub fn tls(mut self, config: TlsConfig) -> Self {
        self.tls = Some(config);
        self
    }
}

impl std::fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsConfig").finish_non_exhaustive()
    }
}

fn unusable(what: &str, error: &dyn std::error::Error) -> Error {
    Error::misuse(format!("{what} cannot be used: {error}"))
}

/// How long a client may take for the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How much a connection may hold encrypted and not yet written: one record. hyper holds back the rest, which is
/// charged.
const MAX_UNSENT_BYTES: usize = 16 * 1024;
