//! Ids of exchanges that no engine keeps, under the same rules as on a wire.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_core::mux::Refused;
use bowline_core::{CorrelationKey, Minter};
use bowline_types::RequestId;

/// The ids that are in use on one channel.
#[derive(Clone, Default)]
pub(crate) struct Ids(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    in_use: BTreeSet<CorrelationKey>,
    minter: Minter,
}

impl Ids {
    /// Takes the chosen id, or mints one.
    pub(crate) fn reserve(&self, chosen: Option<RequestId>) -> Result<Reservation, Refused> {
        let mut table = self.lock();
        let Table { in_use, minter } = &mut *table;
        let id = chosen.unwrap_or_else(|| minter.mint(|key| in_use.contains(key)));
        if !in_use.insert(CorrelationKey::from(&id)) {
            return Err(Refused::IdInUse(id));
        }
        drop(table);
        Ok(Reservation {
            id,
            ids: self.clone(),
        })
    }

    pub(crate) fn in_use(&self) -> usize {
        self.lock().in_use.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code that could panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An id that nobody else has while this lives.
#[must_use = "the id is free again when this is dropped"]
pub(crate) struct Reservation {
    id: RequestId,
    ids: Ids,
}

impl Reservation {
    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.ids
            .lock()
            .in_use
            .remove(&CorrelationKey::from(&self.id));
    }
}
