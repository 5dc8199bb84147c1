//! What the server's tools do and how the client's host answers: both as the call itself says.

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

use crate::ledger::Ledger;

/// What a call wants done. Its answer is its tag, so that no answer can be taken for another's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) tag: String,
    pub(crate) acts: Vec<Act>,
}

/// One thing that a handler does before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// Lets others have their turn.
    Yield,
    /// Takes this many milliseconds.
    Take(u64),
    /// Says how far it is.
    Progress,
    /// Waits until the schedule lets it go on.
    Wait,
    /// Asks the client, who takes this many milliseconds to answer.
    Ask(u64),
}

/// Which handlers may go on. They do so in the order in which they began to wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Releases(Arc<Mutex<Released>>);

#[derive(Debug, Default)]
struct Released {
    tags: BTreeSet<String>,
    all: bool,
    waiting: Vec<(String, oneshot::Sender<()>)>,
}

impl Releases {
    pub(crate) fn release(&self, tag: &str) {
        let mut released = self.lock();
        released.tags.insert(tag.to_owned());
        released.waiting.retain(|(waiting, _)| waiting != tag);
    }

    pub(crate) fn release_all(&self) {
        let mut released = self.lock();
        released.all = true;
        released.waiting.clear();
    }

    async fn released(&self, tag: &str) {
        let released = {
            let mut state = self.lock();
            if state.all || state.tags.contains(tag) {
                return;
            }
            let (release, released) = oneshot::channel();
            state.waiting.push((tag.to_owned(), release));
            released
        };
        // Nothing is ever sent: that the sender is gone is the release.
        let _ = released.await;
    }

    fn lock(&self) -> MutexGuard<'_, Released> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server with one tool that can be cancelled and one that only hears of it.
pub(crate) fn server(ledger: &Ledger, releases: &Releases) -> Server {
    Server::new("hunted", "1.0.0")
        .resource_updates()
        .tool(tool("work", ledger, releases))
        .tool(tool("stubborn", ledger, releases).cancel_mode(CancelMode::Signal))
}

fn tool(name: &str, ledger: &Ledger, releases: &Releases) -> Tool {
    let (ledger, releases) = (ledger.clone(), releases.clone());
    Tool::raw(name, json!({"type": "object"}), move |job: Json, cx| {
        let (ledger, releases) = (ledger.clone(), releases.clone());
        async move {
            let job: Job = job.decode().map_err(bowline::invalid_params)?;
            let at_work = ledger.at_work(&job.tag);
            let outcome = tokio::select! {
                biased;
                // A tool that can be cancelled is dropped before it gets to hear of it.
                () = cx.cancelled() => Ok(()),
                outcome = work(&job, &cx, &ledger, &releases) => outcome,
            };
            at_work.done();
            outcome.map(|()| CallToolResult::text(job.tag))
        }
    })
}

/// A number that tells the progress of one call from that of another: 2024-11-05 has no words for it.
pub(crate) fn number_of(tag: &str) -> f64 {
    let number = tag.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    f64::from(number)
}

async fn work(
    job: &Job,
    cx: &Context,
    ledger: &Ledger,
    releases: &Releases,
) -> Result<(), RpcError> {
    for (at, act) in job.acts.iter().enumerate() {
        match act {
            Act::Yield => tokio::task::yield_now().await,
            Act::Take(millis) => pass(*millis).await,
            Act::Progress => {
                let progress = Progress::at((at + 1) as f64).of(number_of(&job.tag));
                cx.progress(progress.message(&job.tag));
            }
            Act::Wait => releases.released(&job.tag).await,
            Act::Ask(millis) => {
                let message = format!("{} {millis}", job.tag);
                let answer: Said = cx.elicit(format!("q{at}"), message).await?;
                if answer.said != job.tag {
                    ledger.broken(
                        NO_CROSSED_ANSWERS,
                        format_args!("{} was told {}", job.tag, answer.said),
                    );
                }
            }
        }
    }
    Ok(())
}

/// A host that tells the handler who asked, after as long as the question says.
pub(crate) fn host(ledger: &Ledger) -> Host {
    let ledger = ledger.clone();
    Host::new().elicitation(move |form: ElicitRequestFormParams| {
        let ledger = ledger.clone();
        async move {
            let (tag, millis) = form.message.split_once(' ').unwrap_or(("nobody", "0"));
            let at_work = ledger.at_work(&format!("{tag}'s host"));
            pass(millis.parse().unwrap_or_default()).await;
            at_work.done();
            ElicitResult::accept(json!({"said": tag}))
        }
    })
}

/// Lets this many milliseconds pass. The clock is paused, so they do once nobody has anything to do.
pub(crate) async fn pass(millis: u64) {
    let _ = tokio::time::timeout(Duration::from_millis(millis), pending::<()>()).await;
}

#[derive(Deserialize, JsonSchema)]
struct Said {
    said: String,
}

pub(crate) const NO_CROSSED_ANSWERS: &str = "nobody gets another's answer";
