//! [`Lines`], newline-delimited messages over a byte stream: the framing of stdio.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bowline_core::Message;
use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use super::long_line::LongLine;
use super::{Received, Wire};
use crate::RequestId;
use crate::limits::{ReadBudget, ReadCharge};
use crate::telemetry::TransportKind;

/// A wire over a byte stream, with one message per line.
///
/// A line longer than the limit (default 16 MiB) is skipped, and the wire stays open; if it is a response, its call
/// fails. Blank lines are ignored. A line ends in LF or CRLF.
///
/// # Examples
///
/// ```
/// use bowline::wire::Lines;
///
/// let (client_wire, server_wire) = tokio::io::duplex(4096);
/// let (read, write) = tokio::io::split(client_wire);
/// let wire = Lines::new(read, write).max_line(1024 * 1024);
/// ```
#[must_use = "wires do nothing until passed to a client or server"]
pub struct Lines {
    read: Pin<Box<dyn AsyncRead + Send>>,
    write: Pin<Box<dyn AsyncWrite + Send>>,
    splitter: LineSplitter,
    /// The size of one read.
    read_size: usize,
    outgoing: Vec<u8>,
    /// The number of bytes of `outgoing` that were written.
    written: usize,
    transport: TransportKind,
}

impl Lines {
    /// Creates a wire that reads lines from `read` and writes lines to `write`.
    pub fn new(
        read: impl AsyncRead + Send + 'static,
        write: impl AsyncWrite + Send + 'static,
    ) -> Self {
        Self {
            read: Box::pin(read),
            write: Box::pin(write),
            splitter: LineSplitter::new(DEFAULT_MAX_LINE),
            read_size: MIN_READ,
            outgoing: Vec::new(),
            written: 0,
            transport: TransportKind::Other,
        }
    }

