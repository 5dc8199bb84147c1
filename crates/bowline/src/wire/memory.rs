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
            queue.reader = Some(cx.waker().clone());
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
            queue.writer = Some(cx.waker().clone());
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
