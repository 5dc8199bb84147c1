//! What must pass over a wire in a cell: nothing less, nothing else.

use crate::column::{Column, Signal};

/// What must have passed: some of it in order, and after that the rest in any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames {
    in_order: Vec<String>,
    in_any_order: Vec<String>,
    /// What two ends that close at the same time may still say.
    perhaps: Vec<String>,
}

impl Frames {
    /// What follows what came before.
    pub(crate) fn then(mut self, frame: impl Into<String>) -> Self {
        self.in_order.push(frame.into());
        self
    }

    /// What comes after everything that has an order.
    pub(crate) fn at_last(mut self, frame: impl Into<String>) -> Self {
        self.in_any_order.push(frame.into());
        self
    }

    pub(crate) fn perhaps(mut self, frame: impl Into<String>) -> Self {
        self.perhaps.push(frame.into());
        self
    }

    /// How the request `id` is let go of in this column.
    pub(crate) fn let_go(self, column: Column, id: i64, reason: &str) -> Self {
        match column.signal() {
            Signal::None => self,
            Signal::Cancel => self.then(cancel('→', id, reason)),
            Signal::Close => self.then(format!("→ closes {id}")),
            Signal::CancelAndEnd => self
                .then(cancel('→', id, reason))
                .then(format!("← {id} error -32800")),
        }
    }

    /// The same where there is a wire; nothing where there is none.
    pub(crate) fn over(self, column: Column) -> Self {
        match column.signal() {
            Signal::None => Self::default(),
            _ => self,
        }
    }

    /// Whether this is what passed.
    pub(crate) fn are(&self, passed: &[String]) -> bool {
        let mut passed = passed.to_vec();
        for frame in &self.perhaps {
            if let Some(at) = passed.iter().position(|passed| passed == frame) {
                passed.remove(at);
            }
        }
        let Some((in_order, rest)) = passed.split_at_checked(self.in_order.len()) else {
            return false;
        };
        let (mut rest, mut any) = (rest.to_vec(), self.in_any_order.clone());
        rest.sort();
        any.sort();
        in_order == self.in_order && rest == any
    }
}

/// The frame of a cancel, in full.
pub(crate) fn cancel(direction: char, id: i64, reason: &str) -> String {
    format!(
        r#"{direction} {{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"{reason}"}}}}"#
    )
}
