//! [`Memory`], an in-memory wire made of two bounded queues of frames.
//!
//! Messages are encoded and decoded as on a socket.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bowline_core::Message;
use bytes::Bytes;

use super::{Received, Wire};
use crate::sync::Mutex;
use crate::telemetry::TransportKind;

/// Creates an in-memory wire and returns its two ends.
///
/// Each direction buffers at most 64 frames; then the sender waits.
///
/// # Examples
///
/// ```
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// let (client_wire, server_wire) = bowline::wire::memory();
/// let task = tokio::spawn(server.serve(server_wire));
/// let client = bowline::Client::from_wire(client_wire).await?;
/// # Ok(()) }
/// ```
pub fn memory() -> (Memory, Memory) {
    let (there, back) = (
        Arc::new(FrameQueue::default()),
        Arc::new(FrameQueue::default()),
    );
    let near = Memory {
        outgoing: there.clone(),
        incoming: back.clone(),
    };
    let far = Memory {
        outgoing: back,
        incoming: there,
    };
    (near, far)
}

/// One end of an in-memory wire. Dropping it closes the wire.
#[derive(Debug)]
#[must_use = "dropping one end closes the wire"]
pub struct Memory {
    outgoing: Arc<FrameQueue>,
    incoming: Arc<FrameQueue>,
}

/// One direction of the wire.
#[derive(Debug, Default)]
struct FrameQueue(Mutex<FrameQueueState>);

#[derive(Debug, Default)]
struct FrameQueueState {
    frames: VecDeque<Bytes>,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Wire for Memory {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        let mut queue = self.incoming.0.lock();
        let Some(frame) = queue.frames.pop_front() else {
            if queue.closed {
                return Poll::Ready(Received::End);
            }
            let replaced = queue.reader.replace(cx.waker().clone());
            drop(queue);
            drop(replaced); // not under the lock: a waker is foreign code
            return Poll::Pending;
        };
        let writer = queue.writer.take();
        drop(queue);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Received::Frame(frame))
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut queue = self.outgoing.0.lock();
        if queue.closed {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        } else if queue.frames.len() < CAPACITY {
            Poll::Ready(Ok(()))
        } else {
            let replaced = queue.writer.replace(cx.waker().clone());
            drop(queue);
            drop(replaced); // not under the lock: a waker is foreign code
            Poll::Pending
        }
    }

    fn send(&mut self, message: &Message) {
        self.send_frame(message.to_frame());
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.close();
        Poll::Ready(Ok(()))
    }

    fn transport(&self) -> TransportKind {
        TransportKind::InProcess
    }
}

impl Memory {
    /// Sends a frame, which may be any bytes.
    pub(crate) fn send_frame(&self, frame: Bytes) {
        let mut queue = self.outgoing.0.lock();
        queue.frames.push_back(frame);
        let reader = queue.reader.take();
        drop(queue);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.outgoing.close();
        self.incoming.close();
    }
}

impl FrameQueue {
    fn close(&self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        let wakers = [queue.reader.take(), queue.writer.take()];
        drop(queue);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

const CAPACITY: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    /// A waker that closes a wire when it is dropped, which locks both queues.
    struct OwnsWire(#[allow(dead_code, reason = "held to be dropped")] Memory);

    impl Wake for OwnsWire {
        fn wake(self: Arc<Self>) {}
    }

    /// Polls with a waker that owns the other end, then with another, which replaces it.
    fn replace_waker(poll: impl Fn(&mut Memory, &mut Context<'_>) + Send + 'static) {
        let (mut near, far) = memory();
        (0..CAPACITY).for_each(|_| near.send_frame(Bytes::new()));
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let owner = Waker::from(Arc::new(OwnsWire(far)));
            poll(&mut near, &mut Context::from_waker(&owner));
            drop(owner);
            poll(&mut near, &mut Context::from_waker(Waker::noop()));
            let _ = done.send(());
        });

        let replaced = is_done.recv_timeout(Duration::from_secs(10));

        assert!(replaced.is_ok(), "a waker was dropped under the lock");
    }

    #[test]
    fn a_replaced_reader_is_dropped_without_the_lock() {
        replace_waker(|near, cx| drop(near.poll_receive(cx)));
    }

    #[test]
    fn a_replaced_writer_is_dropped_without_the_lock() {
        replace_waker(|near, cx| drop(near.poll_ready(cx)));
    }
}