    /// Creates a wire over a TCP connection, and sets `TCP_NODELAY`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use bowline::{Client, wire::Lines};
    ///
    /// let stream = tokio::net::TcpStream::connect("127.0.0.1:4000").await?;
    /// let client = Client::from_wire(Lines::tcp(stream)).await?;
    /// # Ok(()) }
    /// ```
    pub fn tcp(stream: TcpStream) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY");
        }
        let (read, write) = stream.into_split();
        Self::new(read, write).over(TransportKind::Tcp)
    }

    /// Creates a wire over a Unix socket.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(server: bowline::Server) -> Result<(), Box<dyn std::error::Error>> {
    /// let listener = tokio::net::UnixListener::bind("calculator.sock")?;
    /// loop {
    ///     let (stream, _) = listener.accept().await?;
    ///     tokio::spawn(server.clone().serve(bowline::wire::Lines::unix(stream)));
    /// }
    /// # }
    /// ```
    #[cfg(unix)]
    pub fn unix(stream: tokio::net::UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self::new(read, write).over(TransportKind::Unix)
    }

    /// Sets what carries the lines.
    pub(crate) fn over(mut self, transport: TransportKind) -> Self {
        self.transport = transport;
        self
    }

    /// Sets the maximum length of a line in bytes; longer ones are skipped.
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.splitter.limit = bytes;
        self
    }

    /// Limits the unfinished lines of this and other wires; see [`ReadBudget`]. One that does not fit is skipped, as one
    /// that is too long.
    pub fn read_budget(mut self, budget: &ReadBudget) -> Self {
        self.splitter.charge = ReadCharge::new(Some(budget.clone()));
        self
    }

    /// Reads once into the spare capacity of the buffer. A read that fills it doubles the size of later reads.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let buffer = &mut self.splitter.buffer;
        if buffer.capacity() - buffer.len() < self.read_size / 2 {
            buffer.reserve(self.read_size);
        }
        // A new future per poll loses no bytes: `read_buf` reads only when it is ready.
        let read = ready!(pin!(self.read.read_buf(buffer)).poll(cx))?;
        if buffer.len() == buffer.capacity() {
            self.read_size = (self.read_size * 2).min(MAX_READ);
        }
        Poll::Ready(Ok(read))
    }

    /// Writes the buffered messages.
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.outgoing.len() {
            let rest = &self.outgoing[self.written..];
            match ready!(self.write.as_mut().poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.outgoing.clear();
        self.outgoing.shrink_to(HIGH_WATER);
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl Wire for Lines {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        loop {
            if let Some(received) = self.splitter.next_line() {
                return Poll::Ready(received);
            }
            match ready!(self.poll_fill(cx)) {
                Ok(0) => return Poll::Ready(self.splitter.end()),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Received::Broken(error)),
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Buffered messages count as sent, so the buffer is kept small: a call that is abandoned while the peer does
        // not read is then withdrawn from the `Mux` instead of sent and cancelled.
        if self.outgoing.len() < HIGH_WATER {
            Poll::Ready(Ok(()))
        } else {
            self.poll_write_out(cx)
        }
    }

    fn send(&mut self, message: &Message) {
        message.encode(&mut self.outgoing);
        self.outgoing.push(b'\n');
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        self.write.as_mut().poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        self.write.as_mut().poll_shutdown(cx)
    }

    fn transport(&self) -> TransportKind {
        self.transport
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("buffered", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}

/// Splits a byte stream into lines, with bounded memory.
struct LineSplitter {
    buffer: BytesMut,
    /// The length of the prefix of the buffer that contains no newline.
    scanned: usize,
    limit: usize,
    /// The current line, if it is too long and is being discarded.
    skipped: Option<LongLine>,
    /// For the current line, if it is longer than one read.
    charge: ReadCharge,
}

impl LineSplitter {
    fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            limit,
            skipped: None,
            charge: ReadCharge::new(None),
        }
    }

    fn next_line(&mut self) -> Option<Received> {
        loop {
            let Some(end) = self.find_end() else {
                return self.check_length();
            };
            let line = self.take_line(end);
            self.charge.clear();
            self.scanned = 0;
            if let Some(mut skipped) = self.skipped.take() {
                skipped.push(&line);
                match skipped.end() {
                    Some(id) => return Some(self.too_long(Some(id))),
                    None => continue, // it was reported before
                }
            }
            if line.len() > self.limit {
                let (line, id) = LongLine::start(&line);
                return Some(self.too_long(id.or_else(|| line.end())));
            }
            if !line.trim_ascii().is_empty() {
                return Some(Received::Frame(line));
            }
        }
    }

    /// Removes a line and its newline from the buffer. A short line is copied: it may be kept for long, and a slice
    /// would keep the whole buffer alive.
    fn take_line(&mut self, end: usize) -> Bytes {
        if end > MAX_COPIED_LINE {
            let mut line = self.buffer.split_to(end + 1);
            line.truncate(end);
            if end > LARGE_LINE && self.buffer.len() <= MAX_READ {
                // The rest would keep the memory of the line, and fill it with later ones.
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            return line.freeze();
        }
        let line = Bytes::copy_from_slice(&self.buffer[..end]);
        self.buffer.advance(end + 1);
        line
    }

    fn find_end(&mut self) -> Option<usize> {
        let found = memchr(b'\n', &self.buffer[self.scanned..]);
        let end = found.map(|at| self.scanned + at);
        self.scanned = self.buffer.len();
        end
    }

    /// Discards a line that is too long as it is received, and reports it at once: it may never end. If its end shows
    /// that it is a response, it is reported again then.
    fn check_length(&mut self) -> Option<Received> {
        if let Some(skipped) = &mut self.skipped {
            skipped.push(&self.buffer);
            self.buffer.clear();
            self.scanned = 0;
            return None;
        }
        let held = self.buffer.len();
        // A line that may fit into one read needs no charge.
        let is_over_budget = held > MAX_READ && self.charge.set(held).is_err();
        if is_over_budget {
            tracing::warn!(
                held,
                "skipped a line that exceeds the budget of unfinished messages"
            );
        } else if held <= self.limit {
            return None;
        }
        self.charge.clear();
        let (skipped, id) = LongLine::start(&self.buffer);
        self.buffer = BytesMut::new();
        self.scanned = 0;
        self.skipped = Some(skipped);
        Some(self.too_long(id))
    }

    fn too_long(&self, response_to: Option<RequestId>) -> Received {
        Received::TooLong {
            limit: self.limit,
            response_to,
        }
    }

    /// Handles the end of the stream: the rest is a last line without a newline.
    fn end(&mut self) -> Received {
        let rest: Bytes = std::mem::take(&mut self.buffer).freeze();
        self.scanned = 0;
        if self.skipped.is_some() || rest.trim_ascii().is_empty() {
            return Received::End;
        }
        Received::Frame(rest)
    }
}

const DEFAULT_MAX_LINE: usize = 16 * 1024 * 1024;
const HIGH_WATER: usize = 64 * 1024;
const MIN_READ: usize = 16 * 1024;
/// Memory for longer lines is not kept after them.
const LARGE_LINE: usize = 1024 * 1024;
/// Lines up to this length are copied out of the buffer.
const MAX_COPIED_LINE: usize = MAX_READ / 2;
/// The default capacity of a pipe on Linux.
const MAX_READ: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_long_line_is_not_kept_after_it() {
        let mut splitter = LineSplitter::new(16 * LARGE_LINE);
        let line = vec![b'x'; 8 * LARGE_LINE];
        splitter.buffer.extend_from_slice(&line);
        splitter.buffer.extend_from_slice(b"\nnext");

        let end = splitter.find_end().unwrap();
        let taken = splitter.take_line(end);

        assert_eq!(taken.len(), line.len());
        drop(taken);
        splitter.buffer.reserve(MAX_READ);
        assert_eq!(splitter.buffer, b"next"[..]);
        assert!(splitter.buffer.capacity() < LARGE_LINE);
    }

    #[test]
    fn a_line_that_does_not_fit_into_the_budget_is_skipped() {
        let budget = ReadBudget::new(3 * MAX_READ);
        let mut splitters = [(); 2].map(|()| LineSplitter::new(LARGE_LINE));
        for splitter in &mut splitters {
            splitter.charge = ReadCharge::new(Some(budget.clone()));
            splitter.buffer.extend_from_slice(&vec![b'x'; 2 * MAX_READ]);
        }
        let [first, second] = &mut splitters;

        assert!(first.next_line().is_none());
        let skipped = second.next_line();

        assert!(
            matches!(skipped, Some(Received::TooLong { .. })),
            "{skipped:?}"
        );
        assert_eq!((budget.used(), budget.refused()), (2 * MAX_READ, 1));
        for splitter in [first, second] {
            splitter.buffer.extend_from_slice(b"\nnext\n");
            let lines: Vec<_> = std::iter::from_fn(|| splitter.next_line()).collect();
            let last = lines.last();
            assert!(
                matches!(last, Some(Received::Frame(line)) if line == "next"),
                "{last:?}"
            );
        }
        assert_eq!(budget.used(), 0);
    }
}
