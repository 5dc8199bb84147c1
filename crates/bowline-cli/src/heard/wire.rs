//! A wire that writes down every frame that comes in.

use std::io;
use std::task::{Context, Poll};

use bowline::wire::{Received, Wire};
use bowline_core::Message;

use super::{Event, Heard};

#[derive(Debug)]
pub(crate) struct Tap<W> {
    wire: W,
    heard: Heard,
}

impl<W> Tap<W> {
    pub(crate) fn new(wire: W, heard: &Heard) -> Self {
        let heard = heard.clone();
        Self { wire, heard }
    }
}

impl<W: Wire> Wire for Tap<W> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        let received = self.wire.poll_receive(cx);
        if let Poll::Ready(Received::Frame(frame)) = &received {
            self.heard.push(Event::Frame(frame.to_vec()));
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
