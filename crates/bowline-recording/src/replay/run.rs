//! [`ConnectedReplay`]: a replay that is connected to its server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bowline::client::Connection;
use bowline::exchange::{Answer, CallOptions, Channel as _, Exchange, InputKind, Outcome, Request};
use bowline::{Error, Json, RpcError};
use bowline_core::input::{ClientRounds, DEFAULT_MAX_ROUNDS, InputStep};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};

use super::compare::{compare, compare_introductions, outcome_value};
use super::host::{RegisteredCall, ReplayHost};
use super::substitutions::Substitutions;
use super::{Pacing, ReplayOutcome, ReplayReport, ReplaySettings, ReplayedRequest, name_of};
use crate::conversation::{Conversation, Ending, Script};

/// A [`Replay`](super::Replay) that is connected to its server.
#[must_use = "it sends nothing until it is run"]
pub struct ConnectedReplay {
    shared: Arc<Shared>,
}

struct Shared {
    conversation: Conversation,
    settings: ReplaySettings,
    connection: Connection,
    host: ReplayHost,
    substitutions: Substitutions,
}

impl std::fmt::Debug for ConnectedReplay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectedReplay")
            .field("requests", &self.shared.conversation.scripts.len())
            .finish_non_exhaustive()
    }
}

/// A request that was sent.
struct OpenedCall {
    params: Json,
    exchange: Exchange,
    registered: RegisteredCall,
}

/// A moment of the recording at which a request begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Start(usize),
    End(usize),
}

impl ConnectedReplay {
    pub(super) fn new(
        conversation: Conversation,
        settings: ReplaySettings,
        connection: Connection,
        host: ReplayHost,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                conversation,
                settings,
                connection,
                host,
                substitutions: Substitutions::default(),
            }),
        }
    }

    /// Returns the names of the tools that will be called and that the server does not declare as read-only. To replay
    /// them may change something.
    ///
    /// # Errors
    ///
    /// If the tools of the server cannot be listed.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future cancels the request.
    pub async fn writing_tools(&self) -> bowline::Result<BTreeSet<String>> {
        let calls = self.shared.conversation.scripts.iter();
        let calls = calls.filter(|script| script.method == "tools/call");
        let mut called: BTreeSet<String> = calls.filter_map(name_of).collect();
        if called.is_empty() {
            return Ok(called);
        }
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = match &cursor {
                Some(cursor) => Json::from(serde_json::json!({"cursor": cursor})),
                None => Json::empty_object(),
            };
            let result = self.shared.send("tools/list", params).await?;
            let page: ToolPage = result.decode().unwrap_or_default();
            for tool in page.tools.iter().filter(|tool| tool.is_read_only()) {
                called.remove(&tool.name);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(called)
    }

    /// Sends the requests, calls `on_request` after each one, and closes the connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the requests in flight and closes the connection.
    pub async fn run(self, mut on_request: impl FnMut(&ReplayedRequest)) -> ReplayReport {
        let mut done: BTreeMap<usize, ReplayedRequest> = BTreeMap::new();
        if let Some(request) = self.shared.compare_introduction() {
            on_request(&request);
            done.insert(0, request);
        }
        let mut running: JoinSet<ReplayedRequest> = JoinSet::new();
        let mut cancels: BTreeMap<usize, AbortHandle> = BTreeMap::new();
        let is_sequential = self.shared.settings.pacing == Pacing::OneAtATime;
        for moment in moments(&self.shared.conversation.scripts) {
            let (index, must_wait) = match moment {
                Moment::Start(index) => {
                    // Opened here and not by the task, so that requests are sent in the order of the recording.
                    let opened = self.shared.open(index);
                    let shared = self.shared.clone();
                    let task = running.spawn(async move { shared.replay(index, opened).await });
                    let is_cancelled = self.shared.is_cancelled(index);
                    if is_cancelled {
                        cancels.insert(index, task);
                    }
                    (index, is_sequential && !is_cancelled)
                }
                Moment::End(index) => {
                    // One that the server has answered already is reported as such.
                    if let Some(cancelled) = cancels.remove(&index)
                        && !done.contains_key(&(index + 1))
                    {
                        cancelled.abort();
                        let request = self.shared.request(index, ReplayOutcome::Cancelled);
                        on_request(&request);
                        done.insert(index + 1, request);
                    }
                    (index, !self.shared.is_cancelled(index))
                }
            };
            while must_wait && !done.contains_key(&(index + 1)) {
                let Some(finished) = running.join_next().await else {
                    break;
                };
                // An error is that of a cancelled request.
                if let Ok(request) = finished
                    && !done.contains_key(&request.number)
                {
                    on_request(&request);
                    done.insert(request.number, request);
                }
            }
        }
        running.shutdown().await;
        self.shared.connection.close().await;
        ReplayReport {
            version: self.shared.connection.dialect().version,
            requests: done.into_values().collect(),
        }
    }
}

