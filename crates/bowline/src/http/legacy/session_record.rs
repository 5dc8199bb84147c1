//! [`SessionRecord`]: what changes in a session after its handshake, and must outlive its live state.
//!
//! A session whose live state is freed leaves its record in [`RetiredSessions`], and gets it back when the next message
//! revives it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bowline_core::{Message, RawRequest};
use bowline_types::{
    Json, LoggingLevel, Method as _, SetLevelRequest, SetLevelRequestParams, SubscribeRequest,
    SubscribeRequestParams, UnsubscribeRequest,
};
use serde::{Deserialize, Serialize};

use crate::peer::{MAX_SUBSCRIBED_BYTES, subscribed_bytes};
use crate::random;

/// What a client has set in its session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<LoggingLevel>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    subscriptions: BTreeSet<String>,
    /// Whether the session has ended: a client deleted it, or it cannot be restored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_ended: bool,
}

/// A change of a record by a request of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordChange {
    LogLevel(LoggingLevel),
    Subscribe(String),
    Unsubscribe(String),
}

impl RecordChange {
    /// Returns the change that a request makes if it is accepted. One with a longer URI than a record may have is not.
    pub(super) fn of(raw: &RawRequest) -> Option<Self> {
        let params = || {
            let params = raw.params.as_ref();
            params.filter(|params| params.as_bytes().len() <= MAX_PARAMS)
        };
        match &*raw.method {
            SetLevelRequest::NAME => {
                let params: SetLevelRequestParams = params()?.decode().ok()?;
                Some(Self::LogLevel(params.level))
            }
            SubscribeRequest::NAME => {
                let params: ResourceParams = params()?.decode().ok()?;
                Some(Self::Subscribe(params.uri))
            }
            UnsubscribeRequest::NAME => {
                let params: ResourceParams = params()?.decode().ok()?;
                Some(Self::Unsubscribe(params.uri))
            }
            _ => None,
        }
    }
}

impl SessionRecord {
    /// Returns the record of a session that has ended.
    pub(super) fn ended() -> Self {
        Self {
            is_ended: true,
            ..Self::default()
        }
    }

