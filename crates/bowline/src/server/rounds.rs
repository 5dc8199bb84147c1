//! Runs a handler round by round: what it asks and nobody has answered yet ends the round.
//!
//! ```text
//! request ──▶ open its state ──▶ poll the handler ──ready──▶ its outcome
//!                                      │
//!                                      └─pending, something is asked──▶ drop it, `input_required`
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::{Request, ServerAsksBy};
use bowline_core::input::{DEFAULT_STATE_LIMIT, Round, request_digest, request_state};
use bowline_core::{Outcome, shortened};
use bowline_types::{CallToolResult, ContentBlock, ErrorCode, Json, RpcError};

use super::sealed::{Bound, StateKeys, Unopened, longest_text};
use crate::exchange::{BoxFuture, Context, DEFAULT_ASK_TIMEOUT, Input, Once};
use crate::{Marks, MemoryMarks};

/// How a server gets input.
#[derive(Clone)]
pub(super) struct InputRules {
    pub(super) keys: StateKeys,
    /// The effects of `Context::once`.
    pub(super) marks: Arc<dyn Marks>,
    /// How many bytes a state may take before it is sealed.
    pub(super) state_limit: usize,
    /// How long a client may take to answer where it is asked directly.
    pub(super) ask_timeout: Duration,
}

impl Default for InputRules {
    fn default() -> Self {
        Self {
            keys: StateKeys::random(),
            marks: Arc::new(MemoryMarks::new()),
            state_limit: DEFAULT_STATE_LIMIT,
            ask_timeout: DEFAULT_ASK_TIMEOUT,
        }
    }
}

/// Has `handle` answer the request, with a context in which it may ask.
pub(super) fn in_rounds<'a>(
    rules: &'a InputRules,
    request: Request,
    cx: Context,
    handle: impl FnOnce(Request, Context) -> BoxFuture<'a, Outcome>,
) -> BoxFuture<'a, Outcome> {
    let dialect = request.caller.dialect;
    if cx.input().is_some() {
        // A server within a server: the outer one runs the rounds.
        return handle(request, cx);
    }
    if dialect.server_asks_by == ServerAsksBy::Request {
        // The handler runs once, and waits where it asks.
        let input = Input::new(Round::default(), rules.ask_timeout, None);
        return handle(request, cx.with_input(Arc::new(input)));
    }
    if !dialect.may_need_input(&request.method) {
        return handle(request, cx);
    }
    let round = match open_round(rules, &request, &cx) {
        Ok(round) => round,
        Err(error) => return Box::pin(std::future::ready(Err(error))),
    };
    let once = Once::of(&round, &rules.marks, rules.keys.state_lifetime());
    let input = Arc::new(Input::new(round, rules.ask_timeout, once));
    let cx = cx.with_input(input.clone());
    Box::pin(OneRound {
        handler: Some(handle(request.clone(), cx.clone())),
        input,
        rules,
        request,
        cx,
    })
}

fn open_round(rules: &InputRules, request: &Request, cx: &Context) -> Result<Round, RpcError> {
    let params = &request.params;
    let Some(text) = request_state(params).map_err(|rejection| rejection.to_rpc_error())? else {
        return Round::open(params, None).map_err(|rejection| rejection.to_rpc_error());
    };
    if text.len() > longest_text(rules.state_limit) {
        return Err(Unopened::Foreign.into());
    }
    let state = rules.keys.open(&text, bound(request, cx))?;
    Round::open(params, Some(&state)).map_err(|rejection| rejection.to_rpc_error())
}

fn bound<'a>(request: &Request, cx: &'a Context) -> Bound<'a> {
    Bound {
        request: request_digest(&request.method, Some(&request.params)),
        principal: cx.principal(),
    }
}

/// One run of a handler.
struct OneRound<'a> {
    handler: Option<BoxFuture<'a, Outcome>>,
    input: Arc<Input>,
    rules: &'a InputRules,
    request: Request,
    cx: Context,
}

impl Future for OneRound<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Outcome> {
        self.input.wake_on_question(task.waker());
        let Some(handler) = &mut self.handler else {
            return Poll::Pending;
        };
        if let Poll::Ready(outcome) = handler.as_mut().poll(task) {
            self.handler = None;
            self.dismiss();
            return Poll::Ready(self.tell_unaskable(outcome));
        }
        if !self.input.is_pending() {
            return Poll::Pending;
        }
        // Taken first: a handler that is dropped takes its questions back.
        let round = self.input.take_round();
        self.handler = None;
        self.cx.cancel();
        Poll::Ready(self.finish(round.unwrap_or_default()))
    }
}

impl OneRound<'_> {
    /// The handler has its outcome. What it has spawned and still asks is not asked any more.
    fn dismiss(&self) {
        let round = self.input.take_round();
        if round.is_some_and(|round| round.is_pending()) {
            self.cx.cancel();
        }
    }

    /// A tool tells its failures to the model. But what the client lacks is told to the client, which may
    /// know how to get it.
    fn tell_unaskable(&self, outcome: Outcome) -> Outcome {
        let Some(unaskable) = self.input.take_unaskable() else {
            return outcome;
        };
        let failure = outcome.as_ref().ok().and_then(tool_failure);
        if failure.is_some_and(|text| text == unaskable.why) {
            return Err(unaskable.error);
        }
        outcome
    }

    fn finish(&self, mut round: Round) -> Outcome {
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, method = %shortened(&self.request.method), "a round could not be ended");
            RpcError::new(
                ErrorCode::INTERNAL_ERROR,
                "the state of the request cannot be kept",
            )
        };
        Once::ensure_lineage(&mut round).map_err(|error| failed(&error))?;
        let required = round
            .finish(self.rules.state_limit)
            .map_err(|error| failed(&error))?
            .ok_or_else(|| failed(&"nothing is asked"))?;
        let sealed = self
            .rules
            .keys
            .seal(&required.state, bound(&self.request, &self.cx))
            .map_err(|error| failed(&error))?;
        Ok(required.to_result(&sealed))
    }
}

/// What a tool says that failed.
fn tool_failure(result: &Json) -> Option<String> {
    let result: CallToolResult = result.decode().ok()?;
    match result.content.into_iter().next() {
        Some(ContentBlock::Text(text)) if result.is_error == Some(true) => Some(text.text),
        _ => None,
    }
}
