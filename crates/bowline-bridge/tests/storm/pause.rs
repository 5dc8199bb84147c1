//! Pauses of servers and clients in real time.

use std::time::Duration;

/// Waits, because another process cannot signal an event.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
