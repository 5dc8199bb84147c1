//! What happened in one schedule: the trace, what became of every handler, and which laws were broken.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The book of one schedule. Clones are the same book.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Debug)]
struct Book {
    begun: Instant,
    trace: Vec<String>,
    at_work: BTreeMap<String, usize>,
    broken: Vec<String>,
    is_wrecked: bool,
}

impl Ledger {
    /// Begins the book, and the clock, of a schedule.
    pub(crate) fn open(title: impl Display) -> Self {
        let ledger = Self(Arc::new(Mutex::new(Book {
            begun: Instant::now(),
            trace: Vec::new(),
            at_work: BTreeMap::new(),
            broken: Vec::new(),
            is_wrecked: false,
        })));
        ledger.note(title);
        ledger
    }

    /// Writes down that something happened, and when.
    pub(crate) fn note(&self, what: impl Display) {
        let mut book = self.lock();
        let at = book.begun.elapsed().as_millis();
        book.trace.push(format!("{at:>6} {what}"));
    }

    /// Writes down that a law does not hold.
    pub(crate) fn broken(&self, law: &str, how: impl Display) {
        self.note(format_args!("BROKEN {law}: {how}"));
        self.lock().broken.push(format!("{law}: {how}"));
    }

    /// A handler is at work for the call of this tag until the guard is dropped.
    pub(crate) fn at_work(&self, tag: &str) -> AtWork {
        self.note(format_args!("{tag} handler begins"));
        *self.lock().at_work.entry(tag.to_owned()).or_default() += 1;
        AtWork {
            ledger: self.clone(),
            tag: tag.to_owned(),
            is_done: false,
        }
    }

    pub(crate) fn is_at_work(&self, tag: &str) -> bool {
        self.lock().at_work.get(tag).is_some_and(|count| *count > 0)
    }

    /// Whose handlers are at work.
    pub(crate) fn all_at_work(&self) -> Vec<String> {
        let book = self.lock();
        let tags = book.at_work.iter().filter(|(_, count)| **count > 0);
        tags.map(|(tag, _)| tag.clone()).collect()
    }

    /// From now on calls may fail for reasons of the wire.
    pub(crate) fn wreck(&self) {
        self.lock().is_wrecked = true;
    }

    pub(crate) fn is_wrecked(&self) -> bool {
        self.lock().is_wrecked
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    pub(crate) fn broken_laws(&self) -> Vec<String> {
        self.lock().broken.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handler at work. If it is dropped before [`AtWork::done`], so was the handler.
pub(crate) struct AtWork {
    ledger: Ledger,
    tag: String,
    is_done: bool,
}

impl AtWork {
    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let how = if self.is_done {
            "is done"
        } else {
            "is dropped"
        };
        self.ledger.note(format_args!("{} handler {how}", self.tag));
        let mut book = self.ledger.lock();
        *book.at_work.entry(self.tag.clone()).or_default() -= 1;
    }
}
