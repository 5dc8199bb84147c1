//! Serves a [`Mock`] over wires and HTTP, with connections that are lost if it is told so.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{self, Poll};

use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::server::WireService;
use bowline::wire::{Lines, Message, Received, Wire};
use http::Method;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tower_service::Service;

use super::{DropAfter, Mock};

impl Mock {
    /// Returns a service that answers a client over stdio or another wire. It does not close connections; see
    /// [`serve`](Self::serve).
    pub fn wire(&self) -> WireService {
        let service = WireService::new(self.clone(), &self.inner.introduction.server_info);
        service.versions(self.inner.served.clone())
    }

    /// Returns a service that answers clients over HTTP, and over HTTP+SSE. It does not close connections; see
    /// [`serve_connection`](Self::serve_connection).
    pub fn http(&self) -> HttpService {
        let introduction = &self.inner.introduction;
        let catalog = introduction.catalog.clone();
        let service = HttpService::new(self.clone(), catalog, &introduction.server_info);
        let service = service.versions(self.inner.served.clone());
        service.legacy(Legacy::sessions().http_sse())
    }

    /// Serves one client over a byte stream with one message per line, until it ends or the mock closes it.
    ///
    /// # Errors
    ///
    /// None today: a failure of the stream is logged and ends it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the stream.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Client, wire::Lines};
    /// use bowline_recording::{DropAfter, Mock, Recording};
    ///
    /// # async fn example(recording: Recording) -> bowline::Result<()> {
    /// let mock = Mock::builder(&recording).drop_after(DropAfter::Answers(1)).build();
    /// let (near, far) = tokio::io::duplex(4096);
    /// let (read, write) = tokio::io::split(far);
    /// tokio::spawn(async move { mock.serve(read, write).await });
    ///
    /// let (read, write) = tokio::io::split(near);
    /// let client = Client::from_wire(Lines::new(read, write)).await?;
    /// assert!(client.list_tools().await.unwrap_err().is_disconnected());
    /// # Ok(()) }
    /// ```
    pub async fn serve(
        &self,
        read: impl AsyncRead + Send + 'static,
        write: impl AsyncWrite + Send + 'static,
    ) -> bowline::Result<()> {
        match self.inner.faults.drop_after {
            None => self.wire().serve(Lines::new(read, write)).await,
            Some(DropAfter::Answers(max)) => {
                let wire = DroppedWire::new(Lines::new(read, write), max);
                self.wire().serve(wire).await
            }
            Some(DropAfter::Bytes(max)) => {
                let cut = Cut::new();
                let write = CutIo::new(Box::pin(write), cut.clone(), Some(max));
                let read = CutIo::new(Box::pin(read), cut, None);
                self.wire().serve(Lines::new(read, write)).await
            }
        }
    }

    /// Serves one HTTP connection with a service of [`http`](Self::http), until it ends or the mock closes it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn serve_connection(
        &self,
        service: &HttpService,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) {
        let cut = Cut::new();
        match self.inner.faults.drop_after {
            None => service.serve_connection(io).await,
            Some(DropAfter::Bytes(max)) => {
                let io = CutIo::new(Box::pin(io), cut, Some(max));
                service.serve_connection(io).await;
            }
            Some(DropAfter::Answers(max)) => {
                let io = CutIo::new(Box::pin(io), cut.clone(), None);
                let counted = CountedService {
                    service: service.clone(),
                    left: Arc::new(AtomicU64::new(max)),
                    cut,
                };
                service.serve_connection_through(io, counted).await;
            }
        }
    }

    /// Returns whether connections are to be closed.
    #[must_use]
    pub fn drops_connections(&self) -> bool {
        self.inner.faults.drop_after.is_some()
    }
}

/// A wire that ends in place of the answer after `left` more.
struct DroppedWire<W> {
    wire: W,
    left: u64,
    is_dropped: bool,
}

