//! [`PrincipalConnections`]: how many connections to an upstream each principal has.
//!
//! A client chooses the capabilities that it declares, and a pool has connections for each set of them. Without this
//! count, one principal could take the connections of all others by declaring ever other ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of principals to one upstream. Anonymous clients are not counted: they share the limit of all.
#[derive(Default)]
pub(crate) struct PrincipalConnections(Mutex<BTreeMap<Arc<str>, usize>>);

/// A connection that counts as one of its principal until it is dropped.
pub(crate) struct PrincipalConnection {
    counts: Arc<PrincipalConnections>,
    principal: Arc<str>,
}

impl PrincipalConnections {
    /// Counts another connection of `principal`, unless it has `max` already.
    pub(crate) fn add(
        self: &Arc<Self>,
        principal: &str,
        max: usize,
    ) -> Option<PrincipalConnection> {
        let mut counts = self.lock();
        let counted = match counts.get_key_value(principal) {
            Some((_, count)) if *count >= max => return None,
            Some((principal, _)) => principal.clone(),
            None => principal.into(),
        };
        *counts.entry(counted.clone()).or_default() += 1;
        Some(PrincipalConnection {
            counts: self.clone(),
            principal: counted,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PrincipalConnection {
    pub(crate) fn principal(&self) -> &str {
        &self.principal
    }
}

impl Drop for PrincipalConnection {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_at_most_so_many_connections_and_others_have_theirs() {
        let counts = Arc::<PrincipalConnections>::default();

        let held: Vec<_> = (0..2).map(|_| counts.add("ada", 2).unwrap()).collect();
        assert!(counts.add("ada", 2).is_none());
        let of_bob = counts.add("bob", 2);
        assert!(of_bob.is_some());

        drop(held);
        assert!(counts.add("ada", 1).is_some());
        drop(of_bob);
        assert!(counts.lock().is_empty(), "a principal is remembered");
    }
}
