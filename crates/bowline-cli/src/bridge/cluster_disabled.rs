//! `--cluster` without the feature `cluster`.

use bowline::cluster::Cluster;

use super::BoxError;
use super::cluster_plan::ClusterPlan;

/// Refuses: this program has no drivers of engines.
#[allow(
    clippy::unused_async,
    reason = "the same signature as with the feature `cluster`"
)]
pub(super) async fn connect(plan: &ClusterPlan) -> Result<Cluster, BoxError> {
    let engine = plan.engine;
    let why = format!(
        "--cluster: this program was built without {engine:?}; install it with `cargo install --path crates/bowline-cli --features cluster`"
    );
    Err(why.into())
}
