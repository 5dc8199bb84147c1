//! Requests of the peer whose answers have not left yet.
//!
//! They are keyed by the id as it was written: a peer may have `7` and `"7"` in flight at once. A request stays until
//! its answer has left, so that a cancel finds the answer without searching the queue.

use std::collections::BTreeMap;

use bowline_types::RequestId;

use super::outbox::Place;
use crate::id::other_spelling;

/// One request of the peer, told apart from an earlier or later one with the same id.
///
/// A handler that runs on after its request was cancelled may finish when the peer has already used the
/// id again; the serial number keeps it from answering the successor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InFlightId {
    serial: u64,
    request_id: RequestId,
}

impl InFlightId {
    /// The id as the peer wrote it.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }
}

#[derive(Debug, Default)]
pub(super) struct InFlight {
    requests: BTreeMap<RequestId, Request>,
    /// How many are not answered yet.
    open: usize,
    last_serial: u64,
}

#[derive(Debug)]
struct Request {
    serial: u64,
    /// Where its answer waits, once it is answered.
    answer: Option<Place>,
}

impl InFlight {
    pub(super) fn insert(&mut self, request_id: RequestId) -> InFlightId {
        self.last_serial += 1;
        self.open += 1;
        let serial = self.last_serial;
        let request = Request {
            serial,
            answer: None,
        };
        self.requests.insert(request_id.clone(), request);
        InFlightId { serial, request_id }
    }

    /// Whether the request is not answered yet.
    pub(super) fn is_open(&self, id: &InFlightId) -> bool {
        let request = self.requests.get(&id.request_id);
        request.is_some_and(|own| own.serial == id.serial && own.answer.is_none())
    }

    pub(super) fn contains_request(&self, id: &RequestId) -> bool {
        self.requests.contains_key(id)
    }

    /// Notes where the answer of a request will wait, and returns whether it was not answered yet.
    pub(super) fn answer(&mut self, id: &InFlightId, place: Place) -> bool {
        let request = self.requests.get_mut(&id.request_id);
        match request.filter(|own| own.serial == id.serial && own.answer.is_none()) {
            Some(own) => {
                own.answer = Some(place);
                self.open -= 1;
                true
            }
            None => false,
        }
    }

    /// Forgets a request whose answer has left. No other has its id: that would have been refused until now.
    pub(super) fn left(&mut self, id: &InFlightId) {
        let request = self.requests.remove(&id.request_id);
        debug_assert!(request.is_none_or(|own| own.serial == id.serial && own.answer.is_some()));
    }

    /// Forgets the request that a cancel names: the one with exactly this id, else the one whose id is
    /// the other spelling of the same number. Its answer may be waiting already.
    pub(super) fn take(&mut self, named: &RequestId) -> Option<(InFlightId, Option<Place>)> {
        let request_id = if self.requests.contains_key(named) {
            named.clone()
        } else {
            other_spelling(named)?
        };
        let Request { serial, answer } = self.requests.remove(&request_id)?;
        self.open -= usize::from(answer.is_none());
        Some((InFlightId { serial, request_id }, answer))
    }

    /// Forgets all, and returns those that are not answered, oldest first.
    pub(super) fn drain(&mut self) -> Vec<InFlightId> {
        self.open = 0;
        let mut open: Vec<_> = std::mem::take(&mut self.requests)
            .into_iter()
            .filter(|(_, request)| request.answer.is_none())
            .map(|(request_id, Request { serial, .. })| InFlightId { serial, request_id })
            .collect();
        open.sort();
        open
    }

    /// How many are not answered yet.
    pub(super) fn len(&self) -> usize {
        self.open
    }
}
