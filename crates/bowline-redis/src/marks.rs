//! [`RedisMarks`]: marks as keys of Redis, with scripts where a value is compared.

use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::{MarkError, MarkFuture, Marks, check_mark_size};
use bytes::Bytes;
use redis::Cmd;

use crate::connection::{CommandError, Connection};

/// Marks in Redis. The server's clock decides when they expire.
pub(crate) struct RedisMarks {
    connection: Arc<Connection>,
    prefix: String,
}

impl RedisMarks {
    pub(crate) fn new(connection: Arc<Connection>, prefix: &str) -> Self {
        Self {
            connection,
            prefix: format!("{prefix}:mark:"),
        }
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), key].concat()
    }

    /// Returns a command that runs a script on a key.
    fn script(&self, script: &str, key: &[u8]) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(self.key(key));
        command
    }

    async fn is_done(&self, command: &Cmd) -> Result<bool, MarkError> {
        let done: i64 = self.connection.run(command).await.map_err(mark_error)?;
        Ok(done == 1)
    }
}

impl Marks for RedisMarks {
    fn set_if_absent<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            check_mark_size(key, value)?;
            let mut command = self.script(SET_IF_ABSENT, key);
            command.arg(value).arg(millis(lifetime));
            let before: Option<Vec<u8>> =
                self.connection.run(&command).await.map_err(mark_error)?;
            Ok(before.map(Bytes::from))
        })
    }

    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8], lifetime: Duration) -> MarkFuture<'a, ()> {
        Box::pin(async move {
            check_mark_size(key, value)?;
            let mut command = redis::cmd("SET");
            command.arg(self.key(key)).arg(value);
            command.arg("PX").arg(millis(lifetime));
            self.connection.run(&command).await.map_err(mark_error)
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
            let mut command = self.script(REPLACE, key);
            command.arg(expected).arg(value).arg(millis(lifetime));
            self.is_done(&command).await
        })
    }

    fn renew<'a>(
        &'a self,
        key: &'a [u8],
        expected: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            check_mark_size(key, expected)?;
            let mut command = self.script(RENEW, key);
            command.arg(expected).arg(millis(lifetime));
            self.is_done(&command).await
        })
    }

    fn read<'a>(&'a self, key: &'a [u8]) -> MarkFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            check_mark_size(key, b"")?;
            let mut command = redis::cmd("GET");
            command.arg(self.key(key));
            let value: Option<Vec<u8>> = self.connection.run(&command).await.map_err(mark_error)?;
            Ok(value.map(Bytes::from))
        })
    }

    fn remove<'a>(&'a self, key: &'a [u8], expected: &'a [u8]) -> MarkFuture<'a, bool> {
        Box::pin(async move {
            check_mark_size(key, expected)?;
            let mut command = self.script(REMOVE, key);
            command.arg(expected);
            self.is_done(&command).await
        })
    }
}

fn mark_error(error: CommandError) -> MarkError {
    if error.is_out_of_memory() {
        MarkError::Full
    } else {
        error.into_unavailable().into()
    }
}

/// Returns a lifetime that Redis accepts: at least a millisecond, at most 100 years.
fn millis(lifetime: Duration) -> u64 {
    let millis = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    millis.clamp(1, 100 * 365 * 24 * 60 * 60 * 1000)
}

/// `SET` with `NX` and `GET` together exists from Redis 7 on.
const SET_IF_ABSENT: &str = "\
local value = redis.call('GET', KEYS[1])
if not value then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return value";

const REPLACE: &str = "\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1";

const RENEW: &str = "\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1";

const REMOVE: &str = "\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return 1";
