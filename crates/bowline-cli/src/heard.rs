//! What a server hears of calls that are let go of, written down where it comes in.

mod frames;

mod io;
pub(crate) use io::TappedIo;

mod wire;
pub(crate) use wire::Tap;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// What was heard, in order. Clones are the same list.
///
/// It is written down as it came, and looked into only afterwards: looking takes time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Event>>>);

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Frame(Vec<u8>),
    Post(Vec<u8>),
    /// The client closed the connection.
    Closed,
    /// The client reset one stream of it.
    Reset,
    /// Another process heard it and told us.
    Told(String),
}

impl Heard {
    pub(crate) fn push(&self, event: Event) {
        self.lock().push(event);
    }

    /// All that was heard since the last time, without requests and answers: what is left is how calls
    /// were let go of.
    pub(crate) fn take(&self) -> Vec<String> {
        let events = std::mem::take(&mut *self.lock());
        events.into_iter().filter_map(in_words).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn in_words(event: Event) -> Option<String> {
    match event {
        Event::Frame(frame) => notification(&frame),
        Event::Post(frame) => Some(format!("POST {}", notification(&frame)?)),
        Event::Closed => Some("connection closed".to_owned()),
        Event::Reset => Some("stream reset".to_owned()),
        Event::Told(words) => Some(words),
    }
}

/// A notification's method and params; nothing if the frame is something else.
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
    fn requests_and_answers_are_left_out() {
        let heard = Heard::default();
        heard.push(Event::Frame(
            br#"{"id":1,"method":"tools/call","params":{}}"#.into(),
        ));
        heard.push(Event::Post(
            br#"{"method":"notifications/cancelled","params":{"requestId":1}}"#.into(),
        ));
        heard.push(Event::Frame(br#"{"id":1,"result":{}}"#.into()));

        let words = heard.take();

        assert_eq!(words, [r#"POST notifications/cancelled {"requestId":1}"#]);
        assert!(heard.take().is_empty());
    }
}
