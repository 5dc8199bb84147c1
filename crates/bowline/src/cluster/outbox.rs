//! [`Outbox`]: a bounded queue of messages to groups, and the task that sends them.
//!
//! ```text
//! push ─▶ queue ─▶ task ─┬─ sent
//!    └─ full ─▶ lost ◀───┴─ failed        the groups in `lost` get a message that says so, until one is sent
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::envelope::{Envelope, GroupMessage, MAX_BODY_BYTES};
use super::groups::{GroupEntry, GroupTable, LeaveSender};
use super::{GroupId, ReplicaMessages, Unavailable};
use crate::backoff::Backoff;
use crate::sync::Mutex;

/// The queue of messages to groups.
pub(super) struct Outbox {
    queue: mpsc::Sender<QueuedMessage>,
    leaves: mpsc::UnboundedSender<Arc<GroupEntry>>,
    bytes: Arc<Semaphore>,
    state: Arc<OutboxState>,
    /// Taken by the task.
    receivers: Mutex<Option<Receivers>>,
}

struct QueuedMessage {
    group: GroupId,
    body: Bytes,
    _bytes: OwnedSemaphorePermit,
}

struct Receivers {
    queue: mpsc::Receiver<QueuedMessage>,
    /// Bounded by the number of receivers that were dropped.
    leaves: mpsc::UnboundedReceiver<Arc<GroupEntry>>,
}

#[derive(Debug, Default)]
struct OutboxState {
    /// The groups whose members have not been told that messages were lost.
    lost_groups: Mutex<BTreeSet<GroupId>>,
    /// Wakes the task when a group was added.
    added: Notify,
    told: AtomicU64,
    lost: AtomicU64,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let (queue, queued) = mpsc::channel(MAX_QUEUED);
        let (leaves, left) = mpsc::unbounded_channel();
        Self {
            queue,
            leaves,
            bytes: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)),
            state: Arc::default(),
            receivers: Mutex::new(Some(Receivers {
                queue: queued,
                leaves: left,
            })),
        }
    }

    /// Queues a message, or records that it is lost.
    pub(super) fn push(&self, group: &GroupId, body: Bytes) {
        if body.len() > MAX_BODY_BYTES {
            self.state.lose(group, "the message is too large");
        } else if self.queued(group, body).is_none() {
            self.state.lose(group, "the queue of messages is full");
        }
    }

    fn queued(&self, group: &GroupId, body: Bytes) -> Option<()> {
        let length = u32::try_from(body.len()).ok()?;
        let bytes = self.bytes.clone().try_acquire_many_owned(length).ok()?;
        let queued = QueuedMessage {
            group: group.clone(),
            body,
            _bytes: bytes,
        };
        self.queue.try_send(queued).ok()
    }

    pub(super) fn leaves(&self) -> LeaveSender {
        self.leaves.downgrade()
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        (
            self.state.told.load(Ordering::Relaxed),
            self.state.lost.load(Ordering::Relaxed),
        )
    }

    /// Starts the task, which ends when this value is dropped.
    pub(super) fn start(
        &self,
        messages: Arc<dyn ReplicaMessages>,
        groups: Arc<GroupTable>,
        envelope: Envelope,
    ) {
        let Some(receivers) = self.receivers.lock().take() else {
            return;
        };
        let task = OutboxTask {
            messages,
            groups,
            envelope,
            state: self.state.clone(),
            failures: 0,
            sends: JoinSet::new(),
        };
        tokio::spawn(task.run(receivers));
    }
}

impl OutboxState {
    fn lose(&self, group: &GroupId, why: &str) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        let mut lost = self.lost_groups.lock();
        let is_new = lost.len() < MAX_LOST_GROUPS && lost.insert(group.clone());
        let is_full = lost.len() >= MAX_LOST_GROUPS;
        drop(lost);
        self.added.notify_one();
        if is_new {
            tracing::warn!(%group, why, "lost a message to other replicas");
        } else if is_full {
            tracing::error!(%group, why, "lost a message to other replicas, and cannot report it");
        }
    }
}

