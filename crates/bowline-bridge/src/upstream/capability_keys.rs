//! [`CapabilityKeys`]: the digests of the capabilities of clients, for the keys of pools.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bowline::Json;
use bowline::exchange::{Caller, Digest, request_digest};

/// The digests of the capabilities of the last callers. A client sends many requests with one caller, and encoding its
/// capabilities for each of them would cost more than choosing a connection.
///
/// Neither the callers nor their capabilities are kept: a client may send another one with each request, of any size.
#[derive(Default)]
pub(crate) struct CapabilityKeys(Mutex<Vec<(Weak<Caller>, Digest)>>);

impl CapabilityKeys {
    /// Returns the digest of the capabilities of a caller.
    pub(crate) fn get(&self, caller: &Arc<Caller>) -> Digest {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A `Weak` keeps the place of its caller from being used again, and `Arc::make_mut` then moves the caller, so the
        // same pointer means the same capabilities.
        let found = known
            .iter()
            .find(|(own, _)| std::ptr::eq(own.as_ptr(), &raw const **caller));
        if let Some((_, digest)) = found {
            return *digest;
        }
        let encoded = Json::encode(&caller.capabilities).unwrap_or_else(|_| Json::null());
        let digest = request_digest(&format!("capabilities {}", encoded.as_str()), None);
        known.retain(|(caller, _)| caller.strong_count() > 0);
        if known.len() == MAX_CALLERS {
            known.remove(0);
        }
        known.push((Arc::downgrade(caller), digest));
        digest
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
    fn the_last_callers_are_remembered_as_long_as_they_exist() {
        let keys = CapabilityKeys::default();
        let remembered = || keys.0.lock().unwrap().len();
        let callers: Vec<_> = (0..=MAX_CALLERS)
            .map(|_| Arc::new(Caller::new(Dialect::LATEST)))
            .collect();

        let first = keys.get(&callers[0]);
        assert_eq!((keys.get(&callers[0]), remembered()), (first, 1));
        for caller in &callers[1..] {
            assert_eq!(keys.get(caller), first);
        }
        assert_eq!(remembered(), MAX_CALLERS);

        drop(callers);
        keys.get(&Arc::new(Caller::new(Dialect::LATEST)));
        assert_eq!(remembered(), 1);
    }

    #[test]
    fn a_caller_is_not_kept_in_memory() {
        let keys = CapabilityKeys::default();
        let caller = Arc::new(Caller::new(Dialect::LATEST));

        keys.get(&caller);

        assert_eq!(Arc::strong_count(&caller), 1);
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
