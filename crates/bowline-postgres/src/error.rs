//! [`ConnectError`], and the errors of operations.

use std::error::Error as StdError;

use bowline::cluster::Unavailable;

/// Why a connection to Postgres could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid.
    #[error("invalid URL of a Postgres database")]
    InvalidUrl(#[source] tokio_postgres::Error),
    /// The server could not be reached, or the tables could not be created.
    #[error("failed to prepare the database")]
    Unavailable(#[source] Unavailable),
    /// The certificate of the server is signed by an authority that is not trusted.
    #[error(
        "the certificate of the server is not signed by a trusted authority; add its authority with `ConnectOptions::root_certificates`"
    )]
    UntrustedCertificate(#[source] Unavailable),
    /// The server refused the connection, which had no TLS.
    #[error(
        "the server refused a connection without TLS; if it requires TLS, set `sslmode=require` in the URL"
    )]
    RefusedWithoutTls(#[source] Unavailable),
    /// The certificates of [`ConnectOptions::root_certificates`](crate::ConnectOptions) are invalid.
    #[error("invalid root certificates")]
    RootCertificates(#[source] Box<dyn StdError + Send + Sync>),
    /// A later version of this crate has changed the tables.
    #[error(
        "the schema `bowline` has version {found}, this program supports up to {supported}; update the program"
    )]
    NewerSchema {
        /// The version of the tables.
        found: i32,
        /// The latest version that this crate supports.
        supported: i32,
    },
    /// The certificates of the system could not be loaded.
    #[error("failed to load the certificates of the system")]
    Certificates(#[source] Box<dyn StdError + Send + Sync>),
}

pub(crate) fn unavailable(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Unavailable {
    Unavailable::new("Postgres", error)
}
