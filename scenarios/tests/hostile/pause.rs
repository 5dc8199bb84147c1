//! Time that passes in an attack, or between two looks at another process.

use std::time::Duration;

/// Lets this much time pass. An attacker that is slow or silent has no other event to wait for, and neither has a runner that
/// watches the memory of another process.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
