//! [`Timeline`]: the events of a recording, grouped into exchanges.
//!
//! ```text
//! events ── observe ──▶ entries: one per message or HTTP event, in order, with the exchange it belongs to
//!                 └───▶ exchanges: request · notifications · questions · answer · cancel · legs
//! ```
//!
//! Over stdio, answers and cancels are matched by JSON-RPC id within a connection. Over HTTP, a modern answer belongs to
//! the HTTP request that it came on; legacy messages are matched within a session.

mod entry;
pub use entry::{Entry, EntryKind};

mod exchange;
pub use exchange::{
    Answer, Cancel, CancelForm, Exchange, ExchangeNotification, ExchangeState, HttpEnd,
};

mod http_exchange;
pub use http_exchange::HttpExchange;

mod id_table;
use id_table::IdTable;

mod members;
pub(crate) use members::{member, text_member};

mod observe;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bowline_types::ProtocolVersion;

use crate::{Event, Recording};

/// The exchanges of a recording, and the entries that they consist of.
///
/// # Examples
///
/// ```
/// use bowline_recording::{ExchangeState, Recording, Timeline};
///
/// let text = concat!(
///     r#"{"format":"bowline-recording","version":1,"started":"2026-07-28T12:00:00Z","transport":"stdio"}"#, "\n",
///     r#"{"at":10,"connection":1,"event":"message","from":"client","message":{"jsonrpc":"2.0","id":1,"method":"ping"}}"#, "\n",
///     r#"{"at":30,"connection":1,"event":"message","from":"server","message":{"jsonrpc":"2.0","id":1,"result":{}}}"#, "\n",
/// );
/// let timeline = Timeline::of(&Recording::parse(text.as_bytes())?);
///
/// let ping = timeline.exchange(1).unwrap();
/// assert_eq!(ping.method, "ping");
/// assert_eq!(ping.state, ExchangeState::Answered);
/// assert_eq!(ping.duration().unwrap().as_micros(), 20);
/// # Ok::<(), bowline_recording::ReadError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    entries: Vec<Entry>,
    exchanges: BTreeMap<usize, Exchange>,
    http: BTreeMap<u64, HttpExchange>,
    last_number: usize,
    /// Requests of each side by id, and by progress token.
    ids: IdTable,
    tokens: IdTable,
    /// The exchanges without an answer, per connection.
    in_flight: BTreeMap<u64, BTreeSet<usize>>,
    negotiated: BTreeMap<Scope, ProtocolVersion>,
    /// Exchanges that ended with `input_required`, by what a retry repeats.
    open_legs: BTreeMap<u64, Vec<usize>>,
    retention: Retention,
    /// Ended exchanges, oldest first; only if not everything is retained.
    ended: VecDeque<usize>,
    events: usize,
}

/// Where a legacy version was negotiated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Connection(u64),
    Session(String),
}

/// What is kept in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Retention {
    #[default]
    Everything,
    /// Exchanges in flight and some ended ones, without their params, results and notifications.
    Recent,
}

impl Timeline {
    /// Groups the events of a recording.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let mut timeline = Self::default();
        for event in &recording.events {
            let entries = timeline.observe(event);
            timeline.entries.extend(entries);
        }
        timeline.finish();
        timeline
    }

    /// Creates an empty timeline for events as they happen. It keeps a bounded number of exchanges, without their params
    /// and results, and no entries.
    #[must_use]
    pub fn live() -> Self {
        Self {
            retention: Retention::Recent,
            ..Self::default()
        }
    }

    /// Adds an event, and returns its entries: one, or one per message of a batch.
    pub fn observe(&mut self, event: &Event) -> Vec<Entry> {
        let entries = self.observe_event(event);
        self.events += 1;
        self.forget_ended();
        entries
    }

    /// Marks what is still in flight as hung, because nothing more was recorded.
    pub fn finish(&mut self) {
        for exchange in self.exchanges.values_mut() {
            if exchange.state == ExchangeState::InFlight {
                exchange.state = ExchangeState::Hung;
            }
        }
    }

    /// Returns the entries in their order. A [live](Self::live) timeline has none.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the exchange with this number, from 1.
    #[must_use]
    pub fn exchange(&self, number: usize) -> Option<&Exchange> {
        self.exchanges.get(&number)
    }

    /// Returns the exchanges in the order of their requests.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.values()
    }

    /// Returns the HTTP request with this number.
    #[must_use]
    pub fn http_exchange(&self, number: u64) -> Option<&HttpExchange> {
        self.http.get(&number)
    }

    /// Returns the HTTP requests in the order of their numbers.
    pub fn http_exchanges(&self) -> impl Iterator<Item = (u64, &HttpExchange)> {
        self.http.iter().map(|(number, http)| (*number, http))
    }

    /// Returns the exchange that the first leg of this one's multi-round-trip call is, and all legs after it.
    #[must_use]
    pub fn legs(&self, number: usize) -> Vec<&Exchange> {
        let mut first = number;
        let mut seen = BTreeSet::from([number]);
        while let Some(before) = self.exchange(first).and_then(|it| it.previous_leg) {
            if !seen.insert(before) {
                break;
            }
            first = before;
        }
        let mut legs = Vec::new();
        let mut next = Some(first);
        while let Some(exchange) = next.and_then(|number| self.exchange(number)) {
            legs.push(exchange);
            // A leg is always linked to a later exchange.
            next = exchange.next_leg.filter(|next| *next > exchange.number);
        }
        legs
    }

    /// Bounds the memory of a live timeline.
    fn forget_ended(&mut self) {
        if self.retention == Retention::Everything {
            return;
        }
        while self.ended.len() > MAX_ENDED {
            if let Some(number) = self.ended.pop_front() {
                self.forget(number);
            }
        }
        while self.exchanges.len() > MAX_ENDED + MAX_IN_FLIGHT {
            let Some((number, _)) = self.exchanges.first_key_value() else {
                break;
            };
            self.forget(*number);
        }
        while self.http.len() > MAX_IN_FLIGHT {
            self.http.pop_first();
        }
        while self.negotiated.len() > MAX_IN_FLIGHT {
            self.negotiated.pop_first();
        }
        while self.open_legs.len() > MAX_IN_FLIGHT {
            self.open_legs.pop_first();
        }
    }

    fn forget(&mut self, number: usize) {
        if let Some(exchange) = self.exchanges.remove(&number) {
            self.ids.remove(exchange.from, &exchange.id, number);
            if let Some(token) = &exchange.progress_token {
                self.tokens.remove(exchange.from, token, number);
            }
            self.settle(exchange.connection, number);
        }
    }

    /// Removes an exchange from those in flight.
    fn settle(&mut self, connection: u64, number: usize) {
        if let Some(numbers) = self.in_flight.get_mut(&connection) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.in_flight.remove(&connection);
            }
        }
    }
}

/// The number of ended exchanges that a live timeline keeps, to recognize late answers.
const MAX_ENDED: usize = 1024;

/// The number of exchanges in flight that a live timeline keeps.
const MAX_IN_FLIGHT: usize = 16 * 1024;

#[cfg(test)]
mod tests;
