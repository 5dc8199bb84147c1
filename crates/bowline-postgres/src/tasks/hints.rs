//! [`HintListener`]: hints on changed tasks, from notifications.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_tasks::TaskId;
use bowline_tasks::store::{ChangeFeed, TaskChanges, Version};
use futures_util::StreamExt as _;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client};

use super::statements::LISTEN;
use crate::LIMIT;
use crate::connection::Database;

/// Listens from the first subscription on, over a connection of its own.
pub(super) struct HintListener {
    database: Arc<Database>,
    feed: ChangeFeed,
    task: OnceLock<JoinHandle<()>>,
}

impl HintListener {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self {
            database,
            feed: ChangeFeed::new(),
            task: OnceLock::new(),
        }
    }

    /// Returns a stream of hints. Its first one is `TooMany`, when the connection listens.
    pub(super) fn subscribe(&self) -> TaskChanges {
        let changes = self.feed.subscribe();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                self.task.get_or_init(|| {
                    runtime.spawn(listen(self.database.clone(), self.feed.clone()))
                });
            }
            Err(_) => tracing::error!("no tokio runtime; there are no hints on changed tasks"),
        }
        changes
    }
}

impl Drop for HintListener {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// Returns the text of a notification.
pub(super) fn to_text(id: TaskId, version: Version) -> String {
    format!("{id} {}", version.number())
}

fn from_text(text: &str) -> Option<(TaskId, Version)> {
    let (id, version) = text.split_once(' ')?;
    let version = version.parse().ok()?;
    Some((id.parse().ok()?, Version::from_number(version)))
}

/// Listens, and connects again after a failure. A lost hint is found at the latest by the next renewal of its lease.
async fn listen(database: Arc<Database>, feed: ChangeFeed) {
    let mut failures = 0_u32;
    loop {
        match connect(&database, &feed).await {
            Ok((client, driver)) => {
                failures = 0;
                // Changes before this moment may have been missed.
                feed.send_too_many();
                stay(&client, driver).await;
                tracing::warn!("lost the connection to Postgres that listens to tasks");
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(error, failures, "failed to listen to changes of tasks");
            }
        }
        let delay = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(failures.min(10)));
        tokio::time::sleep(delay.min(RETRY_LAST)).await;
    }
}

/// The task that drives a connection. Dropping it closes the connection.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn connect(database: &Database, feed: &ChangeFeed) -> Result<(Client, Driver), String> {
    let (config, tls) = database.connector();
    let connecting = async {
        let (client, mut connection) = config.connect(tls.clone()).await?;
        let feed = feed.clone();
        let driver = Driver(tokio::spawn(async move {
            let mut messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message
                    && let Some((id, version)) = from_text(notification.payload())
                {
                    feed.send(id, version);
                }
            }
        }));
        client.batch_execute(LISTEN).await?;
        Ok((client, driver))
    };
    let connected = tokio::time::timeout(LIMIT, connecting).await;
    let connected: Result<_, tokio_postgres::Error> =
        connected.map_err(|_| format!("no response within {LIMIT:?}"))?;
    connected.map_err(|error| error.to_string())
}

/// Waits until the connection fails. Pings, because a connection whose packets are lost does not fail by itself.
async fn stay(client: &Client, mut driver: Driver) {
    let mut pings = tokio::time::interval(PING_EVERY);
    loop {
        // The end comes first: a ping would only wait for its limit.
        tokio::select! {
            biased;
            _ = &mut driver.0 => return,
            _ = pings.tick() => {
                let ping = tokio::time::timeout(LIMIT, client.batch_execute("")).await;
                if !matches!(ping, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }
}

const PING_EVERY: Duration = Duration::from_secs(5);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_parsed_as_it_was_written() {
        let (id, version) = (TaskId::from_bytes([7; 18]), Version::from_number(9));

        assert_eq!(from_text(&to_text(id, version)), Some((id, version)));
        for other in ["", "x 1", &format!("{id}"), &format!("{id} x")] {
            assert_eq!(from_text(other), None);
        }
    }
}
