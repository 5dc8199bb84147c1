//! [`Fleet`]: replicas behind a proxy, with a TCP proxy between them and the engine.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::testing::TcpProxy;
use cluster_tests::{RoundRobinProxy, Stickiness};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::options::Options;
use crate::replica_process::ReplicaProcess;

/// Three replicas, or as many as are asked for.
pub(crate) struct Fleet {
    options: Options,
    engine_url: String,
    /// Between the replicas and the engine.
    pub(crate) engine_link: TcpProxy,
    replicas: Vec<ReplicaProcess>,
    front: Arc<Mutex<Front>>,
    probing: JoinHandle<()>,
}

/// The proxy, which can be restarted, and the replicas that it may use.
struct Front {
    proxy: Option<RoundRobinProxy>,
    address: SocketAddr,
    candidates: Vec<SocketAddr>,
    /// The counts of proxies that were restarted.
    unknown_sessions: u64,
    opened_sessions: u64,
}

impl Fleet {
    pub(crate) async fn start(options: &Options, count: usize) -> Result<Self, Box<dyn Error>> {
        // The shared counters of an earlier fleet would be those of this one.
        let _ = tokio::fs::remove_dir_all(&options.state).await;
        tokio::fs::create_dir_all(&options.state).await?;
        let (scheme, rest) = options.engine_url.split_once("://").ok_or("not a URL")?;
        let (before, host) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (host, path) = host
            .split_once('/')
            .map_or((host, ""), |(host, path)| (host, path));
        let engine_link = TcpProxy::start(host).await?;
        let at = if before.is_empty() { "" } else { "@" };
        let address = engine_link.address();
        let engine_url = format!("{scheme}://{before}{at}{address}/{path}");
        let mut replicas = Vec::new();
        for _ in 0..count {
            let engine = Some(engine_url.as_str());
            replicas.push(ReplicaProcess::start(&options.replica, engine, &options.state).await?);
        }
        let addresses: Vec<_> = replicas.iter().map(ReplicaProcess::address).collect();
        let proxy = RoundRobinProxy::start(Stickiness::Never, addresses.clone()).await?;
        let front = Arc::new(Mutex::new(Front {
            address: proxy.address(),
            proxy: Some(proxy),
            candidates: addresses,
            unknown_sessions: 0,
            opened_sessions: 0,
        }));
        let probing = tokio::spawn(probe(front.clone()));
        Ok(Self {
            options: options.clone(),
            engine_url,
            engine_link,
            replicas,
            front,
            probing,
        })
    }

    /// Returns the URL for clients.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", lock(&self.front).address)
    }

    /// Leaves the replicas alone, whose processor time is measured.
    pub(crate) fn stop_probing(&self) {
        self.probing.abort();
    }

    pub(crate) fn replicas(&self) -> &[ReplicaProcess] {
        &self.replicas
    }

    /// Returns how many sessions were opened, and how often one was not found.
    pub(crate) fn sessions(&self) -> (u64, u64) {
        let front = lock(&self.front);
        let proxy = front.proxy.as_ref();
        let opened = proxy.map_or(0, RoundRobinProxy::opened_sessions);
        let unknown = proxy.map_or(0, RoundRobinProxy::unknown_sessions);
        (
            front.opened_sessions + opened,
            front.unknown_sessions + unknown,
        )
    }

    /// Kills a replica, and starts another in its place.
    pub(crate) async fn crash(&mut self, nth: usize) -> Result<(), Box<dyn Error>> {
        self.replicas.remove(nth).kill().await?;
        self.start_replica().await
    }

    /// Replaces a replica as a rolling deploy does: a new one starts, then the old one drains and exits.
    pub(crate) async fn redeploy(&mut self) -> Result<(), Box<dyn Error>> {
        self.start_replica().await?;
        let old = self.replicas.remove(0);
        old.terminate()?;
        let status = old.exited().await?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("a drained replica exited with {status}").into()),
        }
    }

    async fn start_replica(&mut self) -> Result<(), Box<dyn Error>> {
        let engine = Some(self.engine_url.as_str());
        let (program, state) = (&self.options.replica, &self.options.state);
        let started = ReplicaProcess::start(program, engine, state).await?;
        self.replicas.push(started);
        let addresses = self.replicas.iter().map(ReplicaProcess::address).collect();
        lock(&self.front).candidates = addresses;
        Ok(())
    }

    /// Ends the proxy with all of its connections, and starts another at the same address.
    pub(crate) async fn restart_proxy(&self) -> Result<(), Box<dyn Error>> {
        let (address, candidates) = {
            let mut front = lock(&self.front);
            let proxy = front.proxy.take();
            if let Some(proxy) = &proxy {
                front.opened_sessions += proxy.opened_sessions();
                front.unknown_sessions += proxy.unknown_sessions();
            }
            (front.address, front.candidates.clone())
        };
        // The address is free once the task of the listener has ended.
        for _ in 0..ATTEMPTS {
            let again =
                RoundRobinProxy::start_at(address, Stickiness::Never, candidates.clone()).await;
            if let Ok(proxy) = again {
                lock(&self.front).proxy = Some(proxy);
                return Ok(());
            }
            tokio::time::sleep(PROBE_EVERY).await;
        }
        Err("failed to bind the proxy again".into())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.probing.abort();
    }
}

fn lock(front: &Mutex<Front>) -> MutexGuard<'_, Front> {
    front.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends requests only to replicas that are ready, as a load balancer with probes does.
async fn probe(front: Arc<Mutex<Front>>) {
    let mut ticks = tokio::time::interval(PROBE_EVERY);
    loop {
        ticks.tick().await;
        let candidates = lock(&front).candidates.clone();
        let mut ready = Vec::new();
        for replica in &candidates {
            if matches!(timeout(PROBE_LIMIT, is_ready(*replica)).await, Ok(Ok(true))) {
                ready.push(*replica);
            }
        }
        let front = lock(&front);
        // A replica that was added meanwhile is probed next time.
        if let (Some(proxy), false) = (&front.proxy, ready.is_empty()) {
            proxy.set_replicas(ready);
        }
    }
}

async fn is_ready(replica: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(replica).await?;
    let request = "GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(&status == b"HTTP/1.1 200")
}

const PROBE_EVERY: Duration = Duration::from_millis(100);
const PROBE_LIMIT: Duration = Duration::from_millis(500);
const ATTEMPTS: usize = 50;
