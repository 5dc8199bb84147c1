#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod credentials;
use credentials::move_credentials;
mod echoes;

mod error;
pub use error::ConnectError;

mod events;

mod groups;

mod marks;

mod messages;

mod subjects;

mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use bowline::cluster::{
    Cluster, MAX_MESSAGE_BYTES, Marks, ReplicaId, ReplicaMessages, Unavailable,
};
use bowline::seal::Sealer;

use events::Events;
use marks::NatsMarks;
use messages::NatsMessages;
use subjects::Subjects;

/// Re-export of the NATS client, for [`Nats::connect_with`].
pub use async_nats;

/// A replica of a server in a cluster on NATS with JetStream; passed to
/// [`Server::cluster`](bowline::Server::cluster).
///
/// # Examples
///
/// ```no_run
/// use bowline::Server;
/// use bowline_nats::Nats;
///
/// # async fn example(key: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
/// let nats = Nats::connect("nats://localhost:4222", key).await?;
/// let server = Server::new("notes", "1.0.0").cluster(nats);
/// # Ok(()) }
/// ```
pub struct Nats {
    client: Client,
    events: Arc<Events>,
    marks: NatsMarks,
    replica: ReplicaId,
    subjects: Subjects,
    keys: Sealer,
}

impl Nats {
    /// Connects to the server at `url`, such as `nats://user:password@host:4222`, or `tls://…`, and creates the stream
    /// of marks if it does not exist. All replicas must have the same keys. TLS is also used if the server requires it.
    ///
    /// # Errors
    ///
    /// If the server does not answer within 5 seconds, is older than 2.11, or has no JetStream.
    ///
    /// # Cancel safety
    ///
    /// The stream of marks may have been created if it is dropped.
    pub async fn connect(url: &str, keys: impl Into<Sealer>) -> Result<Self, ConnectError> {
        Self::connect_with(url, async_nats::ConnectOptions::new(), keys).await
    }

    /// As [`connect`](Self::connect), with options such as credentials and certificates. Their event callback and
    /// timeouts are replaced.
    ///
    /// ```no_run
    /// use bowline_nats::{Nats, async_nats::ConnectOptions};
    ///
    /// # async fn example(key: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
    /// let options = ConnectOptions::new().add_root_certificates("internal-ca.pem".into());
    /// let nats = Nats::connect_with("tls://nats.internal:4222", options, key).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_with(
        url: &str,
        options: async_nats::ConnectOptions,
        keys: impl Into<Sealer>,
    ) -> Result<Self, ConnectError> {
        Self::connect_named(url, options, keys, "bowline").await
    }

    /// As [`connect_with`](Self::connect_with), with a prefix of subjects and the name of the stream other than
    /// `bowline`. Clusters with different prefixes do not affect each other.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_named(
        url: &str,
        options: async_nats::ConnectOptions,
        keys: impl Into<Sealer>,
        prefix: &str,
    ) -> Result<Self, ConnectError> {
        tls::install_provider();
        let events = Arc::new(Events::default());
        let options = events
            .listen(options)
            .connection_timeout(LIMIT)
            .request_timeout(Some(LIMIT))
            .ping_interval(PING_EVERY)
            .subscription_capacity(QUEUED_MESSAGES);
        let (address, options) = move_credentials(url, options)
            .map_err(|error| ConnectError::Unavailable(Unavailable::new("NATS", error)))?;
        let client = tokio::time::timeout(LIMIT, options.connect(address)).await;
        let client = client.map_err(|_| Unavailable::timed_out("NATS", LIMIT))??;
        let max_payload = client.max_payload();
        if max_payload < MAX_MESSAGE_BYTES {
            tracing::warn!(
                max_payload,
                "messages of more than `max_payload` bytes cannot be sent to other replicas"
            );
        }
        let subjects = Subjects::new(prefix);
        let marks = NatsMarks::open(&client, &subjects).await?;
        Ok(Self {
            client,
            events,
            marks,
            replica: ReplicaId::random()?,
            subjects,
            keys: keys.into(),
        })
    }

    /// Returns the marks, for use without a [`Cluster`].
    #[must_use]
    pub fn marks(&self) -> impl Marks + use<> {
        self.marks.clone()
    }

    /// Returns the messages, for use without a [`Cluster`].
    #[must_use]
    pub fn messages(&self) -> impl ReplicaMessages + use<> {
        let (client, events) = (self.client.clone(), self.events.clone());
        NatsMessages::new(client, events, self.replica, self.subjects.clone())
    }
}

impl From<Nats> for Cluster {
    fn from(nats: Nats) -> Self {
        Self::new(nats.messages(), nats.marks(), nats.keys)
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats")
            .field("replica", &self.replica)
            .field("subjects", &self.subjects)
            .finish_non_exhaustive()
    }
}

/// The longest that an operation waits for the server.
const LIMIT: Duration = Duration::from_secs(5);
/// A connection whose packets are lost is found out after two of these.
const PING_EVERY: Duration = Duration::from_secs(3);
/// How many messages of a subscription may wait; further ones are dropped, and reported as missed.
const QUEUED_MESSAGES: usize = 1024;
