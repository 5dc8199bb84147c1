//! [`IdTable`]: the exchanges with an id or a progress token.

use std::collections::BTreeMap;

use bowline_core::CorrelationKey;
use bowline_types::RequestId;

use crate::Side;

/// The numbers of exchanges by the side that sent the request and by an id of it, oldest first.
///
/// `7` and `"7"` have the same entry, so that an answer that changed the type of the id is found.
#[derive(Clone, Debug, Default)]
pub(super) struct IdTable(BTreeMap<(Side, CorrelationKey), Vec<usize>>);

impl IdTable {
    pub(super) fn add(&mut self, from: Side, id: &RequestId, number: usize) {
        let numbers = self.0.entry((from, id.into())).or_default();
        // Many clients start with the id 1. Without a limit, each lookup would take longer than the one before.
        if numbers.len() >= MAX_PER_ID {
            numbers.remove(0);
        }
        numbers.push(number);
    }

    /// Returns the exchanges with this id, newest first.
    pub(super) fn find(&self, from: Side, id: &RequestId) -> impl Iterator<Item = usize> {
        let numbers = self.0.get(&(from, id.into()));
        numbers.into_iter().flatten().rev().copied()
    }

    pub(super) fn remove(&mut self, from: Side, id: &RequestId, number: usize) {
        let key = (from, CorrelationKey::from(id));
        if let Some(numbers) = self.0.get_mut(&key) {
            numbers.retain(|it| *it != number);
            if numbers.is_empty() {
                self.0.remove(&key);
            }
        }
    }
}

const MAX_PER_ID: usize = 256;
