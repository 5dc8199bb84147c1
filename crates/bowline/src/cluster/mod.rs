//! Replicas of a server: messages between them, and marks that they share.
//!
//! ```text
//!               ┌ ask(service, replica) ─▶ seal ─▶ ReplicaMessages ═══ engine ═══▶ ReplicaInbox ─▶ open ─▶ handler
//!  Cluster ─────┤ tell(group)  ─▶ queue ─▶ seal ─▶ ReplicaMessages ═══ engine ═══▶ ReplicaInbox ─▶ open ─▶ members
//!               └ marks() ─────────────────────▶ Marks ═════════════ engine
//! ```
//!
//! An engine, such as Redis, implements two traits: [`ReplicaMessages`] moves bytes between replicas, and [`Marks`] is a
//! store of small values that expire. A [`Cluster`] is both of one engine, with the keys that all replicas share. It is
//! set with [`Server::cluster`](crate::Server::cluster).
//!
//! Nothing here is durable: what a replica holds in memory ends with it. Work that must survive is a task, in a store of
//! the crate `bowline-tasks`.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;

use crate::exchange::BoxFuture;
use crate::seal::Sealer;

mod envelope;
use envelope::{Envelope, MAX_BODY_BYTES};

mod error;
pub use error::{AskError, MarkError, Unavailable};

mod gone;
use gone::GoneReplicas;

mod groups;
use groups::GroupTable;
pub use groups::{GroupEvent, GroupReceiver};

mod ids;
pub use ids::{GroupId, InvalidReplicaId, ReplicaId};

mod inbox;
use inbox::Inbox;
pub use inbox::{Asked, ServiceGuard};

mod marks;
pub use marks::{MAX_MARK_KEY_BYTES, MAX_MARK_VALUE_BYTES, MarkFuture, Marks, check_mark_size};

mod memory;
pub use memory::{MemoryCluster, MemoryLink, MemoryReplica};

mod memory_marks;
pub use memory_marks::MemoryMarks;

mod messages;
pub use messages::{MAX_MESSAGE_BYTES, ReplicaInbox, ReplicaMessages, check_message_size};

mod outbox;
use outbox::Outbox;

mod pending_asks;
pub use pending_asks::{PendingAsk, PendingAsks};

/// The cluster that a replica is part of: messages to the other replicas, and marks. Clones are the same replica.
///
/// Everything that is sent is sealed with the keys that all replicas share; the operators of the engine see who sends
/// to whom, and how much.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::cluster::{Cluster, MemoryCluster};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = MemoryCluster::new();
/// let first = Cluster::from(memory.replica()?);
/// let second = Cluster::from(memory.replica()?);
///
/// let _echo = first.serve("echo", |asked| Box::pin(async move { asked.message }));
/// let answer = second.ask("echo", first.replica(), "hello".into(), Duration::from_secs(5)).await?;
/// assert_eq!(answer, "hello");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    messages: Arc<dyn ReplicaMessages>,
    marks: Arc<dyn Marks>,
    envelope: Envelope,
    groups: Arc<GroupTable>,
    inbox: Arc<Inbox>,
    outbox: Outbox,
    gone: GoneReplicas,
    /// Set when the cluster is first used inside of a tokio runtime.
    started: OnceLock<()>,
}

