//! A wire that writes down every frame, at the server's end.

use std::io;
use std::task::{Context, Poll};

use bowline::RequestId;
use bowline::wire::{Received, Wire};
use bowline_core::Message;

use super::in_short;
use crate::seen::Seen;

pub(crate) struct TappedWire<W> {
    wire: W,
    seen: Seen,
}

impl<W> TappedWire<W> {
    pub(crate) fn new(wire: W, seen: &Seen) -> Self {
        let seen = seen.clone();
        Self { wire, seen }
    }
}

impl<W: Wire> Wire for TappedWire<W> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        let received = self.wire.poll_receive(cx);
        if let Poll::Ready(Received::Frame(frame)) = &received {
            self.seen.frame(format!("→ {}", in_short(frame)));
        }
        received
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        self.seen
            .frame(format!("← {}", in_short(&message.to_frame())));
        self.wire.send(message);
    }

    fn cancelled(&mut self, request: &RequestId) {
        self.wire.cancelled(request);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }
}
