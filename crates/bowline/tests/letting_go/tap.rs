//! A wire that writes down every frame that passes, in order.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bowline::wire::{Received, Wire};
use bowline_core::Message;
use serde_json::Value;

/// What passed, one line a frame: `→` was sent by the client, `←` was received by it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn frames(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn write(&self, direction: char, frame: &[u8]) {
        let line = format!("{direction} {}", in_short(frame));
        self.0.lock().unwrap().push(line);
    }
}

/// A wire with a log and a fuse.
pub(crate) struct Tap<W> {
    wire: W,
    log: Log,
    fuse: Fuse,
}

impl<W: Wire> Tap<W> {
    pub(crate) fn new(wire: W, log: &Log, fuse: &Fuse) -> Self {
        let (log, fuse) = (log.clone(), fuse.clone());
        Self { wire, log, fuse }
    }
}

impl<W: Wire> Wire for Tap<W> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        if self.fuse.is_blown(cx) {
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

/// Breaks a wire when a test says so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fuse(Arc<Mutex<(bool, Option<Waker>)>>);

impl Fuse {
    pub(crate) fn blow(&self) {
        let mut fuse = self.0.lock().unwrap();
        fuse.0 = true;
        let waker = fuse.1.take();
        drop(fuse);
        waker.into_iter().for_each(Waker::wake);
    }

    fn is_blown(&self, cx: &Context<'_>) -> bool {
        let mut fuse = self.0.lock().unwrap();
        fuse.1 = Some(cx.waker().clone());
        fuse.0
    }
}

/// A frame without what is of no interest here: who is calling, and what a result says. A cancel is
/// written out to the last character.
pub(crate) fn in_short(frame: &[u8]) -> String {
    let text = String::from_utf8_lossy(frame).into_owned();
    let frame: Value = serde_json::from_slice(frame).unwrap();
    let params = &frame["params"];
    match (frame["method"].as_str(), frame.get("id")) {
        (Some("notifications/cancelled"), _) => text,
        (Some("notifications/progress"), _) => format!("progress {}", params["progress"]),
        (Some(method), Some(id)) => {
            let about = [&params["name"], &params["uri"]];
            let about = about.into_iter().find_map(Value::as_str);
            let about = about.map(|about| format!(" {about}")).unwrap_or_default();
            format!("{id} {method}{about}")
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
