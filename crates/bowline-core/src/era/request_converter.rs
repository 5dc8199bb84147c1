//! [`RequestConverter`]: converts requests that are not encoded, and caches the converted capabilities of the last
//! caller.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Caller, Request, legacy};

/// Removes from requests, and from the capabilities of their caller, what the caller's dialect does not define.
///
/// For requests that are not encoded; [`Stamper`](super::Stamper) does the same for a wire.
#[derive(Debug, Default)]
pub struct RequestConverter {
    /// The last caller, and the same without what its dialect does not define. While the first `Arc` is held,
    /// `Arc::make_mut` copies the caller, so the same pointer means the same capabilities.
    last: Mutex<Option<(Arc<Caller>, Arc<Caller>)>>,
}

impl RequestConverter {
    /// Converts a request.
    #[must_use]
    pub fn convert(&self, mut request: Request) -> Request {
        if let Some(legacy) = legacy::Adapter::of(request.caller.dialect) {
            legacy.convert_params(&mut request);
            request.caller = self.convert_caller(request.caller);
        }
        request
    }

    /// Removes the capabilities that the caller's dialect does not define: a client may declare them nevertheless.
    #[must_use]
    pub fn convert_caller(&self, caller: Arc<Caller>) -> Arc<Caller> {
        let Some(legacy) = legacy::Adapter::of(caller.dialect) else {
            return caller;
        };
        // A panic under this lock leaves the previous value in place, so a poisoned value is consistent.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((own, converted)) if Arc::ptr_eq(own, &caller) => converted.clone(),
            _ => {
                let converted = legacy.convert_caller(&caller);
                *last = Some((caller, converted.clone()));
                converted
            }
        }
    }
}

#[cfg(all(test, feature = "legacy"))]
mod tests {
    use bowline_types::{ClientCapabilities, Json, LoggingLevel};

    use super::*;
    use crate::era::Dialect;

    #[test]
    fn a_caller_is_converted_once_until_it_changes() {
        let converter = RequestConverter::default();
        let converted = |caller: &Arc<Caller>| {
            let request = Request::new("ping", Json::empty_object(), caller.clone());
            converter.convert(request).caller
        };
        let old = Dialect::of("2025-03-26").unwrap();
        let mut caller = Caller::new(old);
        caller.capabilities.elicitation = Some(Default::default());
        let mut caller = Arc::new(caller);

        let [first, second] = [converted(&caller), converted(&caller)];
        Arc::make_mut(&mut caller).log_level = Some(LoggingLevel::Alert);
        let changed = converted(&caller);

        assert!(Arc::ptr_eq(&first, &second), "converted once");
        assert_eq!(first.capabilities, ClientCapabilities::default());
        assert_eq!(changed.capabilities, first.capabilities);
        assert_eq!(changed.log_level, Some(LoggingLevel::Alert));
    }

    #[test]
    fn a_caller_of_which_everything_is_defined_stays_the_same() {
        let caller = Arc::new(Caller::new(Dialect::of("2025-03-26").unwrap()));
        let request = Request::new("ping", Json::empty_object(), caller.clone());

        let converted = RequestConverter::default().convert(request);

        assert!(Arc::ptr_eq(&converted.caller, &caller));
    }
}
