//! [`Stamper`]: converts outgoing requests to their wire form, and caches the encoded envelope of the last caller.
//!
//! The envelope is the members of `_meta` for version, client info, capabilities and log level.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_types::Json;

use super::{Caller, Request, Stamped, legacy, modern};

/// Converts requests to the wire form of their caller's dialect, and caches the encoded envelope of the last caller.
#[derive(Debug, Default)]
pub struct Stamper {
    /// The last caller and its encoded envelope. While this `Arc` is held, `Arc::make_mut` copies the caller, so the
    /// same pointer means the same envelope.
    last: Mutex<Option<(Arc<Caller>, Json)>>,
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
        // A panic under this lock leaves the previous value in place, so a poisoned value is consistent.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((own, envelope)) if Arc::ptr_eq(own, caller) => envelope.clone(),
            _ => {
                let envelope = modern::envelope(caller);
                *last = Some((caller.clone(), envelope.clone()));
                envelope
            }
        }
    }
}

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
}
