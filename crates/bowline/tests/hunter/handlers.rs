//! The server's tools and the client's host. The arguments of a call determine what they do.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::client::Host;
use bowline::types::{ElicitRequestFormParams, ElicitResult};
use bowline::{CallToolResult, CancelMode, Context, Json, Progress, RpcError, Server, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;

use crate::schedule_log::ScheduleLog;

/// The arguments of a call. Its result is its tag, which identifies the call an answer belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) tag: String,
    pub(crate) plan: Vec<HandlerStep>,
}

/// One step of a handler before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HandlerStep {
    /// Yields to the runtime.
    Yield,
    /// Sleeps for this many milliseconds.
    Idle(u64),
    /// Sends a progress notification.
    Progress,
    /// Waits until the schedule releases the call.
    Wait,
    /// Elicits an answer from the client, whose host takes this many milliseconds.
    Ask(u64),
}

/// Releases waiting handlers, in the order in which they started to wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReleaseGate(Arc<Mutex<ReleaseState>>);

#[derive(Debug, Default)]
struct ReleaseState {
    tags: BTreeSet<String>,
    all: bool,
    waiting: Vec<(String, oneshot::Sender<()>)>,
}

impl ReleaseGate {
    pub(crate) fn release(&self, tag: &str) {
        let mut state = self.lock();
        state.tags.insert(tag.to_owned());
        state.waiting.retain(|(waiting, _)| waiting != tag);
    }

    pub(crate) fn release_all(&self) {
        let mut state = self.lock();
        state.all = true;
        state.waiting.clear();
    }

    async fn wait(&self, tag: &str) {
        let released = {
            let mut state = self.lock();
            if state.all || state.tags.contains(tag) {
                return;
            }
            let (release, released) = oneshot::channel();
            state.waiting.push((tag.to_owned(), release));
            released
        };
        // Dropping the sender is the release; no value is ever sent.
        let _ = released.await;
    }

    fn lock(&self) -> MutexGuard<'_, ReleaseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server with one tool whose handler is dropped on a cancel and one whose handler is signalled.
pub(crate) fn server(log: &ScheduleLog, release_gate: &ReleaseGate) -> Server {
    Server::new("target", "1.0.0")
        .resource_subscriptions()
        .tool(tool("work", log, release_gate))
        .tool(tool("signaled", log, release_gate).cancel_mode(CancelMode::Signal))
}

fn tool(name: &str, log: &ScheduleLog, release_gate: &ReleaseGate) -> Tool {
    let (log, release_gate) = (log.clone(), release_gate.clone());
    Tool::raw(name, json!({"type": "object"}), move |job: Json, cx| {
        let (log, release_gate) = (log.clone(), release_gate.clone());
        async move {
            let job: Job = job.decode().map_err(bowline::invalid_params)?;
            let guard = log.handler_started(&job.tag);
            let outcome = tokio::select! {
                biased;
                // Reached with `CancelMode::Signal` only; the other handler is dropped first.
                () = cx.cancelled() => Ok(()),
                outcome = run_plan(&job, &cx, &log, &release_gate) => outcome,
            };
            guard.done();
            outcome?;
            Ok(CallToolResult::text(job.tag))
        }
    })
}

/// A hash that identifies a call in the `total` of its progress: 2024-11-05 has no `message` for that.
pub(crate) fn tag_hash(tag: &str) -> f64 {
    let hash = tag.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    f64::from(hash)
}

async fn run_plan(
    job: &Job,
    cx: &Context,
    log: &ScheduleLog,
    release_gate: &ReleaseGate,
) -> Result<(), RpcError> {
    for (at, step) in job.plan.iter().enumerate() {
        match step {
            HandlerStep::Yield => tokio::task::yield_now().await,
            HandlerStep::Idle(millis) => sleep_ms(*millis).await,
            HandlerStep::Progress => {
                let progress = Progress::new((at + 1) as f64).total(tag_hash(&job.tag));
                cx.progress(progress.message(&job.tag));
            }
            HandlerStep::Wait => release_gate.wait(&job.tag).await,
            HandlerStep::Ask(millis) => {
                let message = format!("{} {millis}", job.tag);
                let answer: Form = cx.elicit(format!("q{at}"), message).await?;
                if answer.text != job.tag {
                    log.violation(
                        OWN_ANSWER_ONLY,
                        format_args!("{} got {}", job.tag, answer.text),
                    );
                }
            }
        }
    }
    Ok(())
}

/// A host that answers an elicitation with the tag in its message, after the delay in its message.
pub(crate) fn host(log: &ScheduleLog) -> Host {
    let log = log.clone();
    Host::new().elicitation(move |form: ElicitRequestFormParams| {
        let log = log.clone();
        async move {
            let (tag, millis) = form.message.split_once(' ').unwrap_or(("unknown", "0"));
            let _answering = log.host_started();
            let guard = log.handler_started(&format!("{tag}'s host"));
            sleep_ms(millis.parse().unwrap_or_default()).await;
            guard.done();
            ElicitResult::accept(json!({"text": tag}))
        }
    })
}

/// Sleeps for this many milliseconds. The clock is paused, so it advances once every task is idle.
pub(crate) async fn sleep_ms(millis: u64) {
    let _ = tokio::time::timeout(Duration::from_millis(millis), pending::<()>()).await;
}

#[derive(Deserialize, JsonSchema)]
struct Form {
    text: String,
}

pub(crate) const OWN_ANSWER_ONLY: &str = "an answer reaches only the caller it belongs to";
