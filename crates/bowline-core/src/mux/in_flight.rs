//! The table of the peer's requests whose responses are not sent yet.
//!
//! Ids are compared verbatim: a peer may have `7` and `"7"` in flight at the same time. A request stays in the table
//! until its response is sent, so that a cancel finds the queued response without searching the queue.

use std::collections::BTreeMap;

use bowline_types::RequestId;

use super::outbox::QueuePosition;
use crate::id::alternate_id;

/// Identifies a request of the peer, even if the peer reuses its id.
///
/// A handler that continues after its request was cancelled may finish when the peer has already reused the id. The
/// serial number prevents it from answering the new request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InFlightId {
    serial: u64,
    request_id: RequestId,
}

impl InFlightId {
    /// Returns the id as the peer sent it.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }
}

#[derive(Debug, Default)]
pub(super) struct InFlightRequests {
    requests: BTreeMap<RequestId, InFlightRequest>,
    /// The number of unanswered requests.
    open: usize,
    last_serial: u64,
}

#[derive(Debug)]
struct InFlightRequest {
    serial: u64,
    /// The position of its response in the outbox, once it is answered.
    answer: Option<QueuePosition>,
}

impl InFlightRequests {
    pub(super) fn insert(&mut self, request_id: RequestId) -> InFlightId {
        self.last_serial += 1;
        self.open += 1;
        let serial = self.last_serial;
        let request = InFlightRequest {
            serial,
            answer: None,
        };
        self.requests.insert(request_id.clone(), request);
        InFlightId { serial, request_id }
    }

    /// Returns whether the request is unanswered.
    pub(super) fn is_open(&self, id: &InFlightId) -> bool {
        let request = self.requests.get(&id.request_id);
        request.is_some_and(|own| own.serial == id.serial && own.answer.is_none())
    }

    pub(super) fn contains_request(&self, id: &RequestId) -> bool {
        self.requests.contains_key(id)
    }

    /// Records the position of the response to a request. Returns whether the request was unanswered.
    pub(super) fn answer(&mut self, id: &InFlightId, position: QueuePosition) -> bool {
        let request = self.requests.get_mut(&id.request_id);
        match request.filter(|own| own.serial == id.serial && own.answer.is_none()) {
            Some(own) => {
                own.answer = Some(position);
                self.open -= 1;
                true
            }
            None => false,
        }
    }

    /// Removes a request whose response was sent. Its id cannot belong to another request: that was rejected until now.
    pub(super) fn remove_answered(&mut self, id: &InFlightId) {
        let request = self.requests.remove(&id.request_id);
        debug_assert!(request.is_none_or(|own| own.serial == id.serial && own.answer.is_some()));
    }

    /// Removes the request that a cancel names, and returns the position of its response if one is queued. Matches
    /// the id verbatim, else its other spelling: `7` for `"7"` and the reverse.
    pub(super) fn take(
        &mut self,
        named: &RequestId,
    ) -> Option<(InFlightId, Option<QueuePosition>)> {
        let request_id = if self.requests.contains_key(named) {
            named.clone()
        } else {
            alternate_id(named)?
        };
        let InFlightRequest { serial, answer } = self.requests.remove(&request_id)?;
        self.open -= usize::from(answer.is_none());
        Some((InFlightId { serial, request_id }, answer))
    }

    /// Removes all requests, and returns the unanswered ones, oldest first.
    pub(super) fn drain(&mut self) -> Vec<InFlightId> {
        self.open = 0;
        let mut open: Vec<_> = std::mem::take(&mut self.requests)
            .into_iter()
            .filter(|(_, request)| request.answer.is_none())
            .map(|(request_id, InFlightRequest { serial, .. })| InFlightId { serial, request_id })
            .collect();
        open.sort();
        open
    }

    /// Returns the number of unanswered requests.
    pub(super) fn len(&self) -> usize {
        self.open
    }
}
