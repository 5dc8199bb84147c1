//! Replicas on the Redis of `cargo xtask cluster`, each behind a proxy of its own.

use std::sync::Arc;

use bowline::exchange::BoxFuture;
use bowline::testing::TcpProxy;
use bowline::testing::cluster_laws::{ClusterFixture, EngineReplica};
use bowline_redis::Redis;

pub(crate) struct RedisFixture;

impl ClusterFixture for RedisFixture {
    fn replicas(&self, count: usize) -> BoxFuture<'_, Vec<EngineReplica>> {
        Box::pin(async move {
            let mut replicas = Vec::new();
            for _ in 0..count {
                let (redis, proxy) = connect().await;
                replicas.push(EngineReplica {
                    messages: Arc::new(redis.messages()),
                    marks: Arc::new(redis.marks()),
                    link: proxy,
                });
            }
            replicas
        })
    }
}

/// Connects through a new proxy.
pub(crate) async fn connect() -> (Redis, Arc<TcpProxy>) {
    let url = std::env::var("BOWLINE_REDIS_URL").expect("run by `cargo xtask cluster`");
    let address = url.strip_prefix("redis://").expect("a plain URL");
    let proxy = Arc::new(TcpProxy::start(address).await.unwrap());
    let url = format!("redis://{}", proxy.address());
    (Redis::connect(&url, [7; 32]).await.unwrap(), proxy)
}
