//! A wire that records all frames in order, and that a test can break.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bowline::wire::{Received, Wire};
use bowline_core::Message;
use serde_json::Value;

/// The summaries of all frames: `→` was sent by the client, `←` was received by it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameLog(Arc<Mutex<Vec<String>>>);

impl FrameLog {
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn frames(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn write(&self, direction: char, frame: &[u8]) {
        let line = format!("{direction} {}", summarize(frame));
        self.0.lock().unwrap().push(line);
    }
}

pub(crate) struct LoggedWire<W> {
    wire: W,
    log: FrameLog,
    breaker: WireBreaker,
}

impl<W: Wire> LoggedWire<W> {
    pub(crate) fn new(wire: W, log: &FrameLog, breaker: &WireBreaker) -> Self {
        let (log, breaker) = (log.clone(), breaker.clone());
        Self { wire, log, breaker }
    }
}

impl<W: Wire> Wire for LoggedWire<W> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        if self.breaker.is_broken(cx) {
            return Poll::Ready(Received::Broken(io::ErrorKind::ConnectionReset.into()));
        }
        let received = self.wire.poll_receive(cx);
        if let Poll::Ready(Received::Frame(frame)) = &received {
            self.log.write('←', frame);
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        self.log.write('→', &message.to_frame());
        self.wire.send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }
}

/// Makes a wire fail with a connection reset.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireBreaker(Arc<Mutex<(bool, Option<Waker>)>>);

impl WireBreaker {
    pub(crate) fn break_wire(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn is_broken(&self, cx: &Context<'_>) -> bool {
        let mut state = self.0.lock().unwrap();
        state.1 = Some(cx.waker().clone());
        state.0
    }
}

/// Summarizes a frame as its id, method and the name or URI in its params. A cancel is returned in full.
pub(crate) fn summarize(frame: &[u8]) -> String {
    let text = String::from_utf8_lossy(frame).into_owned();
    let frame: Value = serde_json::from_slice(frame).unwrap();
    let params = &frame["params"];
    match (frame["method"].as_str(), frame.get("id")) {
        (Some("notifications/cancelled"), _) => text,
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
            match frame["error"]["code"].as_i64() {
                Some(code) => format!("{id} error {code}"),
                None => format!("{id} result"),
            }
        }
    }
}
