//! Records what a server receives when calls are cancelled, at the socket or wire.

mod http2_parser;

mod observed_io;
pub(crate) use observed_io::ObservedIo;

mod observed_wire;
pub(crate) use observed_wire::ObservedWire;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// The recorded events, in order. Clones share the list.
///
/// Frames are recorded as bytes and parsed only in [`EventRecorder::take`], because parsing would add to the measured
/// latency.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventRecorder(Arc<Mutex<Vec<RecordedEvent>>>);

#[derive(Clone, Debug)]
pub(crate) enum RecordedEvent {
    Frame(Vec<u8>),
    Post(Vec<u8>),
    /// The client closed the connection.
    Closed,
    /// The client reset an HTTP/2 stream.
    Reset,
    /// Reported by another process.
    Reported(String),
}

impl EventRecorder {
    pub(crate) fn push(&self, event: RecordedEvent) {
        self.lock().push(event);
    }

    /// Removes and returns the events, without requests and responses: only cancellations remain.
    pub(crate) fn take(&self) -> Vec<String> {
        let events = std::mem::take(&mut *self.lock());
        events.into_iter().filter_map(describe).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<RecordedEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn describe(event: RecordedEvent) -> Option<String> {
    match event {
        RecordedEvent::Frame(frame) => notification(&frame),
        RecordedEvent::Post(frame) => Some(format!("POST {}", notification(&frame)?)),
        RecordedEvent::Closed => Some("connection closed".to_owned()),
        RecordedEvent::Reset => Some("stream reset".to_owned()),
        RecordedEvent::Reported(event) => Some(event),
    }
}

/// Returns the method and params of a notification; `None` for other messages.
fn notification(frame: &[u8]) -> Option<String> {
    let frame: Value = serde_json::from_slice(frame).ok()?;
    if frame.get("id").is_some() {
        return None;
    }
    let method = frame["method"].as_str()?;
    Some(match frame.get("params") {
        Some(params) => format!("{method} {params}"),
        None => method.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_responses_are_left_out() {
        let recorder = EventRecorder::default();
        recorder.push(RecordedEvent::Frame(
            br#"{"id":1,"method":"tools/call","params":{}}"#.into(),
        ));
        recorder.push(RecordedEvent::Post(
            br#"{"method":"notifications/cancelled","params":{"requestId":1}}"#.into(),
        ));
        recorder.push(RecordedEvent::Frame(br#"{"id":1,"result":{}}"#.into()));

        let events = recorder.take();

        assert_eq!(events, [r#"POST notifications/cancelled {"requestId":1}"#]);
        assert!(recorder.take().is_empty());
    }
}
