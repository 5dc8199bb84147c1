//! The source of all randomness in a schedule: one seed, drawn from in one order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pseudorandom generator. Clones share its state.
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(Arc<AtomicU64>);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// Returns a number below `bound`, which is at least 1.
    pub(crate) fn below(&self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns true with a probability of one in `times`.
    pub(crate) fn one_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns `max` in most cases, and otherwise a number from 1 to `max`.
    pub(crate) fn some_of(&self, max: usize) -> usize {
        if max > 1 && self.one_in(4) {
            1 + self.below(max - 1)
        } else {
            max
        }
    }

    /// The generator is SplitMix64.
    fn next(&self) -> u64 {
        let state = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
