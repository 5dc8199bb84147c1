//! [`GoneReplicas`]: tells a replica that has ended from one whose connection to the engine is broken for a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{AskError, ReplicaId, ReplicaMessages};
use crate::instant_after::instant_after;
use crate::sync::Mutex;

/// The replicas that were found to be gone a short time ago.
///
/// An engine knows connections, not processes: while it restarts, every replica looks gone until it has connected again.
/// So a replica counts as gone when it is not connected for [`PATIENCE`]. Asking again is safe, since a replica that is
/// not connected has not received the message.
#[derive(Debug, Default)]
pub(super) struct GoneReplicas(Mutex<BTreeMap<ReplicaId, Instant>>);

impl GoneReplicas {
    /// Asks a replica, again and again while it is not connected.
    pub(super) async fn ask(
        &self,
        messages: &dyn ReplicaMessages,
        to: ReplicaId,
        message: Bytes,
        within: Duration,
    ) -> Result<Bytes, AskError> {
        let (started, deadline) = (Instant::now(), instant_after(Instant::now(), within));
        let is_known = self.is_known(to);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let outcome = messages.ask(to, message.clone(), left).await;
            if !matches!(outcome, Err(AskError::ReplicaGone)) {
                return outcome;
            }
            let next = Instant::now() + RETRY_EVERY;
            if is_known || next > deadline || next > started + PATIENCE {
                self.remember(to);
                return outcome;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    fn is_known(&self, replica: ReplicaId) -> bool {
        let mut gone = self.0.lock();
        let now = Instant::now();
        gone.retain(|_, until| *until > now);
        gone.contains_key(&replica)
    }

    fn remember(&self, replica: ReplicaId) {
        let mut gone = self.0.lock();
        // More replicas than that are not gone at the same time; forgetting them costs time only.
        if gone.len() < MAX_REMEMBERED {
            gone.insert(replica, Instant::now() + REMEMBERED_FOR);
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(3);
const RETRY_EVERY: Duration = Duration::from_millis(200);
const REMEMBERED_FOR: Duration = Duration::from_secs(10);
const MAX_REMEMBERED: usize = 1024;
