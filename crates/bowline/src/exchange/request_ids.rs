//! [`RequestIds`], the request ids of a channel without a `Mux` (HTTP, in process), with the same rules as on a wire.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_core::mux::CallRefused;
use bowline_core::{CorrelationKey, RequestIdGenerator};
use bowline_types::RequestId;

use crate::sync::Mutex;

/// The request ids in use on one channel.
#[derive(Clone, Default)]
pub(crate) struct RequestIds(Arc<Mutex<IdTable>>);

#[derive(Default)]
struct IdTable {
    in_use: BTreeSet<CorrelationKey>,
    id_generator: RequestIdGenerator,
}

impl RequestIds {
    /// Reserves the chosen id, or generates one.
    pub(crate) fn reserve(&self, chosen: Option<RequestId>) -> Result<IdReservation, CallRefused> {
        let mut table = self.0.lock();
        let IdTable {
            in_use,
            id_generator,
        } = &mut *table;
        let id = chosen.unwrap_or_else(|| id_generator.next_id(|key| in_use.contains(key)));
        if !in_use.insert(CorrelationKey::from(&id)) {
            return Err(CallRefused::IdInUse(id));
        }
        drop(table);
        Ok(IdReservation {
            id,
            ids: self.clone(),
        })
    }

    pub(crate) fn in_use(&self) -> usize {
        self.0.lock().in_use.len()
    }
}

/// A reserved id.
#[must_use = "dropping a reservation frees the id"]
pub(crate) struct IdReservation {
    id: RequestId,
    ids: RequestIds,
}

impl IdReservation {
    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }
}

impl Drop for IdReservation {
    fn drop(&mut self) {
        self.ids
            .0
            .lock()
            .in_use
            .remove(&CorrelationKey::from(&self.id));
    }
}
