//! Creates and changes the tables, once, whichever replica is first.

use bowline::cluster::Unavailable;
use tokio_postgres::Transaction;

use crate::connection::Database;
use crate::error::{ConnectError, unavailable};

/// Brings the tables to the version of this crate. Replicas that start at the same time wait for each other.
pub(crate) async fn run(database: &Database) -> Result<(), ConnectError> {
    database
        .with(async |connection| {
            let transaction = connection.transaction().await.map_err(failed)?;
            migrate(&transaction).await?;
            transaction.commit().await.map_err(failed)
        })
        .await
}

async fn migrate(transaction: &Transaction<'_>) -> Result<(), ConnectError> {
    // Held until the transaction ends.
    let lock = format!("SELECT pg_advisory_xact_lock({LOCK})");
    transaction.batch_execute(&lock).await.map_err(failed)?;
    transaction
        .batch_execute(VERSION_TABLE)
        .await
        .map_err(failed)?;
    let found = "SELECT coalesce(max(version), 0) FROM bowline.schema_version";
    let found = transaction.query_one(found, &[]).await.map_err(failed)?;
    let found: i32 = found.try_get(0).map_err(failed)?;
    let supported = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    if found > supported {
        return Err(ConnectError::NewerSchema { found, supported });
    }
    let done = usize::try_from(found).unwrap_or_default();
    for (version, migration) in (1_i32..).zip(MIGRATIONS).skip(done) {
        transaction.batch_execute(migration).await.map_err(failed)?;
        let record = "INSERT INTO bowline.schema_version (version) VALUES ($1)";
        transaction
            .execute(record, &[&version])
            .await
            .map_err(failed)?;
    }
    Ok(())
}

fn failed(error: tokio_postgres::Error) -> ConnectError {
    ConnectError::Unavailable(unavailable(error))
}

impl From<Unavailable> for ConnectError {
    fn from(error: Unavailable) -> Self {
        Self::Unavailable(error)
    }
}

const VERSION_TABLE: &str = "
    CREATE SCHEMA IF NOT EXISTS bowline;
    CREATE TABLE IF NOT EXISTS bowline.schema_version (version integer PRIMARY KEY)";

/// Each is run once, in this order. A released one never changes.
const MIGRATIONS: [&str; 2] = [
    include_str!("migrations/1_cluster.sql"),
    include_str!("migrations/2_tasks.sql"),
];

/// An arbitrary number that no other application should use.
const LOCK: i64 = 0x626f_776c_696e_6501;
