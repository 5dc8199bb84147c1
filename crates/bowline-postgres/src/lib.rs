#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod cleanup;

mod connection;

mod error;
pub use error::ConnectError;

mod listener;

mod marks;

mod messages;

mod migrations;

mod options;
pub use options::ConnectOptions;

mod payload;

#[cfg(feature = "tasks")]
mod tasks;
#[cfg(feature = "tasks")]
#[cfg_attr(docsrs, doc(cfg(feature = "tasks")))]
pub use tasks::PostgresTaskStore;

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

use connection::Database;
use marks::PostgresMarks;
use messages::PostgresMessages;

/// A replica of a server in a cluster on Postgres; passed to [`Server::cluster`](bowline::Server::cluster).
///
/// # Examples
///
/// ```no_run
/// use bowline::Server;
/// use bowline_postgres::Postgres;
///
/// # async fn example(key: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
/// let postgres = Postgres::connect("postgres://app@localhost/app", key).await?;
/// let server = Server::new("notes", "1.0.0").cluster(postgres);
/// # Ok(()) }
/// ```
pub struct Postgres {
    database: Arc<Database>,
    replica: ReplicaId,
    keys: Sealer,
}

impl Postgres {
    /// Connects to the database at `url`, such as `postgres://user:password@host/name?sslmode=require`, and creates the
    /// tables in the schema `bowline` if they do not exist. All replicas must have the same keys. With TLS, the
    /// certificate and the name of the server are always verified.
    ///
    /// The connections must reach the database itself, not a pooler that shares them between transactions: `LISTEN` and
    /// advisory locks belong to a connection.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, the server does not answer within 5 seconds, or the tables cannot be created.
    ///
    /// # Cancel safety
    ///
    /// The tables may have been created if it is dropped.
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
        let database = Arc::new(Database::open(url, &options)?);
        let prepared = migrations::run(&database).await;
        prepared.map_err(|error| database.explain(error))?;
        Ok(Self {
            database,
            replica: ReplicaId::random().map_err(ConnectError::Unavailable)?,
            keys: keys.into(),
        })
    }

    /// Returns the marks, for use without a [`Cluster`].
    #[must_use]
    pub fn marks(&self) -> impl Marks + use<> {
        PostgresMarks::new(self.database.clone())
    }

    /// Returns the messages, for use without a [`Cluster`].
    #[must_use]
    pub fn messages(&self) -> impl ReplicaMessages + use<> {
        PostgresMessages::new(self.database.clone(), self.replica)
    }
}

impl From<Postgres> for Cluster {
    fn from(postgres: Postgres) -> Self {
        Self::new(postgres.messages(), postgres.marks(), postgres.keys)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

/// The longest that an operation waits for the server.
const LIMIT: Duration = Duration::from_secs(5);
