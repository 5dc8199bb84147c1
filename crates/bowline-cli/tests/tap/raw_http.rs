//! HTTP by hand, to see what passes the proxy and when.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// One end of a connection.
pub(crate) struct RawConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl RawConnection {
    pub(crate) async fn connect(url: &str) -> Self {
        let address = url
            .strip_prefix("http://")
            .unwrap()
            .split('/')
            .next()
            .unwrap();
        Self::new(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            received: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Posts a message.
    pub(crate) async fn post(&mut self, url: &str, headers: &str, body: &str) {
        let host = url
            .strip_prefix("http://")
            .unwrap()
            .split('/')
            .next()
            .unwrap();
        let length = body.len();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        self.send(&request).await;
    }

    /// Reads until this text has come, and returns everything up to it.
    pub(crate) async fn read_until(&mut self, text: &str) -> String {
        loop {
            let received = String::from_utf8_lossy(&self.received).into_owned();
            if let Some(at) = received.find(text) {
                self.received.drain(..at + text.len());
                return received[..at + text.len()].to_owned();
            }
            assert!(
                self.read_some().await,
                "the connection ended after {received:?}"
            );
        }
    }

    /// Waits for the end of the connection, and returns what came before it.
    pub(crate) async fn read_to_end(&mut self) -> String {
        while self.read_some().await {}
        String::from_utf8_lossy(&self.received).into_owned()
    }

    async fn read_some(&mut self) -> bool {
        let mut chunk = [0; 4096];
        // A reset is an end, too.
        let count = self.stream.read(&mut chunk).await.unwrap_or(0);
        self.received.extend_from_slice(&chunk[..count]);
        count > 0
    }
}

/// A server that the test plays.
pub(crate) struct RawServer {
    listener: TcpListener,
    pub(crate) url: String,
}

impl RawServer {
    pub(crate) async fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        Self { listener, url }
    }

    pub(crate) async fn accept(&self) -> RawConnection {
        RawConnection::new(self.listener.accept().await.unwrap().0)
    }
}
