//! [`ConnectError`], and the errors of operations.

use std::error::Error as StdError;

use bowline::cluster::Unavailable;

/// Why a connection to Redis could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid.
    #[error("invalid URL of a Redis server")]
    InvalidUrl(#[source] redis::RedisError),
    /// The server could not be reached.
    #[error("failed to connect to Redis")]
    Unavailable(#[source] Unavailable),
    /// The certificate of the server is signed by an authority that is not trusted.
    #[error(
        "the certificate of the server is not signed by a trusted authority; add its authority with `ConnectOptions::root_certificates`"
    )]
    UntrustedCertificate(#[source] Unavailable),
    /// The server closed the connection, which had no TLS.
    #[error(
        "the server closed a connection without TLS; if it requires TLS, use a URL with `rediss://`"
    )]
    ClosedWithoutTls(#[source] Unavailable),
    /// The certificates of [`ConnectOptions::root_certificates`](crate::ConnectOptions) are invalid.
    #[error("invalid root certificates")]
    RootCertificates(#[source] Box<dyn StdError + Send + Sync>),
}

pub(crate) fn unavailable(error: redis::RedisError) -> Unavailable {
    Unavailable::new("Redis", error)
}
