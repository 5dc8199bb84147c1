//! `Questions`, which passes the input requests of a task to the host, and its answers to the server.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bowline::client::ExtensionCall;
use bowline::exchange::BoxFuture;
use bowline::{Call, Error, Result};
use bowline_types::{Json, RpcError};
use tokio::time::{Instant, sleep_until};

use super::answers::Claim;
use super::backoff::{delay, is_transient};
use super::info::TaskInfo;
use super::task::Task;

pub(super) struct Questions {
    task: Arc<Task>,
    cx: ExtensionCall,
    /// Whether the application answers, instead of the host.
    is_manual: bool,
    timeout: Duration,
    /// The input requests of the latest state.
    open: BTreeMap<String, Json>,
    asking: Option<(Claim, HostAnswers)>,
    sending: Option<(Claim, Box<Call>)>,
    /// When answers may be sent again, and the failures in a row.
    retry_at: Instant,
    failures: u32,
    /// The keys whose answers the server refused.
    refused: Option<(Vec<String>, RpcError)>,
}

/// The future of the answers of the host, by key.
type HostAnswers = BoxFuture<'static, Result<BTreeMap<String, Json>>>;

/// What happened to the answers.
#[derive(Debug)]
pub(super) enum QuestionsEvent {
    /// The host has answered.
    Answered,
    /// The server has received the answers.
    Sent,
    /// The server has not received them; they will be sent again.
    Failed,
    /// The server refused them, which the next state explains.
    Refused,
}

impl Questions {
    pub(super) fn new(task: Arc<Task>, cx: ExtensionCall, timeout: Duration) -> Self {
        Self {
            task,
            cx,
            is_manual: false,
            timeout,
            open: BTreeMap::new(),
            asking: None,
            sending: None,
            retry_at: Instant::now(),
            failures: 0,
            refused: None,
        }
    }

    pub(super) fn manual(mut self, is_manual: bool) -> Self {
        self.is_manual = is_manual;
        self
    }

    /// Passes the input requests of a new state to the host, unless they were before.
    pub(super) fn received(&mut self, info: &TaskInfo) {
        self.open.clone_from(&info.input_requests);
        self.ask();
    }

    /// Checks that the server, in a state that it sent after it refused answers, does not still wait for them.
    ///
    /// # Errors
    ///
    /// The error of the refusal: waiting would not end.
    pub(super) fn check_refused(&mut self, info: &TaskInfo) -> Result<()> {
        match self.refused.take() {
            Some((keys, error)) if keys.iter().any(|key| info.input_requests.contains_key(key)) => {
                Err(Error::Rpc(error))
            }
            _ => Ok(()),
        }
    }

    fn ask(&mut self) {
        if self.is_manual || self.asking.is_some() {
            return;
        }
        let Some(claim) = self.task.answers.claim_open(self.open.keys()) else {
            return;
        };
        let mut requests = self.open.clone();
        // They are in order. A server may send so many that a search in all of them would take minutes.
        requests.retain(|key, _| claim.keys().binary_search(key).is_ok());
        let answers = self.cx.answer_input(&requests);
        self.asking = Some((claim, answers));
    }

    /// Waits for the next event; for ever while there are no input requests.
    ///
    /// # Errors
    ///
    /// The error of the host, or one of sending that is not worth repeating.
    ///
    /// # Cancel safety
    ///
    /// Safe: the state is kept.
    pub(super) async fn next(&mut self) -> Result<QuestionsEvent> {
        loop {
            if let Some((_, call)) = &mut self.sending {
                let answer = call.await.map(drop);
                return self.sent(answer);
            }
            if self.task.answers.has_ready() {
                sleep_until(self.retry_at).await;
                self.send();
            } else if let Some((_, answers)) = &mut self.asking {
                let answers = answers.await;
                return self.answered(answers);
            } else {
                pending::<()>().await;
            }
        }
    }

    fn answered(&mut self, answers: Result<BTreeMap<String, Json>>) -> Result<QuestionsEvent> {
        let asked = self.asking.take();
        let answers = answers?;
        if let Some((claim, _)) = asked {
            claim.answered(answers);
        }
        self.ask(); // what came meanwhile
        Ok(QuestionsEvent::Answered)
    }

    fn send(&mut self) {
        if let Some((claim, answers)) = self.task.answers.claim_ready() {
            let request = self.task.update(&answers).idle_timeout(self.timeout);
            self.sending = Some((claim, Box::new(request.start())));
        }
    }

    fn sent(&mut self, answer: Result<()>) -> Result<QuestionsEvent> {
        let Some((claim, _)) = self.sending.take() else {
            return Ok(QuestionsEvent::Failed);
        };
        match answer {
            Ok(()) => {
                self.failures = 0;
                claim.sent();
                Ok(QuestionsEvent::Sent)
            }
            Err(error) if is_transient(&error) && self.failures < MAX_FAILURES => {
                tracing::debug!(%error, "failed to send answers to a task; sending them again");
                self.failures += 1;
                self.retry_at = Instant::now() + delay(self.failures);
                Ok(QuestionsEvent::Failed) // dropping the claim makes them ready again
            }
            Err(Error::Rpc(error)) => {
                self.refused = Some((claim.keys().to_vec(), error));
                claim.sent();
                Ok(QuestionsEvent::Refused)
            }
            Err(error) => Err(error),
        }
    }
}

/// A server that answers `tasks/get` and fails `tasks/update` each time must not keep the call for ever.
const MAX_FAILURES: u32 = 20;
