//! [`Stamper`]: converts outgoing requests to their wire form, and caches the encoded envelopes of the last callers.
//!
//! The envelope is the members of `_meta` for version, client info, capabilities and log level.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_types::Json;

use super::{Caller, Request, Stamped, legacy, modern};
use crate::json::Params;

/// Converts requests to the wire form of their caller's dialect, and caches the encoded envelopes of the last callers.
///
/// There are several if requests of several clients are forwarded over one connection.
#[derive(Debug, Default)]
pub struct Stamper {
    /// The callers that were used last, the last one first.
    recent: Mutex<Vec<RecentCaller>>,
}

#[derive(Clone, Debug)]
struct RecentCaller {
    /// While this is held, `Arc::make_mut` copies the caller, so the same pointer means the same envelope.
    caller: Arc<Caller>,
    envelope: Json,
    /// The last `_meta` that a request had already, and the same with the envelope. Requests that are forwarded have
    /// one, which its client repeats in most of them.
    merged: Option<MergedMeta>,
}

#[derive(Clone, Debug)]
struct MergedMeta {
    of_request: Json,
    with_envelope: Json,
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
            None => self.stamp_modern(request),
        }
    }

    fn stamp_modern(&self, request: &Request) -> Stamped {
        let RecentCaller {
            envelope, merged, ..
        } = self.recent(&request.caller);
        // A progress token is different in each request, so that its `_meta` does not come again.
        let meta = match request.progress_token {
            None => request.params.member("_meta").ok().flatten(),
            Some(_) => None,
        };
        let Some(meta) = meta else {
            return modern::stamp(request, &envelope);
        };
        match merged.filter(|merged| merged.of_request == meta) {
            Some(merged) => Stamped {
                method: request.method.clone(),
                params: Some(with_meta(&request.params, &meta, &merged.with_envelope)),
            },
            None => {
                let stamped = modern::stamp(request, &envelope);
                self.remember_merged(&request.caller, &meta, stamped.params.as_ref());
                stamped
            }
        }
    }

    /// Returns what is known about a caller, which becomes the last one.
    fn recent(&self, caller: &Arc<Caller>) -> RecentCaller {
        // A panic under this lock leaves whole entries, so a poisoned value is consistent.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let place = recent
            .iter()
            .position(|known| Arc::ptr_eq(&known.caller, caller));
        if let Some(place) = place {
            recent[..=place].rotate_right(1);
            return recent[0].clone();
        }
        let new = RecentCaller {
            caller: caller.clone(),
            envelope: modern::envelope(caller),
            merged: None,
        };
        // A client whose requests are forwarded may have another large caller in each of them.
        if new.envelope.as_bytes().len() > MAX_META_LEN {
            return new;
        }
        recent.truncate(MAX_CALLERS - 1);
        recent.insert(0, new.clone());
        new
    }

    fn remember_merged(&self, caller: &Arc<Caller>, meta: &Json, stamped: Option<&Json>) {
        let stamped = stamped.map(|params| Params::from(params.clone()));
        let merged = stamped.and_then(|params| params.member("_meta").ok().flatten());
        let Some(merged) = merged.filter(|_| meta.as_bytes().len() <= MAX_META_LEN) else {
            return;
        };
        // Copied, because a slice would keep the whole request in memory.
        let merged = MergedMeta {
            of_request: meta.to_unshared(),
            with_envelope: merged.to_unshared(),
        };
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = recent.iter_mut();
        if let Some(known) = known.find(|known| Arc::ptr_eq(&known.caller, caller)) {
            known.merged = Some(merged);
        }
    }
}

/// Returns params with another `_meta` in the place of `old`, which is a part of their text.
fn with_meta(params: &Params, old: &Json, new: &Json) -> Json {
    if old == new {
        return Json::clone(params);
    }
    let text = params.as_bytes();
    let start = old.as_bytes().as_ptr().addr() - text.as_ptr().addr();
    let rest = &text[start + old.as_bytes().len()..];
    Json::from_valid([&text[..start], new.as_bytes(), rest].concat().into())
}

