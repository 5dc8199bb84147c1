//! [`MemoryCluster`]: several replicas in one process, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    AskError, Cluster, GroupId, MemoryMarks, ReplicaId, ReplicaInbox, ReplicaMessages, Unavailable,
    check_message_size,
};
use crate::exchange::BoxFuture;
use crate::seal::Sealer;
use crate::sync::Mutex;

/// A cluster in memory: its replicas are servers of one process, which share marks and keys.
///
/// For tests of what happens between replicas. A [`MemoryLink`] cuts a replica off, as a broken network would.
///
/// # Examples
///
/// ```
/// use bowline::Server;
/// use bowline::cluster::MemoryCluster;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bowline::cluster::Unavailable> {
/// let cluster = MemoryCluster::new();
/// let first = Server::new("notes", "1.0.0").cluster(cluster.replica()?);
/// let second = Server::new("notes", "1.0.0").cluster(cluster.replica()?);
/// # drop((first, second));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryCluster {
    hub: Arc<Hub>,
    marks: Arc<MemoryMarks>,
    keys: Sealer,
}

impl MemoryCluster {
    /// Creates a cluster without replicas, with a random key.
    #[must_use]
    pub fn new() -> Self {
        Self {
            hub: Arc::default(),
            marks: Arc::default(),
            keys: Sealer::random(),
        }
    }

    /// Adds a replica. It ends when it is dropped.
    ///
    /// # Errors
    ///
    /// If the operating system provides no randomness for its id.
    pub fn replica(&self) -> Result<MemoryReplica, Unavailable> {
        let id = ReplicaId::random()?;
        self.hub.replicas.lock().insert(id, Entry::default());
        Ok(MemoryReplica {
            cluster: self.clone(),
            id,
        })
    }

    /// Returns the marks that all replicas share.
    #[must_use]
    pub fn marks(&self) -> Arc<MemoryMarks> {
        self.marks.clone()
    }
}

impl Default for MemoryCluster {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas = self.hub.replicas.lock().len();
        f.debug_struct("MemoryCluster")
            .field("replicas", &replicas)
            .finish_non_exhaustive()
    }
}

/// A replica of a [`MemoryCluster`].
#[derive(Debug)]
pub struct MemoryReplica {
    cluster: MemoryCluster,
    id: ReplicaId,
}

impl MemoryReplica {
    /// Returns a handle that cuts this replica off from the others.
    #[must_use]
    pub fn link(&self) -> MemoryLink {
        MemoryLink {
            hub: self.cluster.hub.clone(),
            id: self.id,
        }
    }
}

impl From<MemoryReplica> for Cluster {
    fn from(replica: MemoryReplica) -> Self {
        let (marks, keys) = (replica.cluster.marks(), replica.cluster.keys.clone());
        Self::new(replica, marks, keys)
    }
}

impl Drop for MemoryReplica {
    fn drop(&mut self) {
        let removed = self.cluster.hub.replicas.lock().remove(&self.id);
        // After the lock is free: the inbox runs foreign code when it is dropped.
        drop(removed);
    }
}

/// The connection between a [`MemoryReplica`] and the others. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct MemoryLink {
    hub: Arc<Hub>,
    id: ReplicaId,
}

impl MemoryLink {
    /// Breaks the connection: the replica sends nothing and receives nothing.
    pub fn cut(&self) {
        self.hub.set_cut(self.id, true);
    }

    /// Restores the connection. The replica is told that it may have missed messages.
    pub fn restore(&self) {
        if let Some(inbox) = self.hub.set_cut(self.id, false) {
            inbox.missed();
        }
    }
}

/// What the replicas share.
#[derive(Debug, Default)]
struct Hub {
    replicas: Mutex<BTreeMap<ReplicaId, Entry>>,
}

#[derive(Default)]
struct Entry {
    inbox: Option<Arc<dyn ReplicaInbox>>,
    groups: BTreeSet<GroupId>,
    is_cut: bool,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("groups", &self.groups)
            .field("is_cut", &self.is_cut)
            .finish_non_exhaustive()
    }
}

