//! [`ReplayHost`]: answers the questions of a legacy server as they were answered in the recording.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::Context;
use bowline::exchange::{
    BoxFuture, Notification, NotifiedContext, Outcome, Params, RawInputRequest, Request, Responder,
};
use bowline::telemetry::Telemetry;
use bowline_types::{ErrorCode, Json, RequestId, RpcError};

use crate::conversation::{Question, Script};

/// The host of the client that replays a recording. Clones are the same host.
#[derive(Clone, Default)]
pub(super) struct ReplayHost(Arc<Mutex<Vec<ActiveCall>>>);

/// A call in progress, with the questions that the recorded server asked about it.
struct ActiveCall {
    number: usize,
    id: Option<RequestId>,
    questions: VecDeque<Question>,
    /// The questions of the server, each with the recorded one.
    asked: Vec<AskedQuestion>,
}

/// A question of the server, with the recorded one.
pub(super) struct AskedQuestion {
    pub(super) recorded: Option<RawInputRequest>,
    pub(super) actual: RawInputRequest,
}

impl ReplayHost {
    /// Opens a call with `open`, which returns the id of its request. No question about it arrives before it is known.
    pub(super) fn register<T>(
        &self,
        number: usize,
        script: &Script,
        open: impl FnOnce() -> (T, Option<RequestId>),
    ) -> (T, RegisteredCall) {
        let mut calls = self.lock();
        let (opened, id) = open();
        let questions = script.asks().flat_map(|(_, ask)| ask.questions.clone());
        calls.push(ActiveCall {
            number,
            id,
            questions: questions.collect(),
            asked: Vec::new(),
        });
        let host = self.clone();
        (opened, RegisteredCall { host, number })
    }

    fn answer(&self, within: Option<&RequestId>, question: &RawInputRequest) -> Outcome {
        let mut calls = self.lock();
        let by_id = calls
            .iter()
            .position(|call| within.is_some() && call.id.as_ref() == within);
        let expects = |call: &ActiveCall| {
            let mut questions = call.questions.iter();
            questions.any(|it| it.request.kind == question.kind)
        };
        // Over stdio a question does not name its call.
        let position = by_id.or_else(|| calls.iter().position(expects));
        let position = position.or_else(|| calls.len().checked_sub(1));
        let Some(call) = position.and_then(|position| calls.get_mut(position)) else {
            return Err(unknown_question(question));
        };
        let recorded = call.take_question(question);
        call.asked.push(AskedQuestion {
            recorded: recorded.as_ref().map(|it| it.request.clone()),
            actual: question.clone(),
        });
        match recorded.and_then(|recorded| recorded.answer) {
            Some(answer) => answer,
            None => Err(unknown_question(question)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ActiveCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveCall {
    /// Takes the next recorded question of the same kind.
    fn take_question(&mut self, question: &RawInputRequest) -> Option<Question> {
        let mut questions = self.questions.iter();
        let position = questions.position(|it| it.request.kind == question.kind)?;
        self.questions.remove(position)
    }
}

/// A call in progress, until it is dropped.
pub(super) struct RegisteredCall {
    host: ReplayHost,
    number: usize,
}

impl RegisteredCall {
    /// Answers a question of a modern server.
    pub(super) fn answer(&self, key: &str, question: &RawInputRequest) -> Outcome {
        let mut calls = self.host.lock();
        let Some(call) = calls.iter_mut().find(|call| call.number == self.number) else {
            return Err(unknown_question(question));
        };
        let mut questions = call.questions.iter();
        let same_key = questions.position(|it| it.key == key && it.request.kind == question.kind);
        let recorded = match same_key {
            Some(position) => call.questions.remove(position),
            None => call.take_question(question),
        };
        call.asked.push(AskedQuestion {
            recorded: recorded.as_ref().map(|it| it.request.clone()),
            actual: question.clone(),
        });
        let answer = recorded.and_then(|recorded| recorded.answer);
        answer.unwrap_or_else(|| Err(unknown_question(question)))
    }

    /// Ends the call; returns what was asked, and how many recorded questions were not.
    pub(super) fn finish(self) -> (Vec<AskedQuestion>, usize) {
        let mut calls = self.host.lock();
        let position = calls.iter().position(|call| call.number == self.number);
        let call = position.map(|position| calls.remove(position));
        drop(calls);
        call.map_or((Vec::new(), 0), |call| (call.asked, call.questions.len()))
    }
}

impl Drop for RegisteredCall {
    fn drop(&mut self) {
        let number = self.number;
        self.host.lock().retain(|call| call.number != number);
    }
}

impl Responder for ReplayHost {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let params = Json::clone(&request.params);
            match RawInputRequest::from_request(&request.method, Some(params)) {
                Some(question) => self.answer(cx.within(), &question),
                None => Err(RpcError::new(
                    ErrorCode::METHOD_NOT_FOUND,
                    format!("unknown method `{}`", request.method),
                )),
            }
        })
    }

    fn required_scopes(&self, _: &str, _: Option<&Params>) -> Vec<String> {
        Vec::new()
    }

    fn check(&self) -> bowline::Result<()> {
        Ok(())
    }

    fn notified(&self, _: &Notification, _: &NotifiedContext) {}

    fn telemetry(&self) -> Option<&Telemetry> {
        None
    }

    fn open_calls(&self) -> usize {
        0
    }
}

fn unknown_question(question: &RawInputRequest) -> RpcError {
    let method = question.kind.method();
    RpcError::internal(format!("the recording has no answer to this `{method}`"))
}
