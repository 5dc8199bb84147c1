//! One frame a line: the framing of stdio, and of any other byte stream.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bowline_core::Message;
use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use super::{Received, Wire};

/// A wire over a byte stream, one message a line.
///
/// A line longer than the limit (default 16 MiB) is skipped and costs only itself. Blank lines are
/// ignored; a line may end in LF or CRLF.
///
/// # Examples
///
/// ```
/// use bowline::wire::Lines;
///
/// let (near, far) = tokio::io::duplex(4096);
/// let (read, write) = tokio::io::split(near);
/// let wire = Lines::new(read, write).max_line(1024 * 1024);
/// ```
#[must_use = "a wire does nothing until it is served or connected over"]
pub struct Lines {
    read: Pin<Box<dyn AsyncRead + Send>>,
    write: Pin<Box<dyn AsyncWrite + Send>>,
    splitter: Splitter,
    /// How much is read at once.
    read_size: usize,
    outgoing: Vec<u8>,
    /// How much of `outgoing` was written.
    written: usize,
}

impl Lines {
    /// A wire that reads lines from `read` and writes lines to `write`.
    pub fn new(
        read: impl AsyncRead + Send + 'static,
        write: impl AsyncWrite + Send + 'static,
    ) -> Self {
        Self {
            read: Box::pin(read),
            write: Box::pin(write),
            splitter: Splitter::new(DEFAULT_MAX_LINE),
            read_size: LEAST_READ,
            outgoing: Vec::new(),
            written: 0,
        }
    }

    /// A wire over a TCP connection, which is set to send small messages at once.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use bowline::{Client, wire::Lines};
    ///
    /// let stream = tokio::net::TcpStream::connect("127.0.0.1:4000").await?;
    /// let client = Client::over(Lines::tcp(stream)).await?;
    /// # Ok(()) }
    /// ```
    pub fn tcp(stream: TcpStream) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small messages may be held back");
        }
        let (read, write) = stream.into_split();
        Self::new(read, write)
    }

    /// A wire over a Unix socket.
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
        Self::new(read, write)
    }

    /// Skips lines of more than `bytes`.
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.splitter.limit = bytes;
        self
    }

    /// Reads once into the spare room of the buffer. Whoever sends more than that at once is read from in
    /// larger pieces from then on.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let buffer = &mut self.splitter.buffer;
        if buffer.capacity() - buffer.len() < self.read_size / 2 {
            buffer.reserve(self.read_size);
        }
        // Nothing is lost by making this future anew for each poll: it takes bytes only when it is ready.
        let read = ready!(pin!(self.read.read_buf(buffer)).poll(cx))?;
        if buffer.len() == buffer.capacity() {
            self.read_size = (self.read_size * 2).min(MOST_READ);
        }
        Poll::Ready(Ok(read))
    }

    /// Writes what is buffered.
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
        // What sits in the buffer counts as sent, so it is kept small: a call that is abandoned while
        // the other side does not read is then withdrawn rather than cancelled.
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
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("buffered", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}

/// Cuts a stream of bytes into lines, in bounded space.
struct Splitter {
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    scanned: usize,
    limit: usize,
    /// Whether the line under way is too long and is being thrown away.
    skipping: bool,
}

impl Splitter {
    fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            limit,
            skipping: false,
        }
    }

    fn next_line(&mut self) -> Option<Received> {
        loop {
            let Some(end) = self.find_end() else {
                return self.check_length();
            };
            let line = self.take_line(end);
            self.scanned = 0;
            if std::mem::take(&mut self.skipping) {
                continue; // the rest of a line that was reported when it grew too long
            }
            if line.len() > self.limit {
                return Some(Received::TooLong { limit: self.limit });
            }
            if !line.trim_ascii().is_empty() {
                return Some(Received::Frame(line));
            }
        }
    }

    /// Takes a line and its end out of the buffer. A short one is copied: it may be kept for long, and would keep the whole
    /// buffer alive.
    fn take_line(&mut self, end: usize) -> Bytes {
        if end > SHORT {
            let mut line = self.buffer.split_to(end + 1);
            line.truncate(end);
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

    /// Throws away a line that is too long as it comes, and reports it once.
    fn check_length(&mut self) -> Option<Received> {
        if self.skipping {
            self.buffer.clear();
            self.scanned = 0;
            return None;
        }
        if self.buffer.len() <= self.limit {
            return None;
        }
        self.buffer = BytesMut::new();
        self.scanned = 0;
        self.skipping = true;
        Some(Received::TooLong { limit: self.limit })
    }

    /// The stream is at its end: what is left is a last line that was not ended.
    fn end(&mut self) -> Received {
        let rest: Bytes = std::mem::take(&mut self.buffer).freeze();
        self.scanned = 0;
        if self.skipping || rest.trim_ascii().is_empty() {
            return Received::End;
        }
        Received::Frame(rest)
    }
}

const DEFAULT_MAX_LINE: usize = 16 * 1024 * 1024;
const HIGH_WATER: usize = 64 * 1024;
const LEAST_READ: usize = 16 * 1024;
/// A line that is copied out of the buffer.
const SHORT: usize = MOST_READ / 2;
/// As much as a pipe holds.
const MOST_READ: usize = 64 * 1024;
