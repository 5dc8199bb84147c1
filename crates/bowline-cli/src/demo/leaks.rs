//! `Leaks`, the resources that a row of the report has left.

use std::time::Duration;

use serde::Serialize;

/// The number of leaked resources of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Leaks {
    pub(crate) handlers: u64,
    /// Calls and requests in the tables of both ends.
    pub(crate) entries: usize,
    pub(crate) tasks: usize,
    pub(crate) descriptors: usize,
    pub(crate) children: usize,
}

impl Leaks {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the leaks as text.
    pub(crate) fn describe(&self) -> String {
        let counts = [
            (self.handlers, "handlers"),
            (self.entries as u64, "entries"),
            (self.tasks as u64, "tasks"),
            (self.descriptors as u64, "descriptors"),
            (self.children as u64, "children"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        match words.is_empty() {
            true => "none".to_owned(),
            false => words.join(", "),
        }
    }
}

/// How long to wait for resources to be released.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);
