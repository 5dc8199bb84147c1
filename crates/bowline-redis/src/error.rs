//! [`ConnectError`], and the errors of operations.

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
}

pub(crate) fn unavailable(error: redis::RedisError) -> Unavailable {
    Unavailable::new("Redis", error)
}