impl Shared {
    fn compare_introduction(&self) -> Option<ReplayedRequest> {
        let recorded: Value = self.conversation.introduction.as_ref()?.decode().ok()?;
        let actual: Value = self.connection.introduction()?.decode().ok()?;
        Some(ReplayedRequest {
            number: 0,
            method: "server/discover".to_owned(),
            name: None,
            outcome: compare_introductions(&self.settings.ignore, &recorded, &actual),
        })
    }

    fn is_cancelled(&self, index: usize) -> bool {
        matches!(self.conversation.scripts[index].ending, Ending::Cancelled)
    }

    fn request(&self, index: usize, outcome: ReplayOutcome) -> ReplayedRequest {
        let script = &self.conversation.scripts[index];
        ReplayedRequest {
            number: index + 1,
            method: script.method.to_string(),
            name: name_of(script),
            outcome,
        }
    }

    /// Sends the first request of a script, or returns why it is not sent.
    fn open(&self, index: usize) -> Result<OpenedCall, ReplayOutcome> {
        let script = &self.conversation.scripts[index];
        let dialect = self.connection.dialect();
        let skipped = |why: String| Err(ReplayOutcome::Skipped { why });
        if dialect.lacks_request(&script.method) {
            return skipped(format!("{} has no such method", dialect.version));
        }
        if matches!(script.ending, Ending::Silence) {
            return skipped("the recording has no answer".to_owned());
        }
        let params = self.substitutions.apply(&script.params);
        let request = self.new_request(&script.method, params.clone());
        let (exchange, registered) = self.host.register(index, script, || {
            let exchange = self.connection.open(request, self.options());
            let id = exchange.request_id().cloned();
            (exchange, id)
        });
        Ok(OpenedCall {
            params,
            exchange,
            registered,
        })
    }

    async fn replay(
        &self,
        index: usize,
        opened: Result<OpenedCall, ReplayOutcome>,
    ) -> ReplayedRequest {
        let outcome = match opened {
            Ok(opened) => self.finish(index, opened).await,
            Err(outcome) => outcome,
        };
        self.request(index, outcome)
    }

    /// Waits for the answer to a request, and compares it.
    async fn finish(&self, index: usize, opened: OpenedCall) -> ReplayOutcome {
        let script = &self.conversation.scripts[index];
        let call = self.answer(&script.method, opened);
        let answered = match tokio::time::timeout(self.settings.timeout, call).await {
            Ok(answered) => answered,
            Err(_) => Err(Error::Timeout {
                after: self.settings.timeout,
            }),
        };
        let (outcome, registered) = match answered {
            Ok(answered) => answered,
            Err(error) => {
                return ReplayOutcome::Failed {
                    why: describe(&error),
                };
            }
        };
        let (asked, unasked) = registered.finish();
        let Ending::Answer {
            outcome: recorded, ..
        } = &script.ending
        else {
            let why = "the server answered before the request was cancelled".to_owned();
            return ReplayOutcome::Skipped { why };
        };
        let value = |outcome| outcome_value(&script.method, outcome);
        let (recorded, actual) = (value(recorded), value(&outcome));
        self.substitutions
            .learn(&recorded["result"], &actual["result"]);
        compare(&self.settings.ignore, &recorded, &actual, &asked, unasked)
    }

