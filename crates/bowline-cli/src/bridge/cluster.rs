//! Connects to the engine of `--cluster`.

use bowline::cluster::Cluster;
use bowline_nats::Nats;
use bowline_postgres::Postgres;
use bowline_redis::Redis;

use super::BoxError;
use super::cluster_plan::{ClusterPlan, EngineKind};

/// Connects to the engine.
pub(super) async fn connect(plan: &ClusterPlan) -> Result<Cluster, BoxError> {
    let (url, keys) = (plan.url.as_str(), plan.keys());
    Ok(match plan.engine {
        EngineKind::Postgres => Postgres::connect(url, keys).await?.into(),
        EngineKind::Redis => Redis::connect(url, keys).await?.into(),
        EngineKind::Nats => Nats::connect(url, keys).await?.into(),
    })
}
