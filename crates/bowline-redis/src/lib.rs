#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connection;

mod error;
pub use error::ConnectError;

mod frame;

mod marks;

mod messages;

mod options;
pub use options::ConnectOptions;

mod subscriber;

#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_disabled.rs"]
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::{Cluster, Marks, ReplicaId, ReplicaMessages};
use bowline::seal::Sealer;

use connection::Connection;
use marks::RedisMarks;
use messages::RedisMessages;

/// A replica of a server in a cluster on Redis; passed to [`Server::cluster`](bowline::Server::cluster).
///
/// # Examples
///
/// ```no_run
/// use bowline::Server;
/// use bowline_redis::Redis;
///
/// # async fn example(key: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://localhost:6379", key).await?;
/// let server = Server::new("notes", "1.0.0").cluster(redis);
/// # Ok(()) }
/// ```
pub struct Redis {
    connection: Arc<Connection>,
    replica: ReplicaId,
    prefix: String,
    keys: Sealer,
}

impl Redis {
    /// Connects to the server at `url`, such as `redis://:password@host:6379/0`, or `rediss://…` for TLS. All replicas
    /// must have the same keys.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or the server does not answer within 5 seconds.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left if it is dropped.
    pub async fn connect(url: &str, keys: impl Into<Sealer>) -> Result<Self, ConnectError> {
        Self::connect_with(url, ConnectOptions::new(), keys).await
    }

    /// As [`connect`](Self::connect), with options such as the certificates of an authority.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and if an option is invalid.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_with(
        url: &str,
        options: ConnectOptions,
        keys: impl Into<Sealer>,
    ) -> Result<Self, ConnectError> {
        let connection = Connection::new(tls::client(url, &options.tls)?);
        let connection = Arc::new(connection);
        connection.check().await?;
        Ok(Self {
            connection,
            replica: ReplicaId::random().map_err(ConnectError::Unavailable)?,
            prefix: "bowline".to_owned(),
            keys: keys.into(),
        })
    }

    /// Sets the prefix of keys and channels. Default: `bowline`. Clusters with different prefixes do not affect each
    /// other.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Returns the marks, for use without a [`Cluster`].
    #[must_use]
    pub fn marks(&self) -> impl Marks + use<> {
        RedisMarks::new(self.connection.clone(), &self.prefix)
    }

    /// Returns the messages, for use without a [`Cluster`].
    #[must_use]
    pub fn messages(&self) -> impl ReplicaMessages + use<> {
        RedisMessages::new(self.connection.clone(), self.replica, &self.prefix)
    }
}

impl From<Redis> for Cluster {
    fn from(redis: Redis) -> Self {
        Self::new(redis.messages(), redis.marks(), redis.keys)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("replica", &self.replica)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The longest that an operation waits for the server.
const LIMIT: Duration = Duration::from_secs(5);

/// Compiles the code blocks of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/replicas.md")]
struct Guide;
