//! Writing requests, one after the other, for the same caller.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_types::Json;

use super::{Caller, Request, Stamped, legacy, modern};

/// Writes requests as their callers' dialects have them, and remembers what the last caller says of itself.
#[derive(Debug, Default)]
pub struct Stamper {
    /// The caller is kept with its envelope: as long as it is shared, nobody can change it.
    last: Mutex<Option<(Arc<Caller>, Json)>>,
}

impl Stamper {
    /// Writes a request as its caller's dialect has it.
    ///
    /// Modern: `_meta` says who is asking. Legacy: it does not, and the inside `server/discover` is the
    /// handshake, `initialize`. The envelope belongs to the caller: its keys in the request's own `_meta`
    /// are replaced or removed. All other members of `_meta` travel as they are.
    ///
    /// Params that are no object are sent as they are, and the peer refuses them.
    #[must_use]
    pub fn stamp(&self, request: &Request) -> Stamped {
        match legacy::Adapter::of(request.caller.dialect) {
            Some(legacy) => legacy.stamp(request),
            None => modern::stamp(request, &self.envelope(&request.caller)),
        }
    }

    fn envelope(&self, caller: &Arc<Caller>) -> Json {
        // No code that could panic leaves anything half done under this lock.
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
    fn each_caller_says_who_it_is_and_what_it_has_become() {
        let stamper = Stamper::default();
        let said = |caller: &Arc<Caller>| {
            let request = Request::new("ping", Json::empty_object(), caller.clone());
            let params = stamper.stamp(&request).params.unwrap();
            params.as_str().to_owned()
        };
        let mut one = Arc::new(Caller::new(Dialect::LATEST));
        let mut other = Caller::new(Dialect::LATEST);
        other.implementation = Some(Implementation::new("other", "1"));
        let other = Arc::new(other);

        let first = [said(&one), said(&one), said(&other), said(&one)];
        Arc::make_mut(&mut one).log_level = Some(LoggingLevel::Alert);
        let then = said(&one);

        assert_eq!((&first[0], &first[0]), (&first[1], &first[3]));
        assert!(!first[0].contains("other") && first[2].contains("other"));
        assert!(!first[0].contains("alert") && then.contains("alert"));
    }
}
