//! Sleeping in an attack, and between two measurements of another process.

use std::time::Duration;

/// Sleeps. A slow attacker has no event to wait for, and neither has a runner that polls the memory of another process.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