/// The number of callers whose envelopes are cached.
const MAX_CALLERS: usize = 8;

/// The maximum length of an envelope and of a `_meta` of a request that are remembered, in bytes.
const MAX_META_LEN: usize = 4096;

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
        let envelopes = [(); 2].map(|()| stamper.recent(&one).envelope.as_bytes().as_ptr());
        assert_eq!(envelopes[0], envelopes[1], "encoded once");
        assert!(!first[0].contains("other") && first[2].contains("other"));
        assert!(!first[0].contains("alert") && then.contains("alert"));
    }

    #[test]
    fn a_large_caller_is_not_kept_in_memory() {
        let stamper = Stamper::default();
        let mut large = Caller::new(Dialect::LATEST);
        let name = "x".repeat(MAX_META_LEN);
        large.implementation = Some(Implementation::new(name.clone(), "1"));
        let request = Request::new("ping", Json::empty_object(), large.into());

        let params = stamper.stamp(&request).params.unwrap();

        assert!(params.as_str().contains(&name));
        assert_eq!(Arc::strong_count(&request.caller), 1);
    }

    #[test]
    fn the_envelopes_of_the_last_eight_callers_are_encoded_once() {
        let stamper = Stamper::default();
        let callers = [(); 9].map(|()| Arc::new(Caller::new(Dialect::LATEST)));
        // Held, so that the memory of one is not reused for another.
        let encoded = |caller: &Arc<Caller>| stamper.recent(caller).envelope;
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
        let is_second = |known: &RecentCaller| Arc::ptr_eq(&known.caller, &callers[1]);
        assert!(!recent.iter().any(is_second));
    }

    #[test]
    fn a_meta_that_comes_again_is_merged_as_the_first_time() {
        let caller = Arc::new(Caller::new(Dialect::LATEST));
        let params = [
            r#"{"name":"a","_meta":{"x":1},"arguments":{}}"#,
            r#"{ "_meta" : {"x":1}, "name":"b" }"#,
            r#"{"_meta":{"x":2},"name":"c"}"#,
            r#"{"_meta":{"x":2},"name":"d","_meta":{"x":3}}"#,
            r#"{"name":"e","_meta":{"io.modelcontextprotocol/clientInfo":{"name":"other","version":"1"}}}"#,
            r#"{"name":"f"}"#,
        ];
        let stamp = |stamper: &Stamper, params: &'static str, token: Option<i64>| {
            let params = Json::parse(params).unwrap();
            let mut request = Request::new("tools/call", params, caller.clone());
            request.progress_token = token.map(Into::into);
            let stamped = stamper.stamp(&request).params.unwrap();
            let value: serde_json::Value = stamped.decode().unwrap();
            value
        };
        let shared = Stamper::default();

        for params in params.into_iter().cycle().take(4 * params.len()) {
            for token in [None, Some(7), None] {
                let expected = stamp(&Stamper::default(), params, token);
                assert_eq!(stamp(&shared, params, token), expected, "{params}");
            }
        }
    }

    #[test]
    fn params_with_the_meta_that_they_need_are_sent_as_they_are() {
        let stamper = Stamper::default();
        let caller = Arc::new(Caller::new(Dialect::LATEST));
        let first = Request::new("tools/call", Json::empty_object(), caller.clone());
        let complete = stamper.stamp(&first).params.unwrap();

        let forwarded = Request::new("tools/call", complete.clone(), caller);
        let again = [(); 2].map(|()| stamper.stamp(&forwarded).params.unwrap());

        assert_eq!(again[1], complete);
        assert_eq!(
            again[1].as_bytes().as_ptr(),
            complete.as_bytes().as_ptr(),
            "not copied"
        );
    }
}
