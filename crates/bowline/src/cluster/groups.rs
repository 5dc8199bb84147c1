//! The groups that a replica is a member of, and the receivers of their messages.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};

use super::{GroupId, ReplicaId, ReplicaMessages, Unavailable};
use crate::sync::Mutex;

/// The groups of a replica.
#[derive(Debug, Default)]
pub(super) struct GroupTable {
    entries: Mutex<BTreeMap<GroupId, Arc<GroupEntry>>>,
    delivered: AtomicU64,
    missed: AtomicU64,
}

/// A group with at least one receiver, or one that is about to join or to leave.
#[derive(Debug)]
pub(super) struct GroupEntry {
    group: GroupId,
    receivers: broadcast::Sender<GroupEvent>,
    /// Joining and leaving take turns, so that the last receiver of a group does not end the membership of the next.
    membership: tokio::sync::Mutex<Membership>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    None,
    Joined,
    /// The entry was removed from the table.
    Removed,
}

/// An item of [`GroupReceiver`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a receiver that ignores a variant misses messages"
)]
pub enum GroupEvent {
    /// A message.
    Message {
        /// The replica that sent it.
        from: ReplicaId,
        /// Its content.
        body: Bytes,
    },
    /// Messages were lost: because the engine was away from this replica or from a sender, or because this receiver
    /// was too slow.
    Missed,
}

/// The membership in a group, and the receiver of its messages; returned by [`Cluster::join`](super::Cluster::join).
#[must_use = "dropping it leaves the group"]
pub struct GroupReceiver {
    // Dropped before `leave`, which looks whether it was the last one.
    events: broadcast::Receiver<GroupEvent>,
    _leave: LeaveOnDrop,
}

impl GroupReceiver {
    /// Waits for the next message. Returns `None` once the cluster is dropped.
    ///
    /// # Cancel safety
    ///
    /// Safe: a message is removed from the queue only when it is returned.
    pub async fn next(&mut self) -> Option<GroupEvent> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(_)) => Some(GroupEvent::Missed),
            Err(RecvError::Closed) => None,
        }
    }
}

impl fmt::Debug for GroupReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupReceiver").finish_non_exhaustive()
    }
}

/// Sends a group to the task that leaves it.
struct LeaveOnDrop {
    entry: Weak<GroupEntry>,
    leaves: LeaveSender,
}

/// Not a strong sender: a receiver does not keep the task of its cluster running.
pub(super) type LeaveSender = mpsc::WeakUnboundedSender<Arc<GroupEntry>>;

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        if let (Some(entry), Some(leaves)) = (self.entry.upgrade(), self.leaves.upgrade()) {
            let _ = leaves.send(entry);
        }
    }
}

impl GroupTable {
    /// Joins a group, and returns a receiver of its messages.
    pub(super) async fn join(
        &self,
        messages: &dyn ReplicaMessages,
        group: &GroupId,
        leaves: LeaveSender,
    ) -> Result<GroupReceiver, Unavailable> {
        loop {
            let entry = self.entry(group);
            // Before anything is awaited: the receiver keeps the entry, and its drop leaves the group.
            let receiver = GroupReceiver {
                events: entry.receivers.subscribe(),
                _leave: LeaveOnDrop {
                    entry: Arc::downgrade(&entry),
                    leaves: leaves.clone(),
                },
            };
            let mut membership = entry.membership.lock().await;
            match *membership {
                Membership::Joined => {}
                Membership::None => {
                    messages.join(group).await?;
                    *membership = Membership::Joined;
                }
                Membership::Removed => continue,
            }
            return Ok(receiver);
        }
    }

    /// Leaves a group if it has no receiver.
    pub(super) async fn leave(&self, messages: &dyn ReplicaMessages, entry: &Arc<GroupEntry>) {
        let mut membership = entry.membership.lock().await;
        if *membership == Membership::Removed || entry.receivers.receiver_count() > 0 {
            return;
        }
        *membership = Membership::Removed;
        let removed = self.entries.lock().remove(&entry.group);
        drop(removed);
        // Also after a join that was dropped or has failed: the engine may have made this replica a member.
        messages.leave(&entry.group);
    }

    pub(super) fn deliver(&self, group: &GroupId, from: ReplicaId, body: Bytes) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        self.send(group, GroupEvent::Message { from, body });
    }

    /// Reports lost messages to the receivers of one group.
    pub(super) fn missed(&self, group: &GroupId) {
        self.missed.fetch_add(1, Ordering::Relaxed);
        self.send(group, GroupEvent::Missed);
    }

    /// Reports lost messages to all receivers.
    pub(super) fn missed_all(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
        let entries: Vec<_> = self.entries.lock().values().cloned().collect();
        for entry in entries {
            let _ = entry.receivers.send(GroupEvent::Missed);
        }
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        (
            self.delivered.load(Ordering::Relaxed),
            self.missed.load(Ordering::Relaxed),
        )
    }

    fn entry(&self, group: &GroupId) -> Arc<GroupEntry> {
        let mut entries = self.entries.lock();
        let entry = entries.entry(group.clone()).or_insert_with(|| {
            Arc::new(GroupEntry {
                group: group.clone(),
                receivers: broadcast::Sender::new(QUEUED_EVENTS),
                membership: tokio::sync::Mutex::new(Membership::None),
            })
        });
        entry.clone()
    }

    fn send(&self, group: &GroupId, event: GroupEvent) {
        let entry = self.entries.lock().get(group).cloned();
        if let Some(entry) = entry {
            // Fails if the last receiver was dropped a moment ago.
            let _ = entry.receivers.send(event);
        }
    }
}

/// How many messages a receiver may be behind. The queue of each group is allocated when it is joined.
const QUEUED_EVENTS: usize = 64;
