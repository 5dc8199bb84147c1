//! [`CapabilityKeys`]: the capabilities of clients as text, for the keys of pools.

use std::sync::{Arc, Mutex, PoisonError};

use bowline::Json;
use bowline::exchange::Caller;

/// The encoded capabilities of the last callers. A client sends many requests with one caller, and encoding its
/// capabilities for each of them would cost more than choosing a connection.
#[derive(Default)]
pub(crate) struct CapabilityKeys(Mutex<Vec<(Arc<Caller>, Arc<str>)>>);

impl CapabilityKeys {
    /// Returns the encoded capabilities of a caller.
    pub(crate) fn get(&self, caller: &Arc<Caller>) -> Arc<str> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // While an `Arc` is held its caller does not change, so the same pointer means the same capabilities.
        let place = known.iter().position(|(own, _)| Arc::ptr_eq(own, caller));
        if let Some(place) = place {
            return known[place].1.clone();
        }
        let encoded = Json::encode(&caller.capabilities);
        let encoded: Arc<str> = encoded.map_or_else(|_| "".into(), |json| json.as_str().into());
        if known.len() == MAX_CALLERS {
            known.remove(0);
        }
        known.push((caller.clone(), encoded.clone()));
        encoded
    }
}

/// The number of callers that are remembered: those that are likely to be active.
const MAX_CALLERS: usize = 64;

#[cfg(test)]
mod tests {
    use bowline::exchange::Dialect;
    use bowline::types::ClientCapabilities;

    use super::*;

    #[test]
    fn a_key_is_encoded_once_for_each_of_the_last_callers() {
        let keys = CapabilityKeys::default();
        let callers: Vec<_> = (0..=MAX_CALLERS)
            .map(|_| Arc::new(Caller::new(Dialect::LATEST)))
            .collect();

        let first = keys.get(&callers[0]);
        assert_eq!(&*first, "{}");
        assert!(Arc::ptr_eq(&keys.get(&callers[0]), &first));
        for caller in &callers[1..] {
            keys.get(caller);
        }

        assert!(!Arc::ptr_eq(&keys.get(&callers[0]), &first));
        assert_eq!(keys.0.lock().unwrap().len(), MAX_CALLERS);
    }

    #[test]
    fn a_caller_that_was_changed_has_another_key() {
        let keys = CapabilityKeys::default();
        let mut caller = Arc::new(Caller::new(Dialect::LATEST));
        let before = keys.get(&caller);

        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = Some(Default::default());
        Arc::make_mut(&mut caller).capabilities = capabilities;

        assert_ne!(keys.get(&caller), before);
    }
}