impl Cluster {
    /// Creates the cluster of an engine. All replicas must have the same keys.
    ///
    /// [`Server::cluster`](crate::Server::cluster) takes an engine as it is; this is for implementations of engines.
    #[must_use]
    pub fn new(messages: impl ReplicaMessages, marks: impl Marks, keys: impl Into<Sealer>) -> Self {
        let messages: Arc<dyn ReplicaMessages> = Arc::new(messages);
        let envelope = Envelope {
            replica: messages.replica(),
            keys: keys.into(),
        };
        let groups = Arc::<GroupTable>::default();
        let shared = Shared {
            inbox: Arc::new(Inbox::new(envelope.clone(), groups.clone())),
            outbox: Outbox::new(),
            gone: GoneReplicas::default(),
            marks: Arc::new(marks),
            messages,
            envelope,
            groups,
            started: OnceLock::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the id of this replica.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.shared.envelope.replica
    }

    /// Returns the marks that the replicas share.
    #[must_use]
    pub fn marks(&self) -> Arc<dyn Marks> {
        self.shared.marks.clone()
    }

    /// Returns the keys that the replicas share.
    pub fn keys(&self) -> &Sealer {
        &self.shared.envelope.keys
    }

    /// Sends a message to the service `service` of one replica, which may be this one, and waits for the answer.
    ///
    /// # Errors
    ///
    /// [`AskError`]; within `within` and a second, whatever the engine does. [`AskError::ReplicaGone`] if the replica was
    /// not connected to the engine for 3 seconds, or for `within` if that is less: it has ended, or is cut off.
    ///
    /// # Cancel safety
    ///
    /// The replica may receive the message although the future is dropped.
    pub async fn ask(
        &self,
        service: &str,
        to: ReplicaId,
        message: Bytes,
        within: Duration,
    ) -> Result<Bytes, AskError> {
        let (bytes, limit) = (message.len(), MAX_BODY_BYTES);
        if bytes > limit {
            return Err(AskError::TooLarge { bytes, limit });
        }
        self.start();
        let Shared {
            messages,
            envelope,
            inbox,
            gone,
            ..
        } = &*self.shared;
        let sealed = envelope.seal_question(to, service, &message);
        let (sealed, nonce) = sealed.map_err(|error| Unavailable::new("the keys", error))?;
        let asking = async {
            if to == envelope.replica {
                return Ok(inbox.answer(sealed).await);
            }
            gone.ask(&**messages, to, sealed, within).await
        };
        let answer = tokio::time::timeout(within.saturating_add(ASK_GRACE), asking).await;
        let answer = answer
            .unwrap_or(Err(AskError::TimedOut))
            .inspect_err(|error| tracing::debug!(%to, service, %error, "failed to ask a replica"));
        envelope.open_answer(&nonce, answer?)
    }

    /// Answers messages of [`ask`](Self::ask) to a service, until the guard is dropped. A later handler of the same
    /// service replaces the earlier one.
    ///
    /// At most 256 messages are answered at a time; further ones fail with [`AskError::Unavailable`].
    pub fn serve(
        &self,
        service: &str,
        handler: impl Fn(Asked) -> BoxFuture<'static, Bytes> + Send + Sync + 'static,
    ) -> ServiceGuard {
        self.start();
        self.shared.inbox.serve(service, Arc::new(handler))
    }

    /// Sends a message to every member of a group, also to those of this replica. Does not block.
    ///
    /// A message that cannot be sent is lost. The members of the group get [`GroupEvent::Missed`] when the engine is
    /// back, unless this process has ended by then.
    pub fn tell(&self, group: &GroupId, message: Bytes) {
        self.shared.outbox.push(group, message);
        self.start();
    }

    /// Joins a group; returns the receiver of its messages, whose drop leaves it.
    ///
    /// # Errors
    ///
    /// If the engine is away.
    ///
    /// # Cancel safety
    ///
    /// Safe: a membership that no receiver uses is ended.
    pub async fn join(&self, group: &GroupId) -> Result<GroupReceiver, Unavailable> {
        self.start();
        let shared = &self.shared;
        let leaves = shared.outbox.leaves();
        shared
            .groups
            .join(&*shared.messages, group, leaves)
            .await
            .inspect_err(|error| tracing::warn!(%group, %error, "failed to join a group"))
    }

    /// Returns how many messages were sent, lost and received.
    #[must_use]
    pub fn counts(&self) -> ClusterCounts {
        let (told, lost) = self.shared.outbox.counts();
        let (delivered, missed) = self.shared.groups.counts();
        ClusterCounts {
            told,
            lost,
            delivered,
            missed,
        }
    }

    /// Returns a reference that does not keep the replica in the cluster.
    #[allow(dead_code, reason = "used with the feature `otel` only")]
    pub(crate) fn downgrade(&self) -> WeakCluster {
        WeakCluster(Arc::downgrade(&self.shared))
    }

    /// Starts to send and to receive, unless it has started or there is no tokio runtime.
    fn start(&self) {
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        self.shared.started.get_or_init(|| {
            let shared = &self.shared;
            shared.messages.start(shared.inbox.clone());
            let (messages, groups) = (shared.messages.clone(), shared.groups.clone());
            shared
                .outbox
                .start(messages, groups, shared.envelope.clone());
        });
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("replica", &self.replica())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// A [`Cluster`], as long as it exists.
#[allow(dead_code, reason = "used with the feature `otel` only")]
pub(crate) struct WeakCluster(Weak<Shared>);

#[allow(dead_code, reason = "used with the feature `otel` only")]
impl WeakCluster {
    pub(crate) fn upgrade(&self) -> Option<Cluster> {
        let shared = self.0.upgrade()?;
        Some(Cluster { shared })
    }

    pub(crate) fn is(&self, cluster: &Cluster) -> bool {
        self.0.as_ptr() == Arc::as_ptr(&cluster.shared)
    }
}

/// What a replica has sent to groups and received from them; see [`Cluster::counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterCounts {
    /// Messages to groups that the engine has taken.
    pub told: u64,
    /// Messages to groups that could not be sent.
    pub lost: u64,
    /// Messages to groups that were received.
    pub delivered: u64,
    /// How many times this replica, or the sender of a group's messages, lost some.
    pub missed: u64,
}

/// How much longer than its own limit an engine may take to report that there is no answer.
const ASK_GRACE: Duration = Duration::from_secs(1);
