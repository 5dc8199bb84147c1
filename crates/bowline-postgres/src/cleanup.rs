//! Removes messages that were read and marks that have expired.

use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::Unavailable;

use crate::connection::Database;
use crate::error::unavailable;

/// Removes old rows again and again. Every replica does; a row that another one is removing is skipped.
pub(crate) async fn run(database: Arc<Database>) {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        let removed = database.with(async |connection| {
            let removed = connection.batch_execute(REMOVE).await;
            removed.map_err(unavailable)
        });
        let removed: Result<(), Unavailable> = removed.await;
        if let Err(error) = removed {
            tracing::debug!(%error, "failed to remove expired messages and marks");
        }
    }
}

const EVERY: Duration = Duration::from_secs(30);

/// A few thousand at a time, so that it never takes long.
const REMOVE: &str = "
    DELETE FROM bowline.messages WHERE id IN (
        SELECT id FROM bowline.messages WHERE created_at < clock_timestamp() - interval '1 minute'
        LIMIT 5000 FOR UPDATE SKIP LOCKED);
    DELETE FROM bowline.marks WHERE key IN (
        SELECT key FROM bowline.marks WHERE expires_at <= clock_timestamp()
        LIMIT 5000 FOR UPDATE SKIP LOCKED)";