struct OutboxTask {
    messages: Arc<dyn ReplicaMessages>,
    groups: Arc<GroupTable>,
    envelope: Envelope,
    state: Arc<OutboxState>,
    /// How many attempts have failed since the last success.
    failures: u32,
    sends: JoinSet<Sent>,
}

/// A message that the engine has taken, or not.
struct Sent {
    group: GroupId,
    message: GroupMessage,
    outcome: Result<(), Unavailable>,
}

impl OutboxTask {
    async fn run(mut self, receivers: Receivers) {
        let Receivers {
            mut queue,
            mut leaves,
        } = receivers;
        let state = self.state.clone();
        let added = &state.added;
        let mut retry_at = Instant::now();
        loop {
            let may_retry = self.sends.is_empty() && !self.state.lost_groups.lock().is_empty();
            // Ended sends come first, since they free room; then leaving, which is cheap; then new messages, which a
            // report of lost ones must not delay.
            tokio::select! {
                biased;
                Some(sent) = self.sends.join_next() => {
                    if let Ok(sent) = sent {
                        retry_at = self.record(sent);
                    }
                }
                Some(entry) = leaves.recv() => self.groups.leave(&*self.messages, &entry).await,
                queued = queue.recv(), if self.sends.len() < MAX_SENDS => match queued {
                    Some(queued) => self.send(queued.group, GroupMessage::Body(queued.body)),
                    None => return,
                },
                () = tokio::time::sleep_until(retry_at), if may_retry => self.report_lost(),
                () = added.notified(), if !may_retry => {}
            }
        }
    }

    fn send(&mut self, group: GroupId, message: GroupMessage) {
        let (messages, envelope) = (self.messages.clone(), self.envelope.clone());
        self.sends.spawn(async move {
            let sending = async {
                let sealed = envelope.seal_to_group(&group, &message);
                let sealed = sealed.map_err(|error| Unavailable::new("the keys", error))?;
                messages.tell(&group, sealed).await
            };
            let outcome = tokio::time::timeout(SEND_LIMIT, sending).await;
            let outcome =
                outcome.unwrap_or_else(|_| Err(Unavailable::timed_out("the engine", SEND_LIMIT)));
            Sent {
                group,
                message,
                outcome,
            }
        });
    }

    /// Records what became of a message; returns when the next report of lost messages is sent.
    fn record(&mut self, sent: Sent) -> Instant {
        match sent.outcome {
            Ok(()) => {
                self.failures = 0;
                if sent.message != GroupMessage::Lost {
                    self.state.told.fetch_add(1, Ordering::Relaxed);
                }
                Instant::now()
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                tracing::debug!(group = %sent.group, %error, "failed to send to a group");
                match sent.message {
                    GroupMessage::Body(_) => self.state.lose(&sent.group, "the engine is away"),
                    GroupMessage::Lost => {
                        self.state.lost_groups.lock().insert(sent.group);
                    }
                }
                Instant::now() + RETRY.delay(self.failures)
            }
        }
    }

    /// Tells groups that messages were lost.
    fn report_lost(&mut self) {
        // One first: while the engine is away, all would fail.
        let reports = if self.failures > 0 { 1 } else { MAX_SENDS };
        for _ in 0..reports {
            let Some(group) = self.state.lost_groups.lock().pop_first() else {
                return;
            };
            self.send(group, GroupMessage::Lost);
        }
    }
}

/// How many messages wait, and how many bytes they have together.
const MAX_QUEUED: usize = 1024;
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;
/// How many messages are sent at the same time.
const MAX_SENDS: usize = 16;
/// About 100 bytes each.
const MAX_LOST_GROUPS: usize = 100_000;
const SEND_LIMIT: Duration = Duration::from_secs(5);
const RETRY: Backoff = Backoff {
    min: Duration::from_millis(50),
    max: Duration::from_secs(2),
};
