//! What happened in one schedule: the trace, what became of every handler, and which laws were broken.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The book of one schedule. Clones are the same book.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    book: Arc<Mutex<Book>>,
    /// Whether a trace is kept. Most schedules are played without one, which is much faster; one that breaks a
    /// law is played again.
    has_trace: bool,
}

/// Something that a call or a listener need not take for a fault, because of what went wrong before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Permit {
    /// Calls and subscriptions may fail as they like.
    Anything,
    /// Calls and subscriptions may end at the deadline of their client although they have none of their own.
    TimeOut,
    /// Calls and subscriptions may fail for reasons of the wire.
    ConnectionLost,
    /// Calls and subscriptions that the server never began to work on may fail for reasons of the wire.
    LostUnbegun,
    /// Subscriptions may end before they are dropped, and are made again then.
    SubscriptionLost,
    /// A listener may be told that it lagged.
    Lag,
    /// What a server said may be said to the same client once more.
    Replay,
}

#[derive(Debug)]
struct Book {
    begun: Instant,
    trace: Vec<String>,
    /// How often the last line of the trace was repeated.
    repeats: usize,
    at_work: BTreeMap<String, usize>,
    broken: Vec<String>,
    permits: BTreeSet<Permit>,
    /// How many changes were announced in this schedule.
    changes: u64,
    /// The last number that was given out.
    count: u64,
}

impl Ledger {
    /// Begins the book, and the clock, of a schedule.
    pub(crate) fn open(title: impl Display, has_trace: bool) -> Self {
        let book = Book {
            begun: Instant::now(),
            trace: Vec::new(),
            repeats: 0,
            at_work: BTreeMap::new(),
            broken: Vec::new(),
            permits: BTreeSet::new(),
            changes: 0,
            count: 0,
        };
        let ledger = Self {
            book: Arc::new(Mutex::new(book)),
            has_trace,
        };
        ledger.note(title);
        ledger
    }

    /// Writes down that something happened, and when.
    pub(crate) fn note(&self, what: impl Display) {
        if !self.has_trace {
            return;
        }
        let mut book = self.lock();
        let at = book.begun.elapsed().as_millis();
        let line = format!("{at:>6} {what}");
        if book.trace.last() == Some(&line) {
            book.repeats += 1;
            return;
        }
        let repeats = std::mem::take(&mut book.repeats);
        if repeats > 0 {
            book.trace.push(format!("       and {repeats} times more"));
        }
        book.trace.push(line);
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

    /// Whether a handler ever began to work for the call of this tag.
    pub(crate) fn has_worked(&self, tag: &str) -> bool {
        self.lock().at_work.contains_key(tag)
    }

    /// From now on this is no fault.
    pub(crate) fn permit(&self, permit: Permit) {
        self.lock().permits.insert(permit);
    }

    pub(crate) fn permits(&self, permit: Permit) -> bool {
        let permits = &self.lock().permits;
        permits.contains(&permit) || permits.contains(&Permit::Anything)
    }

    /// Whether calls may fail as they like.
    pub(crate) fn is_wrecked(&self) -> bool {
        self.permits(Permit::Anything)
    }

    /// A number that was not given out before.
    pub(crate) fn count(&self) -> u64 {
        let mut book = self.lock();
        book.count += 1;
        book.count
    }

    /// Counts a change, and returns how many there were with it.
    pub(crate) fn change(&self) -> u64 {
        let mut book = self.lock();
        book.changes += 1;
        book.changes
    }

    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    pub(crate) fn has_trace(&self) -> bool {
        self.has_trace
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    pub(crate) fn broken_laws(&self) -> Vec<String> {
        self.lock().broken.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
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
