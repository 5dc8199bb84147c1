//! [`TcpProxy`]: a TCP connection that a test can cut, stall or slow down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::cluster_laws::EngineLink;

/// Passes TCP connections on to a server, for tests of what happens when a network fails.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use bowline::testing::TcpProxy;
///
/// let proxy = TcpProxy::start("127.0.0.1:6379").await?;
/// let url = format!("redis://{}", proxy.address());
/// proxy.cut();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    accepting: JoinHandle<()>,
}

/// What happens to bytes and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Bytes pass after this delay.
    Pass(Duration),
    /// Connections are closed, and new ones too.
    Cut,
    /// Connections stay open, and no bytes pass.
    Stalled,
}

impl TcpProxy {
    /// Listens on a free port of the loopback interface, and passes connections on to `server`.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is left if it is dropped.
    pub async fn start(server: impl Into<String>) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mode = Arc::new(watch::Sender::new(Mode::Pass(Duration::ZERO)));
        let accepting = tokio::spawn(accept(listener, server.into(), mode.clone()));
        Ok(Self {
            address,
            mode,
            accepting,
        })
    }

    /// Returns the address that clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, and every new one.
    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Keeps connections open, and passes no bytes, as a network that loses every packet.
    pub fn stall(&self) {
        self.mode.send_replace(Mode::Stalled);
    }

    /// Passes bytes on after a delay in each direction.
    pub fn slow(&self, delay: Duration) {
        self.mode.send_replace(Mode::Pass(delay));
    }

    /// Passes bytes on at once.
    pub fn restore(&self) {
        self.mode.send_replace(Mode::Pass(Duration::ZERO));
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Cuts by closing connections.
impl EngineLink for TcpProxy {
    fn cut(&self) {
        Self::cut(self);
    }

    fn restore(&self) {
        Self::restore(self);
    }
}

async fn accept(listener: TcpListener, server: String, mode: Arc<watch::Sender<Mode>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (server, mode) = (server.clone(), mode.subscribe());
        connections.spawn(async move {
            // An error ends the connection, as it would without the proxy.
            let _ = pass(client, &server, mode).await;
        });
    }
}

async fn pass(
    client: TcpStream,
    server: &str,
    mut mode: watch::Receiver<Mode>,
) -> std::io::Result<()> {
    if *mode.borrow_and_update() == Mode::Cut {
        return Ok(());
    }
    let server = TcpStream::connect(server).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let up = copy(from_client, to_server, mode.clone());
    let down = copy(from_server, to_client, mode.clone());
    // The value is a lock, which is not held any longer.
    let cut = async { drop(mode.wait_for(|mode| *mode == Mode::Cut).await) };
    // The cut comes first: bytes that are ready must not pass it.
    tokio::select! {
        biased;
        () = cut => Ok(()),
        ended = up => ended,
        ended = down => ended,
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let current = *mode.borrow_and_update();
        if let Mode::Pass(delay) = current
            && !delay.is_zero()
        {
            tokio::time::sleep(delay).await;
        }
        let passes = mode.wait_for(|mode| matches!(mode, Mode::Pass(_)));
        if passes.await.is_err() {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
    }
}
