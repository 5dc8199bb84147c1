//! Reading and writing files and terminals, which do not support readiness: one thread each, with a bounded buffer.
//!
//! Not tokio's blocking pool: a runtime waits for its blocking threads when it shuts down, and a read from a terminal
//! may never return.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Reads `file` in a new thread.
pub(super) fn read(mut file: File) -> io::Result<DuplexStream> {
    let (near, mut far) = duplex(CAPACITY);
    let runtime = Handle::current();
    thread::Builder::new()
        .name("bowline-stdin".into())
        .spawn(move || {
            let mut chunk = vec![0; CAPACITY];
            loop {
                let count = match file.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // Treated as the end of input: a terminal reports a hangup as an error.
                    Err(error) => return tracing::debug!(%error, "failed to read standard input"),
                };
                if runtime.block_on(far.write_all(&chunk[..count])).is_err() {
                    return; // the wire was dropped
                }
            }
        })?;
    Ok(near)
}

/// Writes `file` in a new thread.
pub(super) fn write(mut file: File) -> io::Result<ThreadWriter> {
    let (near, mut far) = duplex(CAPACITY);
    let (sender, done) = oneshot::channel();
    let runtime = Handle::current();
    thread::Builder::new()
        .name("bowline-stdout".into())
        .spawn(move || {
            let mut chunk = vec![0; CAPACITY];
            let written = loop {
                match runtime.block_on(far.read(&mut chunk)) {
                    Ok(0) => break Ok(()),
                    Ok(count) => {
                        if let Err(error) = file.write_all(&chunk[..count]) {
                            break Err(error);
                        }
                    }
                    Err(error) => break Err(error),
                }
            };
            let _ = sender.send(written); // fails if the wire was dropped
        })?;
    Ok(ThreadWriter {
        pipe: near,
        done: Some(done),
    })
}

/// A writer to a thread. Shutting it down waits until the thread has written everything.
pub(super) struct ThreadWriter {
    pipe: DuplexStream,
    done: Option<oneshot::Receiver<io::Result<()>>>,
}

impl AsyncWrite for ThreadWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.pipe).poll_shutdown(cx))?;
        let Some(done) = &mut self.done else {
            return Poll::Ready(Ok(()));
        };
        let written = ready!(Pin::new(done).poll(cx));
        self.done = None;
        Poll::Ready(written.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())))
    }
}

const CAPACITY: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::os::fd::OwnedFd;

    use super::*;

    #[tokio::test]
    async fn shutdown_waits_until_everything_is_written() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writing = write(File::from(OwnedFd::from(writer))).unwrap();
        // Exceeds the capacity of the pipe, but not of the pipe and the buffer together.
        writing.write_all(&vec![b'x'; 2 * CAPACITY]).await.unwrap();

        let early = poll_fn(|cx| {
            let shutdown = Pin::new(&mut writing).poll_shutdown(cx);
            Poll::Ready(shutdown.is_ready())
        });
        let early = early.await;
        let reading = tokio::task::spawn_blocking(move || io::copy(&mut reader, &mut io::sink()));
        writing.shutdown().await.unwrap();
        drop(writing);

        assert!(!early, "the pipe has not been read yet");
        assert_eq!(reading.await.unwrap().unwrap(), 2 * CAPACITY as u64);
    }
}
