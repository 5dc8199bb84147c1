//! Chance that can be repeated: all that is random in a schedule comes from one seed, in one order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that look random and are the same for the same seed. Clones draw from the same row.
#[derive(Clone, Debug)]
pub(crate) struct Chance(Arc<AtomicU64>);

impl Chance {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Whether something happens that happens once in `times`.
    pub(crate) fn one_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// How many of `most`, at least 1; usually all.
    pub(crate) fn some_of(&self, most: usize) -> usize {
        if most > 1 && self.one_in(4) {
            1 + self.below(most - 1)
        } else {
            most
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
