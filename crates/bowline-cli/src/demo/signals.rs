//! The cancellations among the events that a server has recorded.

use std::collections::BTreeMap;

use bowline::testing::{Direction, RecordedEvent, RecordedFrame};
use serde::Serialize;

/// One kind of cancellation that the server received.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReceivedSignal {
    pub(crate) what: String,
    pub(crate) times: u64,
    pub(crate) example: String,
}

impl ReceivedSignal {
    /// Counts the signals of each kind, with the last one as an example.
    pub(crate) fn count(events: &[RecordedEvent], is_http: bool) -> Vec<Self> {
        let mut signals = BTreeMap::new();
        for example in events.iter().filter_map(describe) {
            let example = match is_http && example.starts_with("notifications/") {
                true => format!("POST {example}"),
                false => example,
            };
            // Without the params, which differ in each event.
            let what = example.split(" {").next().unwrap_or_default().to_owned();
            let signal = signals.entry(what.clone()).or_insert(Self {
                what,
                times: 0,
                example: String::new(),
            });
            signal.times += 1;
            signal.example = example;
        }
        signals.into_values().collect()
    }
}

/// Describes a received notification, or a close; returns `None` for requests and responses.
pub(crate) fn describe(event: &RecordedEvent) -> Option<String> {
    match event {
        RecordedEvent::Frame(frame) => notification(frame),
        RecordedEvent::Closed(_) => Some("connection closed".to_owned()),
        RecordedEvent::Reset(_) => Some("stream reset".to_owned()),
        _ => None,
    }
}

fn notification(frame: &RecordedFrame) -> Option<String> {
    let message = frame.json();
    if frame.direction == Direction::Sent || message.get("id").is_some() {
        return None;
    }
    let method = message["method"].as_str()?;
    Some(match message.get("params") {
        Some(params) => format!("{method} {params}"),
        None => method.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_responses_and_sent_notifications_are_left_out() {
        let frame = |direction: &str, message: serde_json::Value| {
            let event = json!({"Frame": {"direction": direction, "text": message.to_string()}});
            serde_json::from_value(event).unwrap()
        };
        let cancel = json!({"method": "notifications/cancelled", "params": {"requestId": 1}});
        let events = [
            frame(
                "Received",
                json!({"id": 1, "method": "tools/call", "params": {}}),
            ),
            frame("Received", cancel),
            frame("Sent", json!({"method": "notifications/progress"})),
            frame("Sent", json!({"id": 1, "result": {}})),
        ];

        let signals = ReceivedSignal::count(&events, true);

        let expected = ReceivedSignal {
            what: "POST notifications/cancelled".to_owned(),
            times: 1,
            example: r#"POST notifications/cancelled {"requestId":1}"#.to_owned(),
        };
        assert_eq!(signals, [expected]);
    }
}
