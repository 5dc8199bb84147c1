//! Proofs that were used already.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Remembers proofs for as long as they could be used again. Bounded: when it is full, nothing more comes in.
#[derive(Debug)]
pub(super) struct UsedProofs {
    most: usize,
    state: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    proofs: BTreeSet<[u8; 32]>,
    /// In the order in which they may be forgotten, with the second from which on.
    order: VecDeque<(u64, [u8; 32])>,
}

/// Why a proof does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unused {
    /// It was used before.
    Replayed,
    /// There is no room to remember it.
    Full,
}

impl UsedProofs {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            state: Mutex::default(),
        }
    }

    /// Takes a proof in that is good for `lifetime` seconds at most.
    pub(super) fn use_up(&self, proof: [u8; 32], now: u64, lifetime: u64) -> Result<(), Unused> {
        let mut used = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((from, old)) = used.order.front().copied() {
            if now < from {
                break;
            }
            used.order.pop_front();
            used.proofs.remove(&old);
        }
        if used.proofs.contains(&proof) {
            return Err(Unused::Replayed);
        }
        if used.proofs.len() >= self.most {
            return Err(Unused::Full);
        }
        used.proofs.insert(proof);
        used.order.push_back((now.saturating_add(lifetime), proof));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_counts_once_while_it_is_good() {
        let used = UsedProofs::new(10);

        assert_eq!(used.use_up([1; 32], 100, 60), Ok(()));
        assert_eq!(used.use_up([1; 32], 159, 60), Err(Unused::Replayed));
        assert_eq!(used.use_up([2; 32], 159, 60), Ok(()));
        assert_eq!(used.use_up([1; 32], 160, 60), Ok(()));
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for_and_nothing_is_forgotten_early() {
        let used = UsedProofs::new(2);
        used.use_up([1; 32], 100, 60).unwrap();
        used.use_up([2; 32], 100, 60).unwrap();

        assert_eq!(used.use_up([3; 32], 100, 60), Err(Unused::Full));
        assert_eq!(used.use_up([1; 32], 100, 60), Err(Unused::Replayed));
        assert_eq!(used.use_up([3; 32], 160, 60), Ok(()));
    }
}
