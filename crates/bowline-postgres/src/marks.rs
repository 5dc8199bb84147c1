//! [`PostgresMarks`]: marks as rows of a table.

use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::{MarkError, MarkFuture, Marks, Unavailable, check_mark_size};
use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connection::Database;
use crate::error::unavailable;

/// Marks in a table. The server's clock decides when they expire.
pub(crate) struct PostgresMarks {
    database: Arc<Database>,
}

impl PostgresMarks {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }

    /// Runs a statement, and returns its row.
    async fn run(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, MarkError> {
        let row = self.database.with(async |connection| {
            let statement = connection.prepare_cached(sql).await.map_err(unavailable)?;
            let row = connection.query_opt(&statement, values).await;
            row.map_err(|error| Unavailable::new("Postgres", error))
        });
        row.await.map_err(|error: Unavailable| mark_error(error))
    }

    async fn is_done(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<bool, MarkError> {
        Ok(self.run(sql, values).await?.is_some())
    }

    async fn value(&self, key: &[u8]) -> Result<Option<Bytes>, MarkError> {
        let Some(row) = self.run(READ, &[&key]).await? else {
            return Ok(None);
        };
        let value: Vec<u8> = row.try_get(0).map_err(unavailable)?;
        Ok(Some(value.into()))
    }
}

impl Marks for PostgresMarks {
    fn set_if_absent<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            check_mark_size(key, value)?;
            let values: [&(dyn ToSql + Sync); 3] = [&key, &value, &seconds(lifetime)];
            // Each turn needs a mark that expires between the two statements.
            loop {
                if self.is_done(SET_IF_ABSENT, &values).await? {
                    return Ok(None);
                }
                if let Some(before) = self.value(key).await? {
                    return Ok(Some(before));
                }
            }
        })
    }

    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8], lifetime: Duration) -> MarkFuture<'a, ()> {
        Box::pin(async move {
            check_mark_size(key, value)?;
            let values: [&(dyn ToSql + Sync); 3] = [&key, &value, &seconds(lifetime)];
            self.run(SET, &values).await.map(drop)
        })
    }

    fn replace<'a>(
        &'a self,
        key: &'a [u8],
        expected: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            check_mark_size(key, value)?;
            let values: [&(dyn ToSql + Sync); 4] = [&key, &expected, &value, &seconds(lifetime)];
            self.is_done(REPLACE, &values).await
        })
    }

    fn read<'a>(&'a self, key: &'a [u8]) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            check_mark_size(key, b"")?;
            self.value(key).await
        })
    }

    fn remove<'a>(&'a self, key: &'a [u8], expected: &'a [u8]) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            check_mark_size(key, expected)?;
            self.is_done(REMOVE, &[&key, &expected]).await
        })
    }
}

fn mark_error(error: Unavailable) -> MarkError {
    let database = error.source.downcast_ref::<tokio_postgres::Error>();
    let code = database.and_then(|error| error.code());
    match code {
        Some(&tokio_postgres::error::SqlState::DISK_FULL) => MarkError::Full,
        _ => error.into(),
    }
}

/// Returns a lifetime in seconds, at most 100 years.
fn seconds(lifetime: Duration) -> f64 {
    lifetime
        .as_secs_f64()
        .min(100.0 * 365.0 * 24.0 * 60.0 * 60.0)
}

const SET_IF_ABSENT: &str = "
    INSERT INTO bowline.marks AS m (key, value, expires_at)
    VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
        WHERE m.expires_at <= clock_timestamp()
    RETURNING 1";

const SET: &str = "
    INSERT INTO bowline.marks (key, value, expires_at)
    VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
    RETURNING 1";

const REPLACE: &str = "
    UPDATE bowline.marks SET value = $3, expires_at = clock_timestamp() + make_interval(secs => $4)
    WHERE key = $1 AND value = $2 AND expires_at > clock_timestamp()
    RETURNING 1";

const READ: &str = "
    SELECT value FROM bowline.marks WHERE key = $1 AND expires_at > clock_timestamp()";

const REMOVE: &str = "
    DELETE FROM bowline.marks WHERE key = $1 AND value = $2 AND expires_at > clock_timestamp()
    RETURNING 1";