    /// Applies a change, and returns whether the record differs. A subscription beyond the limit has no effect; the
    /// engine refuses it.
    pub(super) fn apply(&mut self, change: RecordChange) -> bool {
        match change {
            RecordChange::LogLevel(level) => self.log_level.replace(level) != Some(level),
            RecordChange::Subscribe(uri) => {
                let bytes = self.uri_bytes() + subscribed_bytes(&uri);
                bytes <= MAX_SUBSCRIBED_BYTES && self.subscriptions.insert(uri)
            }
            RecordChange::Unsubscribe(uri) => self.subscriptions.remove(&uri),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn subscriptions(&self) -> impl Iterator<Item = &String> {
        self.subscriptions.iter()
    }

    fn bytes(&self) -> usize {
        PER_RECORD + self.uri_bytes()
    }

    fn uri_bytes(&self) -> usize {
        let uris = self.subscriptions.iter();
        uris.map(|uri| subscribed_bytes(uri)).sum()
    }

    /// Returns requests that change a live state with this record to another. Their answers go nowhere.
    pub(super) fn requests_to(&self, other: &Self) -> Vec<Message> {
        let level = other
            .log_level
            .filter(|_| self.log_level != other.log_level);
        let level = level.and_then(|level| Json::encode(&SetLevelRequestParams::new(level)).ok());
        let level = level.map(|params| internal_request(SetLevelRequest::NAME, params));
        let params = |uri: &String| Json::encode(&SubscribeRequestParams::new(uri.clone())).ok();
        let added = other.subscriptions.difference(&self.subscriptions);
        let added = added.filter_map(params);
        let added = added.map(|params| internal_request(SubscribeRequest::NAME, params));
        let removed = self.subscriptions.difference(&other.subscriptions);
        let removed = removed.filter_map(params);
        let removed = removed.map(|params| internal_request(UnsubscribeRequest::NAME, params));
        level.into_iter().chain(added).chain(removed).collect()
    }
}

/// Returns the URI if this is a request to subscribe.
pub(super) fn subscribed_uri(raw: &RawRequest) -> Option<String> {
    match RecordChange::of(raw) {
        Some(RecordChange::Subscribe(uri)) => Some(uri),
        _ => None,
    }
}

/// Creates a request on behalf of the client. Its id is one that no client uses, so that its answer has no stream.
fn internal_request(method: &'static str, params: Json) -> Message {
    // Without randomness two such requests may have the same id, and the second is refused.
    let id = u128::from_be_bytes(random::bytes().unwrap_or_default());
    let request = RawRequest {
        id: format!("bowline/{id:032x}").into(),
        method: method.into(),
        params: Some(params.into()),
    };
    request.into()
}

/// The params of `resources/subscribe` and `resources/unsubscribe`.
#[derive(Deserialize)]
struct ResourceParams {
    uri: String,
}

/// The records of sessions without live state, the oldest dropped first. A session that leaves none has nothing to
/// restore.
#[derive(Default)]
pub(super) struct RetiredSessions {
    records: BTreeMap<Arc<str>, SessionRecord>,
    /// The keys, oldest first; may contain keys that were taken since.
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

impl RetiredSessions {
    /// Keeps the record of a session, under the key of its id.
    pub(super) fn keep(&mut self, key: &str, mut record: SessionRecord) {
        // Another replica may have other limits.
        if record.uri_bytes() > MAX_SUBSCRIBED_BYTES {
            tracing::warn!("a session has too many subscriptions to be restored; ended it");
            record = SessionRecord::ended();
        }
        self.take(key);
        if record.is_empty() {
            return;
        }
        let key: Arc<str> = key.into();
        self.bytes += record.bytes();
        self.order.push_back(key.clone());
        self.records.insert(key, record);
        while (self.bytes > MAX_BYTES || self.order.len() > MAX_RECORDS)
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(&oldest);
        }
    }

    /// Takes the record of a session that is revived. That of an ended one stays.
    pub(super) fn take(&mut self, key: &str) -> Option<SessionRecord> {
        let record = self.records.get(key)?;
        if record.is_ended {
            return Some(record.clone());
        }
        self.order.retain(|own| **own != *key);
        self.remove(key)
    }

    fn remove(&mut self, key: &str) -> Option<SessionRecord> {
        let record = self.records.remove(key)?;
        self.bytes -= record.bytes();
        Some(record)
    }
}

/// Estimated bytes of a record without its URIs.
const PER_RECORD: usize = 160;
/// The length of params that are decoded to find a URI: JSON may write a character in six bytes.
const MAX_PARAMS: usize = 6 * MAX_SUBSCRIBED_BYTES;
const MAX_BYTES: usize = 16 * 1024 * 1024;
const MAX_RECORDS: usize = 20_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(method: &'static str, params: serde_json::Value) -> Option<RecordChange> {
        RecordChange::of(&RawRequest {
            id: 1.into(),
            method: method.into(),
            params: Some(Json::from(params).into()),
        })
    }

    fn subscribed(uris: &[&str]) -> SessionRecord {
        let mut record = SessionRecord::default();
        for uri in uris {
            assert!(record.apply(RecordChange::Subscribe((*uri).to_owned())));
        }
        record
    }

    #[test]
    fn requests_that_change_a_session_change_its_record() {
        let mut record = SessionRecord::default();
        for (method, params) in [
            ("logging/setLevel", json!({"level": "error"})),
            ("resources/subscribe", json!({"uri": "a:1", "_meta": {}})),
            ("resources/subscribe", json!({"uri": "a:2"})),
            ("resources/unsubscribe", json!({"uri": "a:1"})),
        ] {
            assert!(record.apply(change(method, params).unwrap()), "{method}");
        }

        assert_eq!(record.log_level, Some(LoggingLevel::Error));
        assert_eq!(record.subscriptions().collect::<Vec<_>>(), ["a:2"]);
        assert_eq!(SessionRecord::default().requests_to(&record).len(), 2);
        assert_eq!(record.requests_to(&SessionRecord::default()).len(), 1);
        assert_eq!(record.requests_to(&record), []);
        assert_eq!(change("tools/call", json!({})), None);
        assert_eq!(change("resources/subscribe", json!({"uri": 7})), None);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(
            serde_json::from_str::<SessionRecord>(&text).unwrap(),
            record
        );
    }

    #[test]
    fn a_retired_record_is_taken_once_unless_the_session_has_ended() {
        let mut retired = RetiredSessions::default();
        retired.keep("a", subscribed(&["a:1"]));
        retired.keep("b", SessionRecord::ended());
        retired.keep("c", SessionRecord::default());

        assert_eq!(retired.take("a"), Some(subscribed(&["a:1"])));
        assert_eq!(retired.take("a"), None);
        assert_eq!(retired.take("c"), None);
        for _ in 0..2 {
            assert!(retired.take("b").unwrap().is_ended);
        }
    }

    #[test]
    fn the_oldest_records_are_dropped_and_a_huge_one_ends_its_session() {
        let mut retired = RetiredSessions::default();
        let long = "x".repeat(MAX_SUBSCRIBED_BYTES / 2);
        for number in 0..200 {
            retired.keep(&number.to_string(), subscribed(&[&long]));
        }
        let uris = [long.clone(), format!("{long}z")];
        let huge = SessionRecord {
            subscriptions: uris.into(),
            ..SessionRecord::default()
        };
        retired.keep("huge", huge);

        assert!(retired.bytes <= MAX_BYTES);
        assert_eq!(retired.take("0"), None);
        assert_eq!(retired.take("199"), Some(subscribed(&[&long])));
        assert!(retired.take("huge").unwrap().is_ended);
        for number in 0..200 {
            retired.take(&number.to_string());
        }
        assert_eq!(retired.records.len(), 1);
        assert_eq!(retired.bytes, SessionRecord::ended().bytes());
        assert_eq!(retired.order.len(), 1);
    }
}
