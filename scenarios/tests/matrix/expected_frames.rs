//! The exact frames that a cell expects on the wire.

use crate::column::{AbandonSignal, Column};

/// The expected frames: first some in order, then the rest in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpectedFrames {
    in_order: Vec<String>,
    in_any_order: Vec<String>,
    /// Frames that may be sent or not when both ends close at the same time.
    optional: Vec<String>,
}

impl ExpectedFrames {
    /// Adds the next frame of the ordered part.
    pub(crate) fn then(mut self, frame: impl Into<String>) -> Self {
        self.in_order.push(frame.into());
        self
    }

    /// Adds a frame that follows the ordered part, in any order.
    pub(crate) fn unordered(mut self, frame: impl Into<String>) -> Self {
        self.in_any_order.push(frame.into());
        self
    }

    pub(crate) fn optional(mut self, frame: impl Into<String>) -> Self {
        self.optional.push(frame.into());
        self
    }

    /// Adds the frames that abandon request `id` in this column.
    pub(crate) fn abandoned(self, column: Column, id: i64, reason: &str) -> Self {
        match column.signal() {
            AbandonSignal::None => self,
            AbandonSignal::Cancel => self.then(cancel('→', id, reason)),
            AbandonSignal::Close => self.then(format!("→ closes {id}")),
            AbandonSignal::CancelAndEnd => self
                .then(cancel('→', id, reason))
                .then(format!("← {id} error -32800")),
        }
    }

    /// Expects no frames where the column has no wire.
    pub(crate) fn on_wire(self, column: Column) -> Self {
        match column.signal() {
            AbandonSignal::None => Self::default(),
            _ => self,
        }
    }

    /// Whether exactly these frames were recorded.
    pub(crate) fn matches(&self, recorded: &[String]) -> bool {
        let mut recorded = recorded.to_vec();
        for frame in &self.optional {
            // The last one: the same frame may be among those that are expected.
            let expected = self.in_order.iter().chain(&self.in_any_order);
            let expected = expected.filter(|expected| *expected == frame).count();
            let found = recorded.iter().filter(|recorded| *recorded == frame);
            let is_surplus = found.count() > expected;
            let last = recorded.iter().rposition(|recorded| recorded == frame);
            if let Some(at) = last.filter(|_| is_surplus) {
                recorded.remove(at);
            }
        }
        let Some((in_order, rest)) = recorded.split_at_checked(self.in_order.len()) else {
            return false;
        };
        let (mut rest, mut any) = (rest.to_vec(), self.in_any_order.clone());
        rest.sort();
        any.sort();
        in_order == self.in_order && rest == any
    }
}

/// A `notifications/cancelled` without any other member.
pub(crate) fn cancel(direction: char, id: i64, reason: &str) -> String {
    format!("{direction} cancel {id}: {reason}")
}
