//! [`listen`]: a TCP listener with room for a burst of clients.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, ToSocketAddrs};

/// Listens as [`TcpListener::bind`] does, with a longer queue. That one has room for 128 connections that are not yet
/// accepted; the kernel drops the attempts of further clients, which repeat them after a second.
pub(super) async fn listen(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let mut failed = None;
    for address in tokio::net::lookup_host(address).await? {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some(error),
        }
    }
    let unresolved = || io::Error::new(io::ErrorKind::InvalidInput, "found no address");
    Err(failed.unwrap_or_else(unresolved))
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // So that a restarted server need not wait until old connections have timed out. On Windows it would let another
    // program take the address.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The kernel may allow less.
const BACKLOG: u32 = 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    /// The maximum that the kernel allows. Where it is 128 or unknown, the test shows nothing new.
    fn max_backlog() -> usize {
        let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        text.ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(128)
    }

    #[tokio::test]
    async fn hundreds_of_clients_connect_before_one_is_accepted() {
        let listener = listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();

        let mut clients = Vec::new();
        for _ in 0..max_backlog().min(400) {
            let connecting = timeout(Duration::from_secs(30), TcpStream::connect(address));
            clients.push(connecting.await.expect("the queue has room").unwrap());
        }
    }

    #[tokio::test]
    async fn an_address_in_use_is_an_error() {
        let listener = listen("127.0.0.1:0").await.unwrap();

        let error = listen(listener.local_addr().unwrap()).await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn a_name_is_resolved() {
        let listener = listen("localhost:0").await.unwrap();

        assert!(listener.local_addr().unwrap().ip().is_loopback());
    }
}
