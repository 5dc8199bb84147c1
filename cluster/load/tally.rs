//! [`Tally`]: what happened to calls, notices and tasks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The counts of all clients.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Counts>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) failed_calls: u64,
    /// Answers to other calls.
    pub(crate) crossed: u64,
    /// Calls that ended later than their deadline allows.
    pub(crate) overdue: u64,
    pub(crate) longest: Duration,
    /// Changes that a replica has announced.
    pub(crate) notices: u64,
    pub(crate) delivered: u64,
    /// Not delivered, and the subscriber knows that it may have missed some.
    pub(crate) missed: u64,
    pub(crate) lost_notices: u64,
    /// Tasks whose creation was answered.
    pub(crate) tasks: u64,
    pub(crate) completed: u64,
    pub(crate) lost_tasks: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the counts since the last time.
    pub(crate) fn take(&self) -> Counts {
        std::mem::take(&mut self.lock())
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.lock());
    }

    /// Counts a call with its result, which must be `expected`.
    pub(crate) fn call(
        &self,
        took: Duration,
        limit: Duration,
        expected: &str,
        result: bowline::Result<String>,
    ) {
        let mut counts = self.lock();
        counts.calls += 1;
        counts.longest = counts.longest.max(took);
        if took > limit + SLACK {
            counts.overdue += 1;
        }
        match result {
            Ok(text) if text == expected => {}
            Ok(_) => counts.crossed += 1,
            Err(error) => {
                counts.failed_calls += 1;
                *counts.errors.entry(with_causes(&error)).or_default() += 1;
            }
        }
    }

    /// Keeps the text of an error, for people.
    pub(crate) fn error(&self, error: &dyn std::error::Error) {
        *self.lock().errors.entry(with_causes(error)).or_default() += 1;
    }
}

impl Counts {
    /// Returns whether nothing happened that must never happen.
    pub(crate) fn is_sound(&self) -> bool {
        self.crossed + self.overdue + self.lost_notices + self.lost_tasks == 0
    }

    pub(crate) fn print_errors(&self) {
        for (error, count) in &self.errors {
            println!("  {count} × {error}");
        }
    }
}

/// An error and its causes, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text.replace('\n', " ")
}

/// A busy machine wakes a task late.
const SLACK: Duration = Duration::from_secs(1);
