//! [`Database`]: a pool of connections, and connections of their own for listeners.

use std::error::Error as StdError;
use std::time::Duration;

use bowline::cluster::Unavailable;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;

use crate::error::{ConnectError, unavailable};
use crate::tls::{self, Tls};
use crate::{ConnectOptions, LIMIT};

/// A database.
pub(crate) struct Database {
    config: Config,
    tls: Tls,
    pool: Pool,
}

impl Database {
    pub(crate) fn open(url: &str, options: &ConnectOptions) -> Result<Self, ConnectError> {
        let mut config: Config = url.parse().map_err(ConnectError::InvalidUrl)?;
        config
            .application_name("bowline")
            .connect_timeout(LIMIT)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(2 * LIMIT);
        let tls = tls::connector(&mut config, &options.tls)?;
        let manager = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(config.clone(), tls.clone(), manager);
        let pool = Pool::builder(manager)
            .max_size(MAX_CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(LIMIT),
                create: Some(LIMIT),
                recycle: Some(LIMIT),
            })
            .build();
        // Fails only without a runtime.
        let pool = pool.map_err(|error| ConnectError::Unavailable(unavailable(error)))?;
        Ok(Self { config, tls, pool })
    }

    /// Performs an operation with a connection of the pool. The connection is closed if the operation does not end in
    /// time, or is dropped.
    pub(crate) async fn with<T, E>(
        &self,
        operation: impl AsyncFnOnce(&mut Object) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<Unavailable>,
    {
        let performed = tokio::time::timeout(LIMIT, async {
            let connection = self.pool.get().await.map_err(unavailable)?;
            let mut connection = CloseOnDrop(Some(connection));
            let outcome = match &mut connection.0 {
                Some(open) => operation(open).await,
                None => return Err(unavailable("the connection was closed").into()),
            };
            // The operation has ended, so that the connection is not in the middle of anything.
            drop(connection.0.take());
            outcome
        });
        let performed = performed.await;
        performed.unwrap_or_else(|_| Err(Unavailable::timed_out("Postgres", LIMIT).into()))
    }

    /// Adds what to do to the error of a first connection.
    pub(crate) fn explain(&self, error: ConnectError) -> ConnectError {
        let ConnectError::Unavailable(unavailable) = error else {
            return error;
        };
        if tls::is_untrusted(&unavailable) {
            return ConnectError::UntrustedCertificate(unavailable);
        }
        // The message, which says that it lacks encryption, is in the language of the server.
        let is_plain = self.config.get_ssl_mode() != SslMode::Require;
        match is_plain
            && sql_state(&unavailable) == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
        {
            true => ConnectError::RefusedWithoutTls(unavailable),
            false => ConnectError::Unavailable(unavailable),
        }
    }

    /// Returns how to make a connection that is not of the pool.
    pub(crate) fn connector(&self) -> (&Config, &Tls) {
        (&self.config, &self.tls)
    }
}

fn sql_state<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a SqlState> {
    match error.downcast_ref::<tokio_postgres::Error>() {
        Some(error) => error.code(),
        None => sql_state(error.source()?),
    }
}

/// Closes a connection in the middle of an operation, whose transaction the server then rolls back. The pool would give
/// it to another operation.
struct CloseOnDrop(Option<Object>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(Object::take(connection));
        }
    }
}

/// Short operations: a few connections serve many callers.
const MAX_CONNECTIONS: usize = 8;
/// A broken connection is found out within about 11 seconds.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
