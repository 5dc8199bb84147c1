//! [`RunningExchanges`]: the requests that other replicas have forwarded to this one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::RpcError;
use bowline::exchange::{BoxFuture, Outcome};
use serde_json::json;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::event_log::EventLog;
use super::verbs::{ExchangeId, ReplicaReply};

/// The forwarded requests of this replica. Dropping it ends them.
#[derive(Clone, Default)]
pub(super) struct RunningExchanges(Arc<ExchangeTable>);

#[derive(Default)]
struct ExchangeTable(Mutex<Exchanges>);

#[derive(Default)]
struct Exchanges {
    running: BTreeMap<ExchangeId, RunningExchange>,
    /// Every id that was started or cancelled a short time ago: an engine may repeat messages, and does not keep their
    /// order, and a call must not run twice or after its cancel.
    known: BTreeSet<ExchangeId>,
    /// The same, with the time after which a message that starts one is no longer opened.
    known_until: VecDeque<(Instant, ExchangeId)>,
}

struct RunningExchange {
    log: Arc<EventLog>,
    /// `None` for a moment, until the task was spawned.
    task: Option<AbortHandle>,
}

impl Drop for RunningExchange {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl RunningExchanges {
    /// Starts a request, unless it was started before. `respond` answers it, with the log as its sink.
    pub(super) fn start(
        &self,
        id: ExchangeId,
        respond: impl FnOnce(Arc<EventLog>) -> BoxFuture<'static, Outcome>,
    ) -> ReplicaReply {
        let log = Arc::new(EventLog::new());
        {
            let mut table = self.0.lock();
            table.forget_old();
            if table.running.contains_key(&id) {
                return ReplicaReply::Accepted;
            }
            if table.known.contains(&id) {
                return ReplicaReply::Gone;
            }
            if table.running.len() >= MAX_EXCHANGES || table.known.len() >= MAX_KNOWN {
                return ReplicaReply::Busy;
            }
            table.remember(id);
            let (log, task) = (log.clone(), None);
            table.running.insert(id, RunningExchange { log, task });
        }
        let entry = RemoveOnDrop {
            table: Arc::downgrade(&self.0),
            id,
        };
        let responding = respond(log.clone());
        let task = tokio::spawn(run(log, responding, entry)).abort_handle();
        match self.0.lock().running.get_mut(&id) {
            Some(exchange) => exchange.task = Some(task),
            // It was cancelled meanwhile.
            None => task.abort(),
        }
        ReplicaReply::Accepted
    }

    pub(super) async fn read(&self, id: ExchangeId, after: u64, wait: Duration) -> ReplicaReply {
        let log = {
            let table = self.0.lock();
            table.running.get(&id).map(|exchange| exchange.log.clone())
        };
        match log {
            Some(log) => log.read(after, wait.min(MAX_WAIT)).await,
            None => ReplicaReply::Gone,
        }
    }

    /// Ends a request. One that has not arrived yet will not be started.
    pub(super) fn cancel(&self, id: ExchangeId) {
        let mut table = self.0.lock();
        table.forget_old();
        table.remember(id);
        let removed = table.running.remove(&id);
        drop(table);
        drop(removed);
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().running.len()
    }
}

impl ExchangeTable {
    fn lock(&self) -> MutexGuard<'_, Exchanges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchanges {
    fn remember(&mut self, id: ExchangeId) {
        if self.known.len() < MAX_KNOWN && self.known.insert(id) {
            let until = Instant::now() + KNOWN_FOR;
            self.known_until.push_back((until, id));
        }
    }

    fn forget_old(&mut self) {
        let now = Instant::now();
        while let Some((_, id)) = self.known_until.front().filter(|(until, _)| *until <= now) {
            self.known.remove(id);
            self.known_until.pop_front();
        }
    }
}

/// Removes an exchange whose task ends.
struct RemoveOnDrop {
    table: std::sync::Weak<ExchangeTable>,
    id: ExchangeId,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let removed = table.lock().running.remove(&self.id);
            drop(removed);
        }
    }
}

async fn run(log: Arc<EventLog>, responding: BoxFuture<'static, Outcome>, _entry: RemoveOnDrop) {
    let outcome = tokio::select! {
        biased;
        // First: a request that has ended is not abandoned, whatever else has happened.
        outcome = responding => outcome,
        () = log.too_long() => Err(not_read()),
        () = log.abandoned() => {
            tracing::debug!("a replica no longer reads the answer to a request that it forwarded");
            return;
        }
    };
    log.end(outcome);
    tokio::select! {
        biased;
        () = log.read_to_end() => {}
        () = log.abandoned() => {}
    }
}

fn not_read() -> RpcError {
    let data = json!({"reason": "notificationsLost", "mayHaveRun": true});
    RpcError::internal("notifications came faster than another replica could read them")
        .with_data(data)
}

/// Each has an upstream call, and up to some MiB of events.
const MAX_EXCHANGES: usize = 1024;
/// How many ids are remembered, in about 10 MB: 500 forwarded requests a second.
const MAX_KNOWN: usize = 200_000;
/// Longer than messages of replicas are opened.
const KNOWN_FOR: Duration = Duration::from_secs(6 * 60);
const MAX_WAIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use bowline::Json;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_runs_once_and_is_gone_after_its_outcome_was_read() {
        let running = RunningExchanges::default();
        let id = ExchangeId::random().unwrap();
        let answer = |_| -> BoxFuture<'static, Outcome> {
            Box::pin(async { Ok(Json::from(serde_json::json!(7))) })
        };

        assert_eq!(running.start(id, answer), ReplicaReply::Accepted);
        let again = running.start(id, |_| panic!("it runs twice"));
        assert_eq!(again, ReplicaReply::Accepted);
        let read = running.read(id, 0, MAX_WAIT).await;

        assert!(matches!(read, ReplicaReply::Events { is_end: true, .. }));
        while running.len() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(running.read(id, 0, MAX_WAIT).await, ReplicaReply::Gone);
        let repeated = running.start(id, |_| panic!("it runs twice"));
        assert_eq!(repeated, ReplicaReply::Gone);
        tokio::time::advance(KNOWN_FOR).await;
        running.0.lock().forget_old();
        assert!(running.0.lock().known.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_arrives_after_its_cancel_does_not_run() {
        let running = RunningExchanges::default();
        let id = ExchangeId::random().unwrap();

        running.cancel(id);
        let started = running.start(id, |_| panic!("it was cancelled"));

        assert_eq!(started, ReplicaReply::Gone);
        assert_eq!(running.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_dropped_when_it_is_cancelled_or_not_read() {
        let running = RunningExchanges::default();
        for is_cancelled in [true, false] {
            let id = ExchangeId::random().unwrap();
            let (alive, dropped) = oneshot::channel::<()>();
            running.start(id, |_| {
                Box::pin(async move {
                    let _alive = alive;
                    std::future::pending().await
                })
            });

            if is_cancelled {
                running.cancel(id);
            }

            assert!(dropped.await.is_err());
            assert_eq!(running.read(id, 0, MAX_WAIT).await, ReplicaReply::Gone);
        }
    }
}
