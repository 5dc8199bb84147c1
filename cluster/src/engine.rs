//! [`Engine`]: connects to Postgres, Redis or NATS by its URL.

use std::error::Error;

use bowline::cluster::Cluster;
use bowline_nats::Nats;
use bowline_postgres::{Postgres, PostgresTaskStore};
use bowline_redis::Redis;

/// An engine that replicas share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Engine {
    /// Messages, marks and tasks.
    Postgres,
    /// Messages and marks.
    Redis,
    /// Messages and marks.
    Nats,
}

/// The connection of one replica.
#[derive(Debug)]
#[non_exhaustive]
pub struct EngineConnection {
    /// Passed to [`Server::cluster`](bowline::Server::cluster).
    pub cluster: Cluster,
    /// The store of tasks, if the engine has one.
    pub tasks: Option<PostgresTaskStore>,
}

impl Engine {
    /// Returns the engine of a URL, such as `redis://127.0.0.1:6379`.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        let (scheme, _) = url.split_once("://")?;
        match scheme {
            "postgres" => Some(Self::Postgres),
            "redis" => Some(Self::Redis),
            "nats" => Some(Self::Nats),
            _ => None,
        }
    }

    /// Returns its name, which is also the scheme of its URLs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Nats => "nats",
        }
    }

    /// Returns whether it stores tasks. Redis and NATS do not: see `docs/replicas.md`.
    #[must_use]
    pub fn has_tasks(self) -> bool {
        self == Self::Postgres
    }

    /// Connects a replica. Replicas with different keys ignore each other, so that tests can share an engine.
    ///
    /// # Errors
    ///
    /// If the URL is of no engine, or the engine cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(url: &str, key: [u8; 32]) -> Result<EngineConnection, Box<dyn Error>> {
        let engine = Self::of_url(url).ok_or_else(|| format!("`{url}` is of no engine"))?;
        let (cluster, tasks) = match engine {
            Self::Postgres => {
                let postgres = Postgres::connect(url, key).await?;
                let tasks = postgres.tasks();
                (postgres.into(), Some(tasks))
            }
            Self::Redis => (Redis::connect(url, key).await?.into(), None),
            Self::Nats => (Nats::connect(url, key).await?.into(), None),
        };
        Ok(EngineConnection { cluster, tasks })
    }
}
