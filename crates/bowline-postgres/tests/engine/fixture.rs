//! Replicas on the Postgres of `cargo xtask cluster`, each behind a proxy of its own.

use std::sync::Arc;

use bowline::exchange::BoxFuture;
use bowline::testing::TcpProxy;
use bowline::testing::cluster_laws::{ClusterFixture, EngineReplica};
use bowline_postgres::Postgres;

pub(crate) struct PostgresFixture;

impl ClusterFixture for PostgresFixture {
    fn replicas(&self, count: usize) -> BoxFuture<'_, Vec<EngineReplica>> {
        Box::pin(async move {
            let mut replicas = Vec::new();
            for _ in 0..count {
                let (postgres, proxy) = connect().await;
                replicas.push(EngineReplica {
                    messages: Arc::new(postgres.messages()),
                    marks: Arc::new(postgres.marks()),
                    link: proxy,
                });
            }
            replicas
        })
    }
}

/// Creates a database, and returns its URL. Each law of task stores needs one: a limit is that of a whole store.
pub(crate) async fn new_database() -> String {
    let url = std::env::var("BOWLINE_POSTGRES_URL").expect("run by `cargo xtask cluster`");
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    let random = bowline_tasks::TaskId::random().unwrap();
    let name: String = random
        .as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let create = format!("CREATE DATABASE law_{name}");
    client.batch_execute(&create).await.unwrap();
    drop(client);
    driver.await.unwrap().unwrap();
    let (server, _) = url.rsplit_once('/').expect("a URL with a database");
    format!("{server}/law_{name}?sslmode=disable")
}

/// Connects through a new proxy.
pub(crate) async fn connect() -> (Postgres, Arc<TcpProxy>) {
    let url = std::env::var("BOWLINE_POSTGRES_URL").expect("run by `cargo xtask cluster`");
    let (start, rest) = url.split_once('@').expect("a URL with a user");
    let (address, database) = rest.split_once('/').expect("a URL with a database");
    let proxy = Arc::new(TcpProxy::start(address).await.unwrap());
    let url = format!("{start}@{}/{database}?sslmode=disable", proxy.address());
    (Postgres::connect(&url, [7; 32]).await.unwrap(), proxy)
}
