//! Replicas on the NATS of `cargo xtask cluster`, each behind a proxy of its own.

use std::sync::Arc;

use bowline::exchange::BoxFuture;
use bowline::testing::TcpProxy;
use bowline::testing::cluster_laws::{ClusterFixture, EngineReplica};
use bowline_nats::Nats;

pub(crate) struct NatsFixture;

impl ClusterFixture for NatsFixture {
    fn replicas(&self, count: usize) -> BoxFuture<'_, Vec<EngineReplica>> {
        Box::pin(async move {
            let mut replicas = Vec::new();
            for _ in 0..count {
                let (nats, proxy) = connect().await;
                replicas.push(EngineReplica {
                    messages: Arc::new(nats.messages()),
                    marks: Arc::new(nats.marks()),
                    link: proxy,
                });
            }
            replicas
        })
    }
}

/// Connects through a new proxy.
pub(crate) async fn connect() -> (Nats, Arc<TcpProxy>) {
    let url = std::env::var("BOWLINE_NATS_URL").expect("run by `cargo xtask cluster`");
    let address = url.strip_prefix("nats://").expect("a plain URL");
    let proxy = Arc::new(TcpProxy::start(address).await.unwrap());
    let url = format!("nats://{}", proxy.address());
    (Nats::connect(&url, [7; 32]).await.unwrap(), proxy)
}