/// The state of a replica that a message is sent to.
enum Target {
    Inbox(Arc<dyn ReplicaInbox>),
    Silent,
    Gone,
}

impl Hub {
    fn set_cut(&self, id: ReplicaId, is_cut: bool) -> Option<Arc<dyn ReplicaInbox>> {
        let mut replicas = self.replicas.lock();
        let entry = replicas.get_mut(&id)?;
        entry.is_cut = is_cut;
        entry.inbox.clone()
    }

    /// Changes the entry of a replica that is connected.
    fn with_connected<T>(
        &self,
        id: ReplicaId,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Result<T, Unavailable> {
        let mut replicas = self.replicas.lock();
        let entry = replicas.get_mut(&id).filter(|entry| !entry.is_cut);
        entry
            .map(change)
            .ok_or_else(|| Unavailable::new("the cluster in memory", "the connection is cut"))
    }

    fn target(&self, id: ReplicaId) -> Target {
        match self.replicas.lock().get(&id) {
            None => Target::Gone,
            Some(entry) if entry.is_cut => Target::Silent,
            Some(entry) => entry.inbox.clone().map_or(Target::Silent, Target::Inbox),
        }
    }

    /// Returns the connected members of a group.
    fn members(&self, group: &GroupId) -> Vec<Arc<dyn ReplicaInbox>> {
        let replicas = self.replicas.lock();
        let members = replicas.values();
        let members = members.filter(|entry| entry.groups.contains(group) && !entry.is_cut);
        members.filter_map(|entry| entry.inbox.clone()).collect()
    }
}

impl ReplicaMessages for MemoryReplica {
    fn replica(&self) -> ReplicaId {
        self.id
    }

    fn start(&self, inbox: Arc<dyn ReplicaInbox>) {
        let mut replicas = self.cluster.hub.replicas.lock();
        if let Some(entry) = replicas.get_mut(&self.id) {
            entry.inbox = Some(inbox);
        }
    }

    fn ask(
        &self,
        to: ReplicaId,
        message: Bytes,
        within: Duration,
    ) -> BoxFuture<'_, Result<Bytes, AskError>> {
        Box::pin(async move {
            check_message_size(&message)?;
            let hub = &self.cluster.hub;
            hub.with_connected(self.id, |_| ())?;
            let inbox = match hub.target(to) {
                Target::Inbox(inbox) => inbox,
                Target::Gone => return Err(AskError::ReplicaGone),
                Target::Silent => {
                    tokio::time::sleep(within).await;
                    return Err(AskError::TimedOut);
                }
            };
            let (answered, answer) = oneshot::channel();
            // A task of its own: the other replica goes on although this one no longer waits.
            let answering = inbox.answer(message);
            tokio::spawn(async move { answered.send(answering.await) });
            let answer = tokio::time::timeout(within, answer).await;
            let answer = answer.map_err(|_| AskError::TimedOut)?;
            answer.map_err(|_| AskError::TimedOut)
        })
    }

    fn tell<'a>(
        &'a self,
        group: &'a GroupId,
        message: Bytes,
    ) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move {
            let hub = &self.cluster.hub;
            hub.with_connected(self.id, |_| ())?;
            for inbox in hub.members(group) {
                inbox.deliver(group, message.clone());
            }
            Ok(())
        })
    }

    fn join<'a>(&'a self, group: &'a GroupId) -> BoxFuture<'a, Result<(), Unavailable>> {
        Box::pin(async move {
            self.cluster.hub.with_connected(self.id, |entry| {
                entry.groups.insert(group.clone());
            })
        })
    }

    fn leave(&self, group: &GroupId) {
        let mut replicas = self.cluster.hub.replicas.lock();
        if let Some(entry) = replicas.get_mut(&self.id) {
            entry.groups.remove(group);
        }
    }
}
