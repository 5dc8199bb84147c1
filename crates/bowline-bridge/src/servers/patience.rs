//! [`Patience`]: how long lists and the handshake wait for a server.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::ItemKind;

/// How long lists wait for a server: up to their limit. Once it has not answered a principal in that time, they wait only
/// a moment until it answers again, and the whole limit once in a while. Otherwise a server that hangs would delay every
/// list.
///
/// Each list counts for itself, and so does connecting: a process that is busy says nothing about one that is started for
/// the next client.
#[derive(Debug, Default)]
pub(super) struct Patience(Mutex<Vec<LateAnswer>>);

/// What a server is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Connection,
    List(ItemKind),
}

#[derive(Debug)]
struct LateAnswer {
    awaited: Awaited,
    /// The principal.
    owner: String,
    since: Instant,
}

impl LateAnswer {
    fn is(&self, awaited: Awaited, owner: &str) -> bool {
        self.awaited == awaited && self.owner == owner
    }
}

impl Patience {
    /// Returns how long to wait for an answer.
    pub(super) fn limit(&self, awaited: Awaited, owner: &str, limit: Duration) -> Duration {
        match self.late().iter().any(|late| late.is(awaited, owner)) {
            true => limit.min(MOMENT),
            false => limit,
        }
    }

    /// Records that the server did not answer in `waited`, out of `limit`.
    pub(super) fn set_late(
        &self,
        awaited: Awaited,
        owner: &str,
        waited: Duration,
        limit: Duration,
    ) {
        // After a moment nothing new is known.
        if waited < limit {
            return;
        }
        let mut late = self.late();
        late.retain(|late| !late.is(awaited, owner));
        late.push(LateAnswer {
            awaited,
            owner: owner.to_owned(),
            since: Instant::now(),
        });
    }

    /// Records that the server has answered.
    pub(super) fn set_answered(&self, awaited: Awaited, owner: &str) {
        self.late().retain(|late| !late.is(awaited, owner));
    }

    /// Records that the server was connected to anew.
    pub(super) fn set_connected(&self, owner: &str) {
        self.late().retain(|late| late.owner != owner);
    }

    /// Returns what was late not long ago.
    fn late(&self) -> MutexGuard<'_, Vec<LateAnswer>> {
        let mut late = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        late.retain(|late| late.since.elapsed() < LATE_TIME);
        late
    }
}

/// For how long lists do not wait for a server that did not answer.
const LATE_TIME: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    const TOOLS: Awaited = Awaited::List(ItemKind::Tool);

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_late_is_waited_for_once_in_a_while() {
        let patience = Patience::default();
        let limit = || patience.limit(TOOLS, "ada", LIMIT);
        let set_late = |waited| patience.set_late(TOOLS, "ada", waited, LIMIT);
        assert_eq!(limit(), LIMIT);

        set_late(LIMIT);
        assert_eq!(limit(), MOMENT);
        tokio::time::advance(LATE_TIME / 2).await;
        set_late(MOMENT);
        tokio::time::advance(LATE_TIME / 2).await;

        assert_eq!(limit(), LIMIT, "a moment starts nothing anew");
        set_late(LIMIT);
        patience.set_answered(TOOLS, "ada");
        assert_eq!(limit(), LIMIT);
        set_late(LIMIT);
        patience.set_connected("ada");
        assert_eq!(limit(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn other_lists_and_other_principals_wait_the_whole_limit() {
        let patience = Patience::default();
        patience.set_late(TOOLS, "ada", LIMIT, LIMIT);

        let prompts = Awaited::List(ItemKind::Prompt);
        for (awaited, owner) in [
            (TOOLS, "bob"),
            (prompts, "ada"),
            (Awaited::Connection, "ada"),
        ] {
            assert_eq!(patience.limit(awaited, owner, LIMIT), LIMIT);
            patience.set_answered(awaited, owner);
        }
        assert_eq!(patience.limit(TOOLS, "ada", LIMIT), MOMENT);
    }
}
