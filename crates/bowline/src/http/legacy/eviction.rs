//! Chooses the session that is ended to make room for another.

use std::collections::VecDeque;
use std::sync::Arc;

use super::session::Session;
use super::session_state::{Activity, EvictionRank};

/// The sessions to end first: those never used, then the longest idle.
///
/// Scanning all sessions for each new one would be slow, so both lists may be stale: an entry is checked only when it
/// is taken out.
#[derive(Default)]
pub(super) struct EvictionCandidates {
    /// All sessions never used, in the order of their opening, and some that were used since.
    unused: VecDeque<Arc<str>>,
    /// The longest idle sessions at the last scan, the longest last. All others were active later than any of these
    /// whose [`EvictionRank`] has not changed.
    idle: Vec<(EvictionRank, Arc<str>)>,
}

impl EvictionCandidates {
    /// Adds a new session; `open` is the number of open sessions, and `find` returns one by its id.
    pub(super) fn add<'a>(
        &mut self,
        id: Arc<str>,
        open: usize,
        find: impl Fn(&str) -> Option<&'a Arc<Session>>,
    ) {
        if self.unused.len() > 2 * open + MIN_CANDIDATES {
            self.unused.retain(|id| is_unused(find(id)));
        }
        self.unused.push_back(id);
    }

    /// Takes out the session to end first; `sessions` are all that are open.
    pub(super) fn pop<'a, S>(
        &mut self,
        find: impl Fn(&str) -> Option<&'a Arc<Session>>,
        sessions: impl Fn() -> S,
    ) -> Option<Arc<str>>
    where
        S: Iterator<Item = &'a Arc<Session>>,
    {
        while let Some(id) = self.unused.pop_front() {
            if is_unused(find(&id)) {
                return Some(id);
            }
        }
        while let Some((rank, id)) = self.idle.pop() {
            if find(&id).is_some_and(|session| session.eviction_rank() == rank) {
                return Some(id);
            }
        }
        let mut all: Vec<_> = sessions()
            .map(|session| (session.eviction_rank(), session.id()))
            .collect();
        let count = MIN_CANDIDATES.max(all.len() / 16).min(all.len());
        if count < all.len() {
            all.select_nth_unstable(count);
            all.truncate(count);
        }
        all.sort_unstable();
        let longest_idle = all.first().map(|(_, id)| id.clone());
        // Not those with an open response or call: they end only if there are no others, which needs another scan.
        let idle = all
            .into_iter()
            .skip(1)
            .filter(|(rank, _)| rank.activity == Activity::Idle);
        self.idle.extend(idle.rev());
        longest_idle
    }
}

fn is_unused(session: Option<&Arc<Session>>) -> bool {
    session.is_some_and(|session| session.eviction_rank().activity == Activity::Unused)
}

const MIN_CANDIDATES: usize = 16;
