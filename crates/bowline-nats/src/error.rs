//! [`ConnectError`].

use bowline::cluster::Unavailable;

use crate::tls;

/// Why a connection to NATS could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The server could not be reached.
    #[error("failed to connect to NATS")]
    Unavailable(#[source] Unavailable),
    /// The certificate of the server is signed by an authority that is not trusted.
    #[error(
        "the certificate of the server is not signed by a trusted authority; add its authority with `ConnectOptions::add_root_certificates`"
    )]
    UntrustedCertificate(#[source] Unavailable),
    /// The stream of marks could not be created: the server has no JetStream, or is older than 2.11.
    #[error("failed to create the stream of marks; JetStream of NATS 2.11 or newer is required")]
    Stream(#[source] async_nats::jetstream::context::CreateStreamError),
}

impl From<Unavailable> for ConnectError {
    fn from(error: Unavailable) -> Self {
        Self::Unavailable(error)
    }
}

impl From<async_nats::ConnectError> for ConnectError {
    fn from(error: async_nats::ConnectError) -> Self {
        match tls::is_untrusted(&error) {
            true => Self::UntrustedCertificate(unavailable(error)),
            false => Self::Unavailable(unavailable(error)),
        }
    }
}

pub(crate) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Unavailable {
    Unavailable::new("NATS", error)
}
