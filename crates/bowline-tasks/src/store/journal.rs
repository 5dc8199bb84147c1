//! The journal of a task: what its handler has done, for a run after a crash.

use bowline_types::Json;

/// An entry of a task's journal. Kind and name identify it within the task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalEntry {
    /// What the entry records.
    pub kind: JournalKind,
    /// The name of the step, question or value.
    pub name: String,
    /// The result, answer or value.
    pub value: Json,
}

impl JournalEntry {
    /// Creates an entry.
    #[must_use]
    pub fn new(kind: JournalKind, name: impl Into<String>, value: Json) -> Self {
        Self {
            kind,
            name: name.into(),
            value,
        }
    }

    /// Returns the number of bytes that a store charges for the entry.
    #[must_use]
    pub fn size(&self) -> usize {
        ENTRY_OVERHEAD + self.name.len() + self.value.as_bytes().len()
    }
}

/// What a [`JournalEntry`] records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum JournalKind {
    /// A step started; appended before an effect that must happen at most once.
    Started,
    /// The result of a step.
    Step,
    /// The answer to a question.
    Answer,
    /// A value that the handler remembers from run to run.
    Remembered,
}

impl JournalKind {
    /// Returns the name that stores write.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Step => "step",
            Self::Answer => "answer",
            Self::Remembered => "remembered",
        }
    }

    /// Returns the kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Started, Self::Step, Self::Answer, Self::Remembered];
        all.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The outcome of [`TaskStore::append`](super::TaskStore::append).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "callers must handle every case")]
pub enum Appended {
    /// The entry is stored.
    Done,
    /// An entry with this kind and name was stored before, with this value.
    Existing(Json),
    /// The caller does not hold the lease in this attempt; nothing is stored.
    LeaseLost,
}

/// Approximates what a store needs for an entry besides its texts.
const ENTRY_OVERHEAD: usize = 64;
