//! [`WireRecord`], the messages and closes that recording wires and sockets have seen.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Waker};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::sync::Mutex;

/// The events that a [`RecordingWire`](super::RecordingWire) or some [`RecordingSocket`](super::RecordingSocket)s have
/// recorded. Cheap to clone; clones share the record.
#[derive(Clone, Debug, Default)]
pub struct WireRecord {
    state: Arc<Mutex<RecordState>>,
    on_event: Option<fn(&RecordedEvent)>,
}

#[derive(Debug, Default)]
struct RecordState {
    events: Vec<RecordedEvent>,
    is_cut: bool,
    reader: Option<Waker>,
}

/// An event of a wire or a socket. A server in another process can report its events as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RecordedEvent {
    /// A message.
    Frame(RecordedFrame),
    /// The method of an HTTP request without a body, such as `GET`.
    EmptyRequest(String),
    /// The client closed the connection before the response to this posted message was complete.
    Closed(RecordedFrame),
    /// The client reset the HTTP/2 stream before the response to this posted message was complete.
    Reset(RecordedFrame),
}

/// A recorded frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedFrame {
    /// The direction of the frame.
    pub direction: Direction,
    /// The text of the frame.
    pub text: String,
}

/// The direction of a frame, seen from the end that records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a wire has two ends, so there are two directions"
)]
pub enum Direction {
    /// To the other end.
    Sent,
    /// From the other end.
    Received,
}

impl WireRecord {
    /// Creates a record that also passes each event to `on_event`, to report it to another process.
    #[must_use]
    pub fn with_callback(on_event: fn(&RecordedEvent)) -> Self {
        let (state, on_event) = (Arc::default(), Some(on_event));
        Self { state, on_event }
    }

    /// Returns all frames, in order.
    #[must_use]
    pub fn frames(&self) -> Vec<RecordedFrame> {
        let state = self.state.lock();
        let frames = state.events.iter().filter_map(|event| match event {
            RecordedEvent::Frame(frame) => Some(frame.clone()),
            _ => None,
        });
        frames.collect()
    }

    /// Returns the sent frames, as JSON.
    #[must_use]
    pub fn sent(&self) -> Vec<Value> {
        self.frames_in(Direction::Sent)
    }

    /// Returns the received frames, as JSON.
    #[must_use]
    pub fn received(&self) -> Vec<Value> {
        self.frames_in(Direction::Received)
    }

    /// Returns all events, in order.
    #[must_use]
    pub fn events(&self) -> Vec<RecordedEvent> {
        self.state.lock().events.clone()
    }

    /// Adds an event, such as one that another process has reported.
    pub fn push(&self, event: RecordedEvent) {
        if let Some(on_event) = self.on_event {
            on_event(&event);
        }
        self.state.lock().events.push(event);
    }

    /// Removes and returns all events.
    #[must_use = "use `clear` to discard the events"]
    pub fn take(&self) -> Vec<RecordedEvent> {
        std::mem::take(&mut self.state.lock().events)
    }

    /// Clears the record.
    pub fn clear(&self) {
        self.state.lock().events.clear();
    }

    /// Cuts the wire: receiving at the recording end fails with [`Received::Broken`](crate::wire::Received::Broken).
    pub fn cut(&self) {
        let mut state = self.state.lock();
        state.is_cut = true;
        let reader = state.reader.take();
        // Woken after unlocking: a waker is foreign code.
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    fn frames_in(&self, direction: Direction) -> Vec<Value> {
        let mut frames = self.frames();
        frames.retain(|frame| frame.direction == direction);
        frames.iter().map(RecordedFrame::json).collect()
    }

    pub(super) fn push_frame(&self, direction: Direction, frame: &[u8]) {
        self.push(RecordedEvent::Frame(RecordedFrame::new(direction, frame)));
    }

    /// Returns whether the wire was cut, and registers the reader to be woken when it is.
    pub(super) fn is_cut(&self, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let mut state = self.state.lock();
        let old = state.reader.replace(waker);
        let is_cut = state.is_cut;
        drop(state);
        drop(old);
        is_cut
    }
}

impl RecordedFrame {
    /// Copies the frame and parses nothing, so that recording adds little to a measured latency.
    pub(super) fn new(direction: Direction, frame: &[u8]) -> Self {
        let text = String::from_utf8_lossy(frame).into_owned();
        Self { direction, text }
    }

    /// Parses the frame as JSON; `null` if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// Returns the [summary](summarize) of the message.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.json() {
            Value::Null => format!("malformed: {}", self.text),
            message => summarize(&message),
        }
    }
}

/// Returns a message as short text, to compare it in a test: its id, its method, and the name or URI in its params.
///
/// # Examples
///
/// ```
/// use bowline::testing::summarize;
/// use serde_json::json;
///
/// let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "now"}});
/// let result = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
/// let params = json!({"requestId": 1, "reason": "enough"});
/// let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
///
/// assert_eq!(summarize(&call), "1 tools/call now");
/// assert_eq!(summarize(&result), "1 result");
/// assert_eq!(summarize(&cancel), "cancel 1: enough");
/// ```
#[must_use]
pub fn summarize(message: &Value) -> String {
    let params = &message["params"];
    match (message["method"].as_str(), message.get("id")) {
        (Some(CANCELLED), _) => summarize_cancel(message),
        (Some("notifications/progress"), _) => format!("progress {}", params["progress"]),
        (Some(method), Some(id)) => {
            let names = [&params["name"], &params["uri"]];
            let name = names.into_iter().find_map(Value::as_str);
            let name = name.map(|name| format!(" {name}")).unwrap_or_default();
            format!("{id} {method}{name}")
        }
        (Some(method), None) => method.to_owned(),
        (None, id) => {
            let id = id.map_or("-".to_owned(), Value::to_string);
            match message["error"]["code"].as_i64() {
                Some(code) => format!("{id} error {code}"),
                None => format!("{id} result"),
            }
        }
    }
}

/// Returns the whole message if it has any other member, so that a test that expects a plain cancel fails.
fn summarize_cancel(message: &Value) -> String {
    let id = &message["params"]["requestId"];
    let reason = message["params"]["reason"].as_str().unwrap_or_default();
    let params = json!({"requestId": id, "reason": reason});
    match *message == json!({"jsonrpc": "2.0", "method": CANCELLED, "params": params}) {
        true => format!("cancel {id}: {reason}"),
        false => message.to_string(),
    }
}

impl fmt::Display for RecordedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match self.direction {
            Direction::Sent => '→',
            Direction::Received => '←',
        };
        write!(f, "{arrow} {}", self.text)
    }
}

const CANCELLED: &str = "notifications/cancelled";
