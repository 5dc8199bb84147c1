//! Which session is ended next to make room for another.

use std::collections::VecDeque;
use std::sync::Arc;

use super::session::Session;
use super::state::{Idleness, Kind};

/// The sessions that can be missed most easily: those that were never used, then those that were idle for longest.
///
/// To look at all sessions for each new one would take too long, so that both lists are checked only when something is
/// taken out of them.
#[derive(Default)]
pub(super) struct Candidates {
    /// Every session that was never used, in the order of their opening, among others that were used since.
    unused: VecDeque<String>,
    /// Those that were idle for longest when all were last looked at, the idlest at the end. Whatever is not among them
    /// was active later than those that are still as idle as they were then.
    idle: Vec<(Idleness, String)>,
}

impl Candidates {
    /// Adds a session that was just opened; `find` finds each of the `open` ones by its id.
    pub(super) fn add<'a>(
        &mut self,
        id: String,
        open: usize,
        find: impl Fn(&str) -> Option<&'a Arc<Session>>,
    ) {
        if self.unused.len() > 2 * open + MIN_CANDIDATES {
            self.unused.retain(|id| is_unused(find(id)));
        }
        self.unused.push_back(id);
    }

    /// Takes out the session that can be missed most easily; `sessions` are all that are open.
    pub(super) fn pop<'a, S>(
        &mut self,
        find: impl Fn(&str) -> Option<&'a Arc<Session>>,
        sessions: impl Fn() -> S,
    ) -> Option<String>
    where
        S: Iterator<Item = &'a Arc<Session>>,
    {
        while let Some(id) = self.unused.pop_front() {
            if is_unused(find(&id)) {
                return Some(id);
            }
        }
        while let Some((idleness, id)) = self.idle.pop() {
            if find(&id).is_some_and(|session| session.idleness() == idleness) {
                return Some(id);
            }
        }
        let mut all: Vec<_> = sessions()
            .map(|session| (session.idleness(), &session.id))
            .collect();
        let most = MIN_CANDIDATES.max(all.len() / 16).min(all.len());
        if most < all.len() {
            all.select_nth_unstable(most);
            all.truncate(most);
        }
        all.sort_unstable();
        let idlest = all.first().map(|(_, id)| (*id).clone());
        // Those that are read or busy are taken only while there are no others, so that all have to be looked at again.
        let idle = all
            .into_iter()
            .skip(1)
            .filter(|(idleness, _)| idleness.kind == Kind::Idle);
        self.idle
            .extend(idle.rev().map(|(idleness, id)| (idleness, id.clone())));
        idlest
    }
}

fn is_unused(session: Option<&Arc<Session>>) -> bool {
    session.is_some_and(|session| session.idleness().kind == Kind::Unused)
}

const MIN_CANDIDATES: usize = 16;
