//! A TCP load balancer that probes its servers, as the one of Kubernetes does: a new connection goes to a server that is
//! ready, and connections that exist stay where they are.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A load balancer. Dropping it closes all connections.
pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    servers: Arc<Servers>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Servers {
    all: Mutex<Vec<Arc<ProbedServer>>>,
    next: AtomicUsize,
}

pub(crate) struct ProbedServer {
    addr: SocketAddr,
    is_ready: AtomicBool,
    /// Connections that were passed to it.
    pub(crate) connections: AtomicUsize,
}

impl Proxy {
    /// Probes each server after each `interval`.
    pub(crate) async fn start(interval: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let servers = Arc::new(Servers::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(probe_all(servers.clone(), interval));
        tasks.spawn(accept_all(listener, servers.clone()));
        Self {
            addr,
            servers,
            _tasks: tasks,
        }
    }

    /// Adds a server, and waits until it is ready.
    pub(crate) async fn add(&self, addr: SocketAddr) -> Arc<ProbedServer> {
        let server = Arc::new(ProbedServer {
            addr,
            is_ready: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        self.servers.all.lock().unwrap().push(server.clone());
        while !server.is_ready.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        server
    }

    pub(crate) fn remove(&self, server: &Arc<ProbedServer>) {
        let mut all = self.servers.all.lock().unwrap();
        all.retain(|other| !Arc::ptr_eq(other, server));
    }
}

impl Servers {
    fn all(&self) -> Vec<Arc<ProbedServer>> {
        self.all.lock().unwrap().clone()
    }

    /// Connects to the next server that is ready and accepts the connection.
    async fn connect(&self) -> Option<TcpStream> {
        let mut ready = self.all();
        ready.retain(|server| server.is_ready.load(Ordering::SeqCst));
        let first = self.next.fetch_add(1, Ordering::SeqCst);
        for offset in 0..ready.len() {
            let server = &ready[(first + offset) % ready.len()];
            if let Ok(stream) = TcpStream::connect(server.addr).await {
                server.connections.fetch_add(1, Ordering::SeqCst);
                return Some(stream);
            }
        }
        None
    }
}

async fn probe_all(servers: Arc<Servers>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        for server in servers.all() {
            let is_ready = probe(server.addr).await;
            server.is_ready.store(is_ready, Ordering::SeqCst);
        }
    }
}

async fn probe(addr: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(addr).await else {
        return false;
    };
    let request = "GET /readyz HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n";
    let mut response = Vec::new();
    let sent = stream.write_all(request.as_bytes()).await;
    sent.is_ok()
        && stream.read_to_end(&mut response).await.is_ok()
        && response.starts_with(b"HTTP/1.1 200")
}

async fn accept_all(listener: TcpListener, servers: Arc<Servers>) {
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let servers = servers.clone();
        connections.spawn(async move {
            if let Some(mut server) = servers.connect().await {
                let _ = client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
