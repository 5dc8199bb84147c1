//! Restarts an engine, and fills it up.

use std::error::Error;
use std::time::Duration;

use bowline_nats::async_nats;
use cluster_tests::Engine;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::options::Options;

/// Kills the engine, and starts it again with its data.
pub(crate) async fn restart(options: &Options) -> Result<(), Box<dyn Error>> {
    control(options, "stop").await?;
    control(options, "start").await
}

/// Sends a line to `cargo xtask cluster`, which has started the engine.
async fn control(options: &Options, verb: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(&options.control).await?;
    let line = format!("{verb} {}\n", options.engine.name());
    stream.write_all(line.as_bytes()).await?;
    let mut answer = String::new();
    let mut answers = BufReader::new(stream);
    timeout(LIMIT, answers.read_line(&mut answer)).await??;
    match answer.trim() {
        "ok" => Ok(()),
        other => Err(other.to_owned().into()),
    }
}

/// An engine without room, until [`FilledEngine::empty`].
pub(crate) enum FilledEngine {
    Redis(String),
    Postgres(String),
    Nats(async_nats::jetstream::Context),
}

impl FilledEngine {
    /// Returns how the engine was filled, for the report.
    pub(crate) fn how(engine: Engine) -> &'static str {
        match engine {
            Engine::Redis => "full: `maxmemory` of 1 byte, `noeviction`",
            // A full disk stops Postgres; hosted ones switch to this before.
            Engine::Postgres => "full: read-only, as hosted databases switch to",
            _ => "full: a stream has taken all of the storage",
        }
    }

    /// Fills the engine.
    pub(crate) async fn fill(options: &Options) -> Result<Self, Box<dyn Error>> {
        let url = options.engine_url.clone();
        match options.engine {
            Engine::Redis => {
                redis(&url, "CONFIG SET maxmemory-policy noeviction").await?;
                redis(&url, "CONFIG SET maxmemory 1").await?;
                Ok(Self::Redis(url))
            }
            Engine::Postgres => {
                postgres(&url, "ALTER SYSTEM SET default_transaction_read_only = on").await?;
                postgres(&url, "SELECT pg_reload_conf()").await?;
                Ok(Self::Postgres(url))
            }
            _ => fill_nats(&url).await,
        }
    }

    /// Makes room again.
    pub(crate) async fn empty(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Redis(url) => redis(&url, "CONFIG SET maxmemory 0").await,
            Self::Postgres(url) => {
                let reset = "ALTER SYSTEM RESET default_transaction_read_only";
                postgres(&url, reset).await?;
                postgres(&url, "SELECT pg_reload_conf()").await
            }
            Self::Nats(jetstream) => {
                jetstream.delete_stream(FILLER).await?;
                Ok(())
            }
        }
    }
}

/// Sends an inline command.
async fn redis(url: &str, command: &str) -> Result<(), Box<dyn Error>> {
    let address = url.strip_prefix("redis://").ok_or("not a URL of Redis")?;
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("{command}\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    let mut answers = BufReader::new(stream);
    timeout(LIMIT, answers.read_line(&mut answer)).await??;
    match answer.trim() {
        "+OK" => Ok(()),
        other => Err(format!("`{command}`: {other}").into()),
    }
}

async fn postgres(url: &str, statement: &str) -> Result<(), Box<dyn Error>> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let running = tokio::spawn(connection);
    let done = timeout(LIMIT, client.simple_query(statement)).await?;
    running.abort();
    done?;
    Ok(())
}

/// Publishes until the storage that `cargo xtask cluster` has granted is full.
async fn fill_nats(url: &str) -> Result<FilledEngine, Box<dyn Error>> {
    let client = async_nats::connect(url).await?;
    let jetstream = async_nats::jetstream::new(client);
    let config = async_nats::jetstream::stream::Config {
        name: FILLER.to_owned(),
        subjects: vec![FILLER.to_owned()],
        ..Default::default()
    };
    jetstream.create_stream(config).await?;
    let block = bytes::Bytes::from(vec![0; 512 * 1024]);
    for _ in 0..MAX_BLOCKS {
        let published = jetstream.publish(FILLER, block.clone()).await?;
        if timeout(LIMIT, published).await?.is_err() {
            return Ok(FilledEngine::Nats(jetstream));
        }
    }
    Err("the storage of NATS has no limit".into())
}

const FILLER: &str = "filler";
/// 1 GiB.
const MAX_BLOCKS: usize = 2048;
const LIMIT: Duration = Duration::from_secs(60);
