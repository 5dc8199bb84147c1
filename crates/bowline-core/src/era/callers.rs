//! Callers that were read before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_types::Json;

use super::modern::{Envelope, meta};
use super::{Caller, Dialect, Rejection};
use crate::json::Params;

/// Remembers a few callers by what they say about themselves: every modern request says it anew, and a
/// client always says the same.
///
/// # Examples
///
/// ```
/// use bowline_core::era::modern::Envelope;
/// use bowline_core::era::{Caller, Callers, Dialect, Request, stamp};
/// use bowline_types::Json;
///
/// let request = Request::new("tools/list", Json::empty_object(), Caller::new(Dialect::LATEST).into());
/// let raw = stamp(&request).with_id(1);
///
/// let callers = Callers::default();
/// let envelope = Envelope::read(raw.params.as_ref())?;
/// let caller = callers.read(&envelope, Dialect::LATEST)?;
/// assert_eq!(caller, request.caller);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Callers(Mutex<VecDeque<Known>>);

#[derive(Debug)]
struct Known {
    envelope: Envelope,
    caller: Arc<Caller>,
}

/// What a caller says about itself. `None` is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words<'a> {
    pub(super) client: Option<&'a Json>,
    pub(super) capabilities: Option<&'a Json>,
    pub(super) log_level: Option<&'a Json>,
}

impl Callers {
    /// The envelope of a request, if it has one. A `_meta` that says just what one did before is not read again.
    ///
    /// # Errors
    ///
    /// As [`Envelope::find`].
    pub fn envelope(&self, params: Option<&Params>) -> Result<Option<Envelope>, Rejection> {
        let Some(meta) = meta(params)? else {
            return Ok(None);
        };
        let is_same = |known: &Known| *known.envelope.meta() == meta;
        match self.find(is_same, |known| known.envelope.clone()) {
            Some(envelope) => Ok(Some(envelope)),
            None => Envelope::of(meta),
        }
    }

    /// Who is asking, in a dialect that the envelope names.
    ///
    /// # Errors
    ///
    /// As [`Envelope::caller`].
    pub fn read(
        &self,
        envelope: &Envelope,
        dialect: &'static Dialect,
    ) -> Result<Arc<Caller>, Rejection> {
        let words = envelope.words();
        let is_same =
            |known: &Known| known.caller.dialect == dialect && known.envelope.words() == words;
        if let Some(caller) = self.find(is_same, |known| known.caller.clone()) {
            return Ok(caller);
        }
        let caller = Arc::new(envelope.caller(dialect)?);
        if envelope.meta().as_bytes().len() <= MOST_WORDS {
            self.remember(envelope, &caller);
        }
        Ok(caller)
    }

    fn find<T>(&self, is_it: impl Fn(&Known) -> bool, take: impl Fn(&Known) -> T) -> Option<T> {
        self.lock().iter().find(|known| is_it(known)).map(take)
    }

    fn remember(&self, envelope: &Envelope, caller: &Arc<Caller>) {
        // Copied: the request that it was read from may be large.
        let Ok(Some(envelope)) = Envelope::of(envelope.meta().to_unshared()) else {
            return;
        };
        let mut known = self.lock();
        let forgotten = (known.len() == MOST_CALLERS).then(|| known.pop_back());
        known.push_front(Known {
            envelope,
            caller: caller.clone(),
        });
        drop(known);
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Known>> {
        // No code that could panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many callers are remembered: as many as are likely to be different programs.
const MOST_CALLERS: usize = 16;

/// How many bytes the `_meta` of a caller that is remembered may have.
const MOST_WORDS: usize = 4096;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params(name: &str, token: Option<i64>) -> Params {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": Dialect::LATEST.version,
            "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        if let Some(token) = token {
            meta["progressToken"] = token.into();
        }
        Params::from(json!({"_meta": meta}))
    }

    fn envelope(name: &str) -> Envelope {
        Envelope::read(Some(&params(name, None))).unwrap()
    }

    #[test]
    fn an_envelope_is_the_same_whether_it_was_known_or_not() {
        let callers = Callers::default();

        for round in 0..3 {
            for (name, token) in [("a", None), ("a", Some(1)), ("a", Some(2)), ("b", Some(2))] {
                let params = params(name, token);
                let envelope = callers.envelope(Some(&params)).unwrap().unwrap();
                let caller = callers.read(&envelope, Dialect::LATEST).unwrap();

                let said = Envelope::read(Some(&params)).unwrap();
                let marked = envelope.progress_token().unwrap();
                assert_eq!(marked, token.map(Into::into), "{name} {round}");
                assert_eq!(envelope.version(), said.version());
                assert_eq!(*caller, said.caller(Dialect::LATEST).unwrap());
            }
        }
    }

    #[test]
    fn what_is_no_envelope_is_none_however_often_it_comes() {
        let callers = Callers::default();

        for _ in 0..2 {
            for params in [
                json!({}),
                json!({"_meta": null}),
                json!({"_meta": {"own": 1}}),
            ] {
                let found = callers.envelope(Some(&Params::from(params)));
                assert!(found.unwrap().is_none());
            }
            let twice = Json::parse(r#"{"_meta":{},"_meta":{}}"#).unwrap();
            assert!(callers.envelope(Some(&Params::from(twice))).is_err());
        }
    }

    #[test]
    fn who_says_the_same_is_the_same_caller() {
        let callers = Callers::default();

        let first = callers.read(&envelope("a"), Dialect::LATEST).unwrap();
        let other = callers.read(&envelope("b"), Dialect::LATEST).unwrap();
        let again = callers.read(&envelope("a"), Dialect::LATEST).unwrap();

        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(*first, envelope("a").caller(Dialect::LATEST).unwrap());
        assert_ne!(first, other);
    }

    #[test]
    fn only_the_last_few_are_remembered_and_none_that_says_too_much() {
        let callers = Callers::default();

        for number in 0..100 {
            let envelope = envelope(&number.to_string());
            callers.read(&envelope, Dialect::LATEST).unwrap();
        }
        let long = envelope(&"x".repeat(MOST_WORDS));
        callers.read(&long, Dialect::LATEST).unwrap();

        let known = callers.lock();
        assert_eq!(known.len(), MOST_CALLERS);
        let last = known.front().unwrap().caller.implementation.as_ref();
        assert_eq!(last.unwrap().name, "99");
    }
}
