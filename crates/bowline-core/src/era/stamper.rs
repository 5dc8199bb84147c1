//! [`Stamper`]: converts outgoing requests to their wire form, and caches the encoded envelopes of the last callers.
//!
//! The envelope is the members of `_meta` for version, client info, capabilities and log level.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_types::Json;

use super::{Caller, Request, Stamped, legacy, modern};

/// Converts requests to the wire form of their caller's dialect, and caches the encoded envelopes of the last callers.
///
/// There are several if requests of several clients are forwarded over one connection.
#[derive(Debug, Default)]
pub struct Stamper {
    /// The callers that were used last and their encoded envelopes, the last one first. While an `Arc` is held,
    /// `Arc::make_mut` copies the caller, so the same pointer means the same envelope.
    recent: Mutex<Vec<(Arc<Caller>, Json)>>,
}

impl Stamper {
    /// Converts a request to the wire form of its caller's dialect.
    ///
    /// Modern: the caller's envelope (version, `clientInfo`, capabilities, log level) is written into `_meta`. Legacy:
    /// there is no envelope, and `server/discover` becomes `initialize`.
    ///
    /// Members of `_meta` that belong to the envelope are replaced by the caller's, or removed if the caller has none
    /// or the version is legacy. `progressToken` is set to that of the request, or removed. Other members of `_meta`
    /// are kept.
    ///
    /// Params that are not an object are sent unchanged, and the peer rejects them.
    #[must_use]
    pub fn stamp(&self, request: &Request) -> Stamped {
        match legacy::Adapter::of(request.caller.dialect) {
            Some(legacy) => legacy.stamp(request),
            None => modern::stamp(request, &self.envelope(&request.caller)),
        }
    }

    fn envelope(&self, caller: &Arc<Caller>) -> Json {
        // A panic under this lock leaves whole entries, so a poisoned value is consistent.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let place = recent.iter().position(|(own, _)| Arc::ptr_eq(own, caller));
        if let Some(place) = place {
            recent[..=place].rotate_right(1);
            return recent[0].1.clone();
        }
        let envelope = modern::envelope(caller);
        recent.truncate(MAX_CALLERS - 1);
        recent.insert(0, (caller.clone(), envelope.clone()));
        envelope
    }
}

/// The number of callers whose envelopes are cached.
const MAX_CALLERS: usize = 8;

#[cfg(test)]
mod tests {
    use bowline_types::{Implementation, LoggingLevel};

    use super::*;
    use crate::era::Dialect;

    #[test]
    fn a_changed_caller_gets_a_new_envelope() {
        let stamper = Stamper::default();
        let stamped = |caller: &Arc<Caller>| {
            let request = Request::new("ping", Json::empty_object(), caller.clone());
            let params = stamper.stamp(&request).params.unwrap();
            params.as_str().to_owned()
        };
        let mut one = Arc::new(Caller::new(Dialect::LATEST));
        let mut other = Caller::new(Dialect::LATEST);
        other.implementation = Some(Implementation::new("other", "1"));
        let other = Arc::new(other);

        let first = [stamped(&one), stamped(&one), stamped(&other), stamped(&one)];
        Arc::make_mut(&mut one).log_level = Some(LoggingLevel::Alert);
        let then = stamped(&one);

        assert_eq!((&first[0], &first[0]), (&first[1], &first[3]));
        let envelopes = [(); 2].map(|()| stamper.envelope(&one).as_bytes().as_ptr());
        assert_eq!(envelopes[0], envelopes[1], "encoded once");
        assert!(!first[0].contains("other") && first[2].contains("other"));
        assert!(!first[0].contains("alert") && then.contains("alert"));
    }
    #[test]
    fn the_envelopes_of_the_last_eight_callers_are_encoded_once() {
        let stamper = Stamper::default();
        let callers = [(); 9].map(|()| Arc::new(Caller::new(Dialect::LATEST)));
        // Held, so that the memory of one is not reused for another.
        let encoded = |caller: &Arc<Caller>| stamper.envelope(caller);
        let is_same =
            |one: &Json, other: &Json| one.as_bytes().as_ptr() == other.as_bytes().as_ptr();

        let first: Vec<_> = callers[..8].iter().map(encoded).collect();
        let again: Vec<_> = callers[..8].iter().map(encoded).collect();
        encoded(&callers[0]); // The second caller is now the one that was used longest ago.
        encoded(&callers[8]);

        assert!(
            first
                .iter()
                .zip(&again)
                .all(|(one, other)| is_same(one, other))
        );
        assert!(is_same(&encoded(&callers[0]), &first[0]));
        let recent = stamper.recent.lock().unwrap();
        assert_eq!(recent.len(), MAX_CALLERS);
        assert!(!recent.iter().any(|(own, _)| Arc::ptr_eq(own, &callers[1])));
    }
}
