//! TLS with ring, and the certificates of the system or of the application.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::{Client, TlsCertificates};
use rustls::CertificateError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::{ConnectError, ConnectOptions};

/// The certificates of the application. `Debug` does not print them.
#[derive(Clone, Default)]
pub(crate) struct TlsOptions {
    /// In PEM; those of the system if it is `None`.
    roots: Option<Vec<u8>>,
}

impl ConnectOptions {
    /// Trusts only servers whose certificate is signed by one of these authorities, in PEM, instead of those of the
    /// system. The URL must be a `rediss` one.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use bowline_redis::{ConnectOptions, Redis};
    ///
    /// # async fn example(key: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
    /// let options = ConnectOptions::new().root_certificates(std::fs::read("internal-ca.pem")?);
    /// let redis = Redis::connect_with("rediss://redis.internal:6379", options, key).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.roots = Some(pem.into());
        self
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("has_roots", &self.roots.is_some())
            .finish()
    }
}

/// Creates a client, which does not connect yet.
pub(crate) fn client(url: &str, options: &TlsOptions) -> Result<Client, ConnectError> {
    // The Redis client takes the installed provider, and fails without. Fails if the application has installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Some(roots) = &options.roots else {
        return Client::open(url).map_err(ConnectError::InvalidUrl);
    };
    check_roots(roots)?;
    let certificates = TlsCertificates {
        client_tls: None,
        root_cert: Some(roots.clone()),
    };
    Client::build_with_tls(url, certificates).map_err(ConnectError::InvalidUrl)
}

/// Refuses what the Redis client would take as an empty list.
fn check_roots(pem: &[u8]) -> Result<(), ConnectError> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates =
        certificates.map_err(|error| ConnectError::RootCertificates(error.into()))?;
    match certificates.is_empty() {
        true => Err(ConnectError::RootCertificates(
            "found no certificate in PEM".into(),
        )),
        false => Ok(()),
    }
}

/// Returns whether a connection failed because the authority of the server is not trusted.
pub(crate) fn is_untrusted(error: &(dyn StdError + 'static)) -> bool {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        // `BadSignature`: a trusted authority has the name of the issuer, but not its key.
        return matches!(
            found,
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature
            )
        );
    }
    // The source of a `RedisError` is in an `Arc`, and `io::Error::source` skips the error inside.
    if let Some(shared) = error.downcast_ref::<Arc<dyn StdError + Send + Sync>>() {
        return is_untrusted(&**shared);
    }
    let inner = match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    };
    inner.is_some_and(is_untrusted)
}
