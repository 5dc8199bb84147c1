//! A wire that records every frame, at the server's end.

use std::io;
use std::task::{Context, Poll};

use bowline::wire::{Received, Wire};
use bowline_core::Message;

use super::summarize;
use crate::observer::Observer;

pub(crate) struct TappedWire<W> {
    wire: W,
    observer: Observer,
}

impl<W> TappedWire<W> {
    pub(crate) fn new(wire: W, observer: &Observer) -> Self {
        let observer = observer.clone();
        Self { wire, observer }
    }
}

impl<W: Wire> Wire for TappedWire<W> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        let received = self.wire.poll_receive(cx);
        if let Poll::Ready(Received::Frame(frame)) = &received {
            self.observer.frame(format!("→ {}", summarize(frame)));
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        self.observer
            .frame(format!("← {}", summarize(&message.to_frame())));
        self.wire.send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }
}
