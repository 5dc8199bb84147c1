//! [`CallerCache`]: a cache of decoded callers, used by servers when they admit modern requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_types::Json;

use super::modern::{Envelope, meta};
use super::{Caller, Dialect, Dialects, Rejection};
use crate::Notification;
use crate::json::Params;

/// A cache of callers, keyed by the envelope that they were decoded from.
///
/// Every modern request repeats the client's `clientInfo` and capabilities, which rarely change between requests.
///
/// # Examples
///
/// ```
/// use bowline_core::era::modern::Envelope;
/// use bowline_core::era::{Caller, CallerCache, Dialect, Request, stamp};
/// use bowline_types::Json;
///
/// let request = Request::new("tools/list", Json::empty_object(), Caller::new(Dialect::LATEST).into());
/// let raw = stamp(&request).with_id(1);
///
/// let cache = CallerCache::default();
/// let envelope = Envelope::read(raw.params.as_ref())?;
/// let caller = cache.caller(&envelope, Dialect::LATEST)?;
/// assert_eq!(caller, request.caller);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct CallerCache(Mutex<VecDeque<CachedCaller>>);

#[derive(Debug)]
struct CachedCaller {
    envelope: Envelope,
    caller: Arc<Caller>,
}

/// The envelope members that a [`Caller`] is decoded from. `None` is an absent member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallerMembers<'a> {
    pub(super) client: Option<&'a Json>,
    pub(super) capabilities: Option<&'a Json>,
    pub(super) log_level: Option<&'a Json>,
}

impl CallerCache {
    /// Returns the envelope of a request, if it has one. A `_meta` equal to a cached one is not decoded again.
    ///
    /// # Errors
    ///
    /// As [`Envelope::find`].
    pub fn envelope(&self, params: Option<&Params>) -> Result<Option<Envelope>, Rejection> {
        let Some(meta) = meta(params)? else {
            return Ok(None);
        };
        let is_same = |cached: &CachedCaller| *cached.envelope.meta() == meta;
        match self.find(is_same, |cached| cached.envelope.clone()) {
            Some(envelope) => Ok(Some(envelope)),
            None => Envelope::of(meta),
        }
    }

    /// Returns the caller that the envelope describes, from the cache if possible.
    ///
    /// # Errors
    ///
    /// As [`Envelope::caller`].
    pub fn caller(
        &self,
        envelope: &Envelope,
        dialect: &'static Dialect,
    ) -> Result<Arc<Caller>, Rejection> {
        let members = envelope.caller_members();
        let is_same = |cached: &CachedCaller| {
            cached.caller.dialect == dialect && cached.envelope.caller_members() == members
        };
        if let Some(caller) = self.find(is_same, |cached| cached.caller.clone()) {
            return Ok(caller);
        }
        let caller = Arc::new(envelope.caller(dialect)?);
        if envelope.meta().as_bytes().len() <= MAX_META_LEN {
            self.insert(envelope, &caller);
        }
        Ok(caller)
    }

    /// Returns the caller of a modern notification for the responder: as its `_meta` describes it, or one of which
    /// nothing is known. `None` if the transport handles the notification itself, no modern version has it, or the
    /// version of its sender is not served.
    #[must_use]
    pub fn notifier(&self, notification: &Notification, served: &Dialects) -> Option<Arc<Caller>> {
        if NOT_DISPATCHED.contains(&&*notification.method) {
            return None;
        }
        let params = notification.params.clone().map(Params::from);
        match self.envelope(params.as_ref()).ok()? {
            Some(envelope) => self.caller(&envelope, envelope.dialect(served).ok()?).ok(),
            None => served
                .latest_modern()
                .map(|dialect| Caller::new(dialect).into()),
        }
    }

    fn find<T>(
        &self,
        matches: impl Fn(&CachedCaller) -> bool,
        take: impl Fn(&CachedCaller) -> T,
    ) -> Option<T> {
        self.lock().iter().find(|cached| matches(cached)).map(take)
    }

    fn insert(&self, envelope: &Envelope, caller: &Arc<Caller>) {
        // Copied, because a slice would keep the whole request in memory.
        let Ok(Some(envelope)) = Envelope::of(envelope.meta().to_unshared()) else {
            return;
        };
        let mut entries = self.lock();
        let evicted = (entries.len() == MAX_CALLERS).then(|| entries.pop_back());
        entries.push_front(CachedCaller {
            envelope,
            caller: caller.clone(),
        });
        // The evicted caller is dropped after the lock is released.
        drop(entries);
        drop(evicted);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CachedCaller>> {
        // No code that could panic runs under this lock, so a poisoned value is consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The capacity of the cache: the number of client programs that are likely to be active.
const MAX_CALLERS: usize = 16;

/// The maximum length of a cached `_meta` in bytes.
const MAX_META_LEN: usize = 4096;

/// Notifications of clients that transports handle themselves or that modern versions do not have.
const NOT_DISPATCHED: [&str; 4] = [
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/progress",
    "notifications/roots/list_changed",
];

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
    fn a_cached_envelope_equals_a_decoded_one() {
        let cache = CallerCache::default();

        for round in 0..3 {
            for (name, token) in [("a", None), ("a", Some(1)), ("a", Some(2)), ("b", Some(2))] {
                let params = params(name, token);
                let envelope = cache.envelope(Some(&params)).unwrap().unwrap();
                let caller = cache.caller(&envelope, Dialect::LATEST).unwrap();

                let decoded = Envelope::read(Some(&params)).unwrap();
                let progress_token = envelope.progress_token().unwrap();
                assert_eq!(progress_token, token.map(Into::into), "{name} {round}");
                assert_eq!(envelope.version(), decoded.version());
                assert_eq!(*caller, decoded.caller(Dialect::LATEST).unwrap());
            }
        }
    }

    #[test]
    fn a_request_without_an_envelope_is_not_cached() {
        let cache = CallerCache::default();

        for _ in 0..2 {
            for params in [
                json!({}),
                json!({"_meta": null}),
                json!({"_meta": {"own": 1}}),
            ] {
                let found = cache.envelope(Some(&Params::from(params)));
                assert!(found.unwrap().is_none());
            }
            let twice = Json::parse(r#"{"_meta":{},"_meta":{}}"#).unwrap();
            assert!(cache.envelope(Some(&Params::from(twice))).is_err());
        }
    }

    #[test]
    fn equal_envelopes_share_one_caller() {
        let cache = CallerCache::default();

        let first = cache.caller(&envelope("a"), Dialect::LATEST).unwrap();
        let other = cache.caller(&envelope("b"), Dialect::LATEST).unwrap();
        let again = cache.caller(&envelope("a"), Dialect::LATEST).unwrap();

        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(*first, envelope("a").caller(Dialect::LATEST).unwrap());
        assert_ne!(first, other);
    }

    #[test]
    fn the_cache_is_bounded_in_entries_and_bytes() {
        let cache = CallerCache::default();

        for number in 0..100 {
            let envelope = envelope(&number.to_string());
            cache.caller(&envelope, Dialect::LATEST).unwrap();
        }
        let long = envelope(&"x".repeat(MAX_META_LEN));
        cache.caller(&long, Dialect::LATEST).unwrap();

        let entries = cache.lock();
        assert_eq!(entries.len(), MAX_CALLERS);
        let last = entries.front().unwrap().caller.implementation.as_ref();
        assert_eq!(last.unwrap().name, "99");
    }
}
