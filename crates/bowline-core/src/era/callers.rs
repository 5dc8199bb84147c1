//! Callers that were read before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_types::Json;

use super::modern::Envelope;
use super::{Caller, Dialect, Rejection};

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
    words: Words<Json>,
    caller: Arc<Caller>,
}

/// What a caller says about itself. `None` is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words<T> {
    pub(super) client: Option<T>,
    pub(super) capabilities: Option<T>,
    pub(super) log_level: Option<T>,
}

impl Callers {
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
        if let Some(caller) = self.find(words, dialect) {
            return Ok(caller);
        }
        let caller = Arc::new(envelope.caller(dialect)?);
        if words.len() <= MOST_WORDS {
            self.remember(words, &caller);
        }
        Ok(caller)
    }

    fn find(&self, words: Words<&Json>, dialect: &'static Dialect) -> Option<Arc<Caller>> {
        let known = self.lock();
        let known = known
            .iter()
            .find(|known| known.words.as_ref() == words && known.caller.dialect == dialect);
        known.map(|known| known.caller.clone())
    }

    fn remember(&self, words: Words<&Json>, caller: &Arc<Caller>) {
        // Copied: the request that it was read from may be large.
        let words = words.map(Json::to_unshared);
        let mut known = self.lock();
        let forgotten = (known.len() == MOST_CALLERS).then(|| known.pop_back());
        known.push_front(Known {
            words,
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

impl<T> Words<T> {
    fn as_ref(&self) -> Words<&T> {
        Words {
            client: self.client.as_ref(),
            capabilities: self.capabilities.as_ref(),
            log_level: self.log_level.as_ref(),
        }
    }

    fn map<U>(self, change: impl Fn(T) -> U) -> Words<U> {
        Words {
            client: self.client.map(&change),
            capabilities: self.capabilities.map(&change),
            log_level: self.log_level.map(&change),
        }
    }
}

impl Words<&Json> {
    fn len(self) -> usize {
        [self.client, self.capabilities, self.log_level]
            .into_iter()
            .flatten()
            .map(|json| json.as_bytes().len())
            .sum()
    }
}

/// How many callers are remembered: as many as are likely to be different programs.
const MOST_CALLERS: usize = 16;

/// How many bytes a caller may say about itself and be remembered.
const MOST_WORDS: usize = 4096;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::Params;

    fn envelope(name: &str) -> Envelope {
        let params = Params::from(json!({"_meta": {
            "io.modelcontextprotocol/protocolVersion": Dialect::LATEST.version,
            "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }}));
        Envelope::read(Some(&params)).unwrap()
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