impl<W> DroppedWire<W> {
    fn new(wire: W, max: u64) -> Self {
        Self {
            wire,
            left: max,
            is_dropped: false,
        }
    }
}

impl<W: Wire> Wire for DroppedWire<W> {
    fn poll_receive(&mut self, cx: &mut task::Context<'_>) -> Poll<Received> {
        match self.is_dropped {
            true => Poll::Ready(Received::End),
            false => self.wire.poll_receive(cx),
        }
    }

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        match self.is_dropped {
            true => Poll::Ready(Err(dropped())),
            false => self.wire.poll_ready(cx),
        }
    }

    fn send(&mut self, message: &Message) {
        if matches!(message, Message::Response(_)) {
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => self.is_dropped = true,
            }
        }
        if !self.is_dropped {
            self.wire.send(message);
        }
    }

    fn poll_flush(&mut self, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        // What was sent before is flushed also after the wire was dropped.
        match task::ready!(self.wire.poll_flush(cx)) {
            Ok(()) if self.is_dropped => Poll::Ready(Err(dropped())),
            flushed => Poll::Ready(flushed),
        }
    }

    fn poll_close(&mut self, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }
}

/// Ends both directions of a connection. Clones are the same.
#[derive(Clone)]
struct Cut(watch::Sender<bool>);

impl Cut {
    fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    fn cut(&self) {
        self.0.send_replace(true);
    }
}

/// A byte stream that ends when it is cut, or after some written bytes.
struct CutIo<T> {
    io: Pin<Box<T>>,
    cut: Cut,
    /// Resolves when the connection is cut.
    cutting: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_cut: bool,
    /// How many more bytes may be written.
    left: Option<u64>,
}

impl<T> CutIo<T> {
    fn new(io: Pin<Box<T>>, cut: Cut, max_written: Option<u64>) -> Self {
        let mut changes = cut.0.subscribe();
        // An error means that all senders are gone, one of which is in this struct.
        let cutting = async move { drop(changes.wait_for(|is_cut| *is_cut).await) };
        Self {
            io,
            cut,
            cutting: Box::pin(cutting),
            is_cut: false,
            left: max_written,
        }
    }

    fn poll_cut(&mut self, cx: &mut task::Context<'_>) -> bool {
        self.is_cut = self.is_cut || self.cutting.as_mut().poll(cx).is_ready();
        self.is_cut
    }
}

impl<T: AsyncRead> AsyncRead for CutIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.poll_cut(cx) {
            true => Poll::Ready(Err(dropped())),
            false => self.io.as_mut().poll_read(cx, buffer),
        }
    }
}

impl<T: AsyncWrite> AsyncWrite for CutIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.poll_cut(cx) {
            return Poll::Ready(Err(dropped()));
        }
        let Some(left) = self.left else {
            return self.io.as_mut().poll_write(cx, bytes);
        };
        if left == 0 {
            self.cut.cut();
            return Poll::Ready(Err(dropped()));
        }
        let end = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let written = task::ready!(self.io.as_mut().poll_write(cx, &bytes[..end]))?;
        self.left = Some(left.saturating_sub(u64::try_from(written).unwrap_or(u64::MAX)));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_shutdown(cx)
    }
}

/// The service of one connection, which is cut in place of the answer after `left` more.
#[derive(Clone)]
struct CountedService {
    service: HttpService,
    left: Arc<AtomicU64>,
    cut: Cut,
}

impl<B> Service<http::Request<B>> for CountedService
where
    HttpService: Service<http::Request<B>>,
{
    type Response = <HttpService as Service<http::Request<B>>>::Response;
    type Error = <HttpService as Service<http::Request<B>>>::Error;
    type Future = <HttpService as Service<http::Request<B>>>::Future;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        if request.method() == Method::POST {
            let left = self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
            if left.is_err() {
                // The connection ends before this request is answered.
                self.cut.cut();
            }
        }
        self.service.call(request)
    }
}

fn dropped() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the mock closed the connection",
    )
}
