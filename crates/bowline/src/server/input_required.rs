//! Runs one round of a multi round-trip request: the handler runs until it has an outcome, or waits for input that the
//! client has not sent yet.
//!
//! ```text
//! request ──▶ decrypt `requestState` ──▶ poll the handler ──ready──▶ its outcome
//!                                              │
//!                                              └─pending, input requested──▶ drop it, `input_required`
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::era::{InputMechanism, Request};
use bowline_core::input::{
    DEFAULT_MAX_STATE_BYTES, ServerRound, request_digest, sealed_request_state,
};
use bowline_core::{Outcome, shortened};
use bowline_types::{CallToolResult, ContentBlock, ErrorCode, Json, RpcError};

use super::request_state::{RequestStateKeys, StateBinding, StateError};
use crate::cluster::{Marks, MemoryMarks};
use crate::exchange::{BoxFuture, Context, DEFAULT_CLIENT_REQUEST_TIMEOUT, HandlerRun, OnceGuard};
use crate::seal::Sealer;

/// The settings for input from clients.
#[derive(Clone)]
pub(super) struct InputOptions {
    pub(super) keys: RequestStateKeys,
    /// The effects of `Context::once` that were performed.
    pub(super) marks: Arc<dyn Marks>,
    /// The maximum size of a state in bytes, before encryption.
    pub(super) state_limit: usize,
    /// The timeout of server-to-client requests (legacy protocol versions).
    pub(super) client_request_timeout: Duration,
}

impl Default for InputOptions {
    fn default() -> Self {
        Self {
            keys: RequestStateKeys::random(),
            marks: Arc::new(MemoryMarks::new()),
            state_limit: DEFAULT_MAX_STATE_BYTES,
            client_request_timeout: DEFAULT_CLIENT_REQUEST_TIMEOUT,
        }
    }
}

/// Answers the request with `handle`, in a context that can request input from the client.
pub(super) fn run_round<'a>(
    options: &'a InputOptions,
    request: Request,
    cx: Context,
    handle: impl FnOnce(Request, Context) -> BoxFuture<'a, Outcome>,
) -> BoxFuture<'a, Outcome> {
    let dialect = request.caller.dialect;
    if cx.input().is_some() {
        // Nested in another server, which runs the rounds.
        return handle(request, cx);
    }
    if dialect.input_mechanism == InputMechanism::Request {
        // The handler runs once, and awaits the responses to its server-to-client requests.
        let input = HandlerRun::with_client_requests(&cx, options.client_request_timeout);
        return handle(request, cx.with_input(Arc::new(input)));
    }
    if !dialect.may_need_input(&request.method) {
        return handle(request, cx);
    }
    let round = match open_round(options, &request, &cx) {
        Ok(round) => round,
        Err(error) => return Box::pin(std::future::ready(Err(error))),
    };
    let once = OnceGuard::of(&round, &options.marks, options.keys.state_lifetime());
    let input = Arc::new(HandlerRun::with_round(round, once));
    let cx = cx.with_input(input.clone());
    Box::pin(RoundFuture {
        handler: Some(handle(request.clone(), cx.clone())),
        input,
        options,
        request,
        cx,
    })
}

fn open_round(
    options: &InputOptions,
    request: &Request,
    cx: &Context,
) -> Result<ServerRound, RpcError> {
    let params = &request.params;
    let Some(text) = sealed_request_state(params).map_err(|rejection| rejection.to_rpc_error())?
    else {
        return ServerRound::open(params, None).map_err(|rejection| rejection.to_rpc_error());
    };
    // Longer than any text of `seal`: refused before it is decoded.
    if text.len() > Sealer::max_text_len(options.state_limit) {
        return Err(StateError::Foreign.into());
    }
    let state = options.keys.open(&text, binding(request, cx))?;
    ServerRound::open(params, Some(&state)).map_err(|rejection| rejection.to_rpc_error())
}

fn binding<'a>(request: &Request, cx: &'a Context) -> StateBinding<'a> {
    StateBinding {
        request: request_digest(&request.method, Some(&request.params)),
        principal: cx.principal(),
    }
}

/// The future of one round.
struct RoundFuture<'a> {
    handler: Option<BoxFuture<'a, Outcome>>,
    input: Arc<HandlerRun>,
    options: &'a InputOptions,
    request: Request,
    cx: Context,
}

impl Future for RoundFuture<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Outcome> {
        // Registered at every poll: a task that the handler spawned may request input without waking the handler.
        self.input.wake_on_input_request(task.waker());
        let Some(handler) = &mut self.handler else {
            return Poll::Pending;
        };
        if let Poll::Ready(outcome) = handler.as_mut().poll(task) {
            self.handler = None;
            self.end_round();
            return Poll::Ready(self.report_missing_capability(outcome));
        }
        if !self.input.is_pending() {
            return Poll::Pending;
        }
        // The round is taken before the handler is dropped, which withdraws its pending input requests.
        let round = self.input.take_round();
        self.handler = None;
        self.cx.cancel();
        Poll::Ready(self.finish(round.unwrap_or_default()))
    }
}

impl RoundFuture<'_> {
    /// Ends the round of a handler that has an outcome. Tasks that it spawned and that still wait for input are
    /// cancelled.
    fn end_round(&self) {
        let round = self.input.take_round();
        if round.is_some_and(|round| round.is_pending()) {
            self.cx.cancel();
        }
    }

    /// Replaces the `isError` result of a tool that failed only because the client lacks a capability by a JSON-RPC
    /// error: the client may be able to provide the capability, and the model is not.
    fn report_missing_capability(&self, outcome: Outcome) -> Outcome {
        let Some(rejected) = self.input.take_rejected_input() else {
            return outcome;
        };
        let failure = outcome.as_ref().ok().and_then(tool_failure);
        if failure.is_some_and(|text| text == rejected.why) {
            return Err(rejected.error);
        }
        outcome
    }

    fn finish(&self, mut round: ServerRound) -> Outcome {
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, method = %shortened(&self.request.method), "failed to end a round");
            RpcError::new(
                ErrorCode::INTERNAL_ERROR,
                "failed to save the request state",
            )
        };
        OnceGuard::ensure_lineage(&mut round).map_err(|error| failed(&error))?;
        let required = round
            .finish(self.options.state_limit)
            .map_err(|error| failed(&error))?
            .ok_or_else(|| failed(&"no input is requested"))?;
        let sealed = self
            .options
            .keys
            .seal(&required.state, binding(&self.request, &self.cx))
            .map_err(|error| failed(&error))?;
        Ok(required.to_result(&sealed))
    }
}

/// Returns the first text of a tool result with `isError`.
fn tool_failure(result: &Json) -> Option<String> {
    let result: CallToolResult = result.decode().ok()?;
    match result.content.into_iter().next() {
        Some(ContentBlock::Text(text)) if result.is_error == Some(true) => Some(text.text),
        _ => None,
    }
}
