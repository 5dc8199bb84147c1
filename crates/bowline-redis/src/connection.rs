//! [`Connection`]: the connection for commands, which is made again after a failure.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline::cluster::Unavailable;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, RedisError};

use crate::LIMIT;
use crate::error::{ConnectError, unavailable};
use crate::tls;

/// A connection that all commands share.
pub(crate) struct Connection {
    client: Client,
    current: Mutex<Option<MultiplexedConnection>>,
    /// One attempt to connect at a time.
    connecting: tokio::sync::Mutex<()>,
}

impl Connection {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        }
    }

    /// Sends a command. It is not repeated: it may have been performed although it failed.
    pub(crate) async fn run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, CommandError> {
        let running = async {
            let mut connection = self.get().await?;
            command.query_async(&mut connection).await
        };
        let outcome = tokio::time::timeout(LIMIT, running).await;
        let outcome = outcome.unwrap_or_else(|_| Err(timed_out()));
        outcome.map_err(|error| {
            if error.is_unrecoverable_error() || error.is_timeout() {
                self.discard();
            }
            CommandError(error)
        })
    }

    /// Checks that the server answers, and warns if it may lose marks.
    pub(crate) async fn check(&self) -> Result<(), ConnectError> {
        let ping = self.run::<String>(&redis::cmd("PING")).await;
        ping.map_err(|error| self.explain(error.0))?;
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("maxmemory-policy");
        // Providers of Redis often forbid this command.
        let policy = self.run::<Vec<String>>(&command).await.ok();
        let policy = policy.and_then(|pair| pair.into_iter().nth(1));
        if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
            tracing::warn!(
                policy,
                "Redis may evict marks before they expire; set `maxmemory-policy` to `noeviction`"
            );
        }
        Ok(())
    }

    /// Adds what to do to the error of a first connection.
    fn explain(&self, error: RedisError) -> ConnectError {
        let address = self.client.get_connection_info().addr();
        let is_plain = !matches!(address, ConnectionAddr::TcpTls { .. });
        let was_closed = error.is_connection_dropped() && !error.is_connection_refusal();
        let error = unavailable(error);
        if tls::is_untrusted(&error) {
            ConnectError::UntrustedCertificate(error)
        } else if is_plain && was_closed {
            ConnectError::ClosedWithoutTls(error)
        } else {
            ConnectError::Unavailable(error)
        }
    }

    /// Makes a connection for subscriptions.
    pub(crate) async fn subscriber(&self) -> Result<PubSub, Unavailable> {
        let connecting = tokio::time::timeout(LIMIT, self.client.get_async_pubsub()).await;
        let connected = connecting.unwrap_or_else(|_| Err(timed_out()));
        connected.map_err(unavailable)
    }

    /// Discards the connection, so that the next command makes a new one.
    pub(crate) fn discard(&self) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn get(&self) -> Result<MultiplexedConnection, RedisError> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let _turn = self.connecting.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(RESPONSE_LIMIT));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(connection.clone());
        Ok(connection)
    }

    fn current(&self) -> Option<MultiplexedConnection> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }
}

/// The error of a command.
#[derive(Debug)]
pub(crate) struct CommandError(RedisError);

impl CommandError {
    /// Returns whether the server refused to store more.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.0.code() == Some("OOM")
    }

    pub(crate) fn into_unavailable(self) -> Unavailable {
        unavailable(self.0)
    }
}

fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Less than [`LIMIT`], so that a connection that lost its peer is found out.
const RESPONSE_LIMIT: Duration = Duration::from_secs(4);
