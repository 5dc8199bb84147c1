//! A wire that records every received frame.

use std::io;
use std::task::{Context, Poll};

use bowline::wire::{Received, Wire};
use bowline_core::Message;

use super::{EventRecorder, RecordedEvent};

#[derive(Debug)]
pub(crate) struct ObservedWire<W> {
    wire: W,
    recorder: EventRecorder,
}

impl<W> ObservedWire<W> {
    pub(crate) fn new(wire: W, recorder: &EventRecorder) -> Self {
        let recorder = recorder.clone();
        Self { wire, recorder }
    }
}

impl<W: Wire> Wire for ObservedWire<W> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        let received = self.wire.poll_receive(cx);
        if let Poll::Ready(Received::Frame(frame)) = &received {
            self.recorder.push(RecordedEvent::Frame(frame.to_vec()));
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        self.wire.send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }
}
