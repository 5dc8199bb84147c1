//! Requests of the peer that are not answered yet.
//!
//! They are keyed by the id as it was written: a peer may have `7` and `"7"` in flight at once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bowline_types::RequestId;

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
    requests: BTreeMap<RequestId, u64>,
    last_serial: u64,
}

impl InFlight {
    pub(super) fn insert(&mut self, request_id: RequestId) -> InFlightId {
        self.last_serial += 1;
        self.requests.insert(request_id.clone(), self.last_serial);
        InFlightId {
            serial: self.last_serial,
            request_id,
        }
    }

    pub(super) fn contains(&self, id: &InFlightId) -> bool {
        self.requests.get(&id.request_id) == Some(&id.serial)
    }

    pub(super) fn contains_request(&self, id: &RequestId) -> bool {
        self.requests.contains_key(id)
    }

    /// Forgets the request. Whether there was one.
    pub(super) fn remove(&mut self, id: &InFlightId) -> bool {
        match self.requests.entry(id.request_id.clone()) {
            Entry::Occupied(own) if *own.get() == id.serial => {
                own.remove();
                true
            }
            Entry::Occupied(_) | Entry::Vacant(_) => false,
        }
    }

    /// Forgets the request that a cancel names: the one with exactly this id, else the one whose id is
    /// the other spelling of the same number.
    pub(super) fn take(&mut self, named: &RequestId) -> Option<InFlightId> {
        let request_id = if self.requests.contains_key(named) {
            named.clone()
        } else {
            other_spelling(named)?
        };
        let serial = self.requests.remove(&request_id)?;
        Some(InFlightId { serial, request_id })
    }

    /// Forgets all, oldest first.
    pub(super) fn drain(&mut self) -> Vec<InFlightId> {
        let mut all: Vec<_> = std::mem::take(&mut self.requests)
            .into_iter()
            .map(|(request_id, serial)| InFlightId { serial, request_id })
            .collect();
        all.sort();
        all
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }
}
