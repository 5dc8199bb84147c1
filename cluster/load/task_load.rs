//! Clients that start tasks and wait for them, whatever happens meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::{Client, Error};
use bowline_tasks::{TaskCall as _, TaskHandle};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clients::LIMIT;
use crate::tally::Tally;

/// Starts tasks at a pace until `is_stopping`, each waited for in its own task: one that is late must not hold up the next.
pub(crate) fn start_tasks(
    tasks: &mut JoinSet<()>,
    clients: Vec<Client>,
    every: Duration,
    tally: &Arc<Tally>,
    is_stopping: &Arc<AtomicBool>,
) {
    for (nth, client) in clients.into_iter().enumerate() {
        let (tally, is_stopping) = (tally.clone(), is_stopping.clone());
        tasks.spawn(async move {
            let mut waiting = JoinSet::new();
            let mut pace = tokio::time::interval(every);
            pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            for number in 0_u64.. {
                pace.tick().await;
                while waiting.try_join_next().is_some() {}
                if is_stopping.load(Ordering::Relaxed) {
                    break;
                }
                if waiting.len() >= MAX_WAITING {
                    continue;
                }
                let nonce = format!("client {nth}, task {number}");
                let arguments = json!({"text": nonce, "seconds": 0.5});
                let started = client.call_tool("task_resumed", arguments).as_task();
                match timeout(LIMIT, started).await {
                    Ok(Ok(task)) => {
                        tally.change(|counts| counts.tasks += 1);
                        waiting.spawn(wait(client.clone(), task, nonce, tally.clone()));
                    }
                    // It is not known whether there is a task; if there is, it runs and expires.
                    Ok(Err(error)) => tally.error(&error),
                    Err(_) => tally.change(|counts| counts.overdue += 1),
                }
            }
            waiting.join_all().await;
        });
    }
}

/// Waits for a task, and asks again when the connection fails.
async fn wait(client: Client, task: TaskHandle, nonce: String, tally: Arc<Tally>) {
    let Some(id) = task.id().map(str::to_owned) else {
        return tally.change(|counts| counts.completed += 1);
    };
    let ended = timeout(TASK_LIMIT, async {
        let mut pace = tokio::time::interval(RETRY_EVERY);
        loop {
            pace.tick().await;
            let again = TaskHandle::attach(&client, id.clone());
            match again.wait().await {
                Ok(reply) => return Ok(reply.text()),
                // The server still has the task, so that the task has failed and not the request.
                Err(error @ Error::Rpc(_)) if again.status().await.is_ok() => return Err(error),
                Err(error) => tally.error(&error),
            }
        }
    });
    match ended.await {
        Ok(Ok(text)) if text == nonce => tally.change(|counts| counts.completed += 1),
        Ok(Ok(_)) => tally.change(|counts| counts.crossed += 1),
        Ok(Err(error)) => {
            tally.error(&error);
            tally.change(|counts| counts.lost_tasks += 1);
        }
        Err(_) => tally.change(|counts| counts.lost_tasks += 1),
    }
}

const MAX_WAITING: usize = 64;
const RETRY_EVERY: Duration = Duration::from_millis(300);
/// Longer than a fault, the lease of a dead replica and the run of its successor.
const TASK_LIMIT: Duration = Duration::from_secs(60);
