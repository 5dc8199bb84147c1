//! [`CheckContext`]: what the laws look at.

use bowline_core::era::is_modern_version;
use bowline_core::{Message, Notification, decode_batch, is_batch};
use bowline_types::{Json, ProtocolVersion};

use crate::timeline::{member, text_member};
use crate::{
    EntryKind, Event, EventKind, Exchange, HttpExchange, Recording, Side, Timeline, Transport,
};

/// A recording with its timeline.
pub(crate) struct CheckContext<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) timeline: Timeline,
    pub(crate) notifications: Vec<SeenNotification>,
    /// Whether events are missing: then nothing follows from what is not there.
    pub(crate) has_gaps: bool,
}

/// A notification.
pub(crate) struct SeenNotification {
    pub(crate) line: usize,
    pub(crate) from: Side,
    pub(crate) http_exchange: Option<u64>,
    pub(crate) exchange: Option<usize>,
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) kind: EntryKind,
    pub(crate) method: String,
    pub(crate) params: Option<Json>,
}

impl<'a> CheckContext<'a> {
    pub(crate) fn new(recording: &'a Recording) -> Self {
        let timeline = Timeline::of(recording);
        let notifications = notifications(recording, &timeline);
        let is_lost = |event: &Event| matches!(event.kind, EventKind::Lost { .. });
        let has_gaps = !recording.problems.is_empty() || recording.events.iter().any(is_lost);
        Self {
            recording,
            timeline,
            notifications,
            has_gaps,
        }
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self
            .recording
            .problems
            .iter()
            .map(ToString::to_string)
            .collect();
        if self.has_gaps {
            let note = "events are missing; laws about absent messages were not checked";
            notes.push(note.to_owned());
        }
        notes
    }

    pub(crate) fn is_http(&self) -> bool {
        self.recording.header.transport == Transport::Http
    }

    pub(crate) fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.timeline.exchanges()
    }

    /// Returns the requests of clients in the modern era.
    pub(crate) fn modern(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges().filter(|it| it.is_modern())
    }

    /// Returns the results of requests, with their requests.
    pub(crate) fn results(&self) -> impl Iterator<Item = ResultOf<'_>> {
        self.exchanges().filter_map(|exchange| {
            let answer = exchange.answer.as_ref()?;
            let result = answer.outcome.as_ref().ok()?;
            Some(ResultOf {
                exchange,
                line: answer.line,
                result,
            })
        })
    }

    pub(crate) fn http_of(&self, exchange: &Exchange) -> Option<&HttpExchange> {
        self.timeline.http_exchange(exchange.http_exchange?)
    }
}

/// A result with its request.
pub(crate) struct ResultOf<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) line: usize,
    pub(crate) result: &'a Json,
}

impl ResultOf<'_> {
    pub(crate) fn member(&self, name: &str) -> Option<Json> {
        member(self.result, &[name])
    }

    /// Returns whether it is not a request for input, nor of a type that an extension defines.
    pub(crate) fn is_complete(&self) -> bool {
        let result_type = text_member(self.result, &["resultType"]);
        result_type.is_none_or(|it| it == "complete")
    }
}

impl SeenNotification {
    pub(crate) fn is_modern(&self) -> bool {
        is_modern(self.version.as_ref())
    }

    pub(crate) fn member(&self, path: &[&str]) -> Option<Json> {
        member(self.params.as_ref()?, path)
    }
}

pub(crate) fn is_modern(version: Option<&ProtocolVersion>) -> bool {
    version.is_some_and(|version| is_modern_version(version.as_str()))
}

/// Returns whether JSON is an object.
pub(crate) fn is_object(json: Option<&Json>) -> bool {
    json.is_some_and(Json::is_object)
}

/// Decodes the notifications again, with their entries.
fn notifications(recording: &Recording, timeline: &Timeline) -> Vec<SeenNotification> {
    let mut seen = Vec::new();
    let mut entries = timeline.entries().iter().peekable();
    for (at, event) in recording.events.iter().enumerate() {
        let EventKind::Message { from, message } = &event.kind else {
            while entries.next_if(|entry| entry.event == at).is_some() {}
            continue;
        };
        let frame = message.clone().into_bytes();
        let messages = match is_batch(&frame) {
            false => vec![Message::decode(&frame)],
            true => decode_batch(&frame, usize::MAX).unwrap_or_default(),
        };
        let mut messages = messages.into_iter();
        while let Some(entry) = entries.next_if(|entry| entry.event == at) {
            let Some(Ok(Message::Notification(Notification { method, params }))) = messages.next()
            else {
                continue;
            };
            seen.push(SeenNotification {
                line: event.line,
                from: *from,
                http_exchange: event.exchange,
                exchange: entry.exchange,
                version: entry.version.clone(),
                kind: entry.kind.clone(),
                method: method.into_owned(),
                params,
            });
        }
    }
    seen
}
