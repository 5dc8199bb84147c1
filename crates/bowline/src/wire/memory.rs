//! A wire in memory: two bounded queues of frames.
//!
//! The frames are real, so that both ends go through the same codecs as over a socket.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bowline_core::Message;
use bytes::Bytes;

use super::{Received, Wire};

/// Makes a wire in memory and returns its two ends.
///
/// Each direction holds at most 64 frames; a sender waits while its direction is full.
///
/// # Examples
///
/// ```
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// let (near, far) = bowline::wire::memory();
/// let serving = tokio::spawn(server.serve(far));
/// let client = bowline::Client::over(near).await?;
/// # Ok(()) }
/// ```
pub fn memory() -> (Memory, Memory) {
    let (there, back) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
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

/// One end of a wire in memory. Dropping it closes the wire.
#[derive(Debug)]
#[must_use = "dropping one end closes the wire"]
pub struct Memory {
    outgoing: Arc<Queue>,
    incoming: Arc<Queue>,
}

/// One direction.
#[derive(Debug, Default)]
struct Queue(Mutex<Frames>);

#[derive(Debug, Default)]
struct Frames {
    frames: VecDeque<Bytes>,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Wire for Memory {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        let mut queue = self.incoming.lock();
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
        let mut queue = self.outgoing.lock();
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
    /// Sends a frame, which may be anything.
    pub(crate) fn send_frame(&self, frame: Bytes) {
        let mut queue = self.outgoing.lock();
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

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Frames> {
        // No code that could panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let wakers = [queue.reader.take(), queue.writer.take()];
        drop(queue);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

const CAPACITY: usize = 64;