    /// Waits for the answer to a request, over all rounds.
    async fn answer(
        &self,
        method: &str,
        opened: OpenedCall,
    ) -> bowline::Result<(Outcome, RegisteredCall)> {
        let OpenedCall {
            params,
            mut exchange,
            registered,
        } = opened;
        let rounds = ClientRounds::new(method.to_owned(), Some(params), DEFAULT_MAX_ROUNDS);
        let mut rounds = rounds.map_err(|error| violation(&error))?;
        loop {
            let result = match exchange.answer().await {
                Ok(Answer::InputRequired(result)) => result,
                Ok(Answer::Complete(result) | Answer::Extension { result, .. }) => {
                    return Ok((Ok(result), registered));
                }
                Err(Error::Rpc(error)) => return Ok((Err(error), registered)),
                Err(error) => return Err(error),
            };
            match rounds.next(&result).map_err(|error| violation(&error))? {
                InputStep::Ask(questions) => {
                    for (key, question) in questions {
                        let kind = question.kind;
                        let answer = registered.answer(&key, &question);
                        let answer = answer.or_else(|error| refusal(kind, error));
                        let answer = answer.map_err(Error::Rpc)?;
                        let answered = rounds.answer(&key, answer);
                        answered.map_err(|error| violation(&error))?;
                    }
                }
                InputStep::Retry => tokio::time::sleep(RETRY_PAUSE).await,
            }
            let params = rounds.retry_params().map_err(|error| violation(&error))?;
            let retry = self.new_request(method, params);
            exchange = self.connection.open(retry, self.options());
        }
    }

    async fn send(&self, method: &'static str, params: Json) -> bowline::Result<Json> {
        let request = self.new_request(method, params);
        match self
            .connection
            .open(request, self.options())
            .answer()
            .await?
        {
            Answer::Complete(result) => Ok(result),
            Answer::InputRequired(_) | Answer::Extension { .. } => Err(violation(&format!(
                "expected a complete result of `{method}`"
            ))),
        }
    }

    fn new_request(&self, method: &str, params: Json) -> Request {
        Request::new(method.to_owned(), params, self.connection.caller())
    }

    fn options(&self) -> CallOptions {
        let mut options = CallOptions::default();
        options.timeout = Some(self.settings.timeout);
        options
    }
}

/// Returns the beginnings and ends of all requests, in the order of the recording.
fn moments(scripts: &[Script]) -> Vec<Moment> {
    let mut moments: Vec<(Duration, Moment)> = Vec::new();
    for (index, script) in scripts.iter().enumerate() {
        moments.push((script.started, Moment::Start(index)));
        let ended = script.ended.unwrap_or(Duration::MAX);
        moments.push((ended.max(script.started), Moment::End(index)));
    }
    // Stable: what happened at the same time stays in the order in which it was recorded.
    moments.sort_by_key(|&(at, _)| at);
    moments.into_iter().map(|(_, moment)| moment).collect()
}

/// Returns the answer of a user who dismisses the question, for a client that refused it by an error: modern answers
/// cannot be errors.
fn refusal(kind: InputKind, error: RpcError) -> Outcome {
    match kind {
        InputKind::Elicitation => Ok(Json::from(serde_json::json!({"action": "cancel"}))),
        InputKind::Sampling | InputKind::Roots => Err(error),
    }
}

fn violation(error: &dyn std::fmt::Display) -> Error {
    Error::Protocol {
        what: error.to_string(),
        source: None,
    }
}

/// Returns the text of an error and of its causes.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolPage {
    tools: Vec<ListedTool>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct ListedTool {
    name: String,
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    read_only_hint: Option<bool>,
}

impl ListedTool {
    fn is_read_only(&self) -> bool {
        let annotations = self.annotations.as_ref();
        annotations.and_then(|it| it.read_only_hint) == Some(true)
    }
}

/// How many pages of tools are read.
const MAX_PAGES: usize = 1000;
/// The pause before a request is sent again because the server asked for that without a question.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
