//! TLS, which the NATS client does with ring.

use std::error::Error as StdError;
use std::io;

use async_nats::rustls;
use rustls::CertificateError;

/// Installs ring as the cryptography provider of `rustls`, unless the application has chosen a provider. The NATS client
/// uses the installed provider; without it, a program that links two providers panics.
pub(crate) fn install_provider() {
    // Fails if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
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
    // `io::Error::source` skips the error inside.
    let inner = match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    };
    inner.is_some_and(is_untrusted)
}
