//! [`Database`]: a pool of connections, and connections of their own for listeners.

use std::time::Duration;

use bowline::cluster::Unavailable;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::Config;

use crate::LIMIT;
use crate::error::{ConnectError, unavailable};
use crate::tls::{self, Tls};

/// A database.
pub(crate) struct Database {
    config: Config,
    tls: Tls,
    pool: Pool,
}

impl Database {
    pub(crate) fn open(url: &str) -> Result<Self, ConnectError> {
        let mut config: Config = url.parse().map_err(ConnectError::InvalidUrl)?;
        config
            .application_name("bowline")
            .connect_timeout(LIMIT)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(2 * LIMIT);
        let tls = tls::connector(&config)?;
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

    /// Returns how to make a connection that is not of the pool.
    pub(crate) fn connector(&self) -> (&Config, &Tls) {
        (&self.config, &self.tls)
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
