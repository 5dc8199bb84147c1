//! [`StateKeys`]: the keys of the states that clients keep between two rounds.

use std::sync::{Arc, OnceLock};

use bowline::seal::Sealer;

/// The keys of a bridge, which those of its cluster replace. Clones are the same keys.
#[derive(Clone, Debug)]
pub(crate) struct StateKeys(Arc<Keys>);

#[derive(Debug)]
struct Keys {
    own: Sealer,
    of_cluster: OnceLock<Sealer>,
}

impl StateKeys {
    pub(crate) fn new(own: Sealer) -> Self {
        Self(Arc::new(Keys {
            own,
            of_cluster: OnceLock::new(),
        }))
    }

    pub(crate) fn sealer(&self) -> &Sealer {
        self.0.of_cluster.get().unwrap_or(&self.0.own)
    }

    /// Uses the keys that all replicas have. The first ones stay.
    pub(crate) fn set_of_cluster(&self, keys: Sealer) {
        let _ = self.0.of_cluster.set(keys);
    }
}
