//! Forwards one request of a client to an upstream, and its answer back.
//!
//! What happens to a question of the server depends on the eras of both sides:
//!
//! ```text
//! client   server
//! legacy   legacy   a request to the client, while the call waits      `Questions`
//! legacy   modern   the same, and the call is sent again with answers  `answer_rounds`
//! modern   modern   the `input_required` result is passed on           `modern.rs`
//! modern   legacy   the call is parked until the client answers        `modern.rs`, `parked/`
//! ```

use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{Answer, CallOptions, Outcome, Relay, Request};
use bowline::{Context, Error, Json, RpcError};
use bowline_core::input::{ClientRounds, DEFAULT_MAX_ROUNDS, InputStep};

use crate::questions::{LegacyClient, ask_in};
use crate::tasks;
use crate::upstream::{Attempt, ConnectionLease, Upstream, UpstreamConnection};

/// A request that failed at an upstream.
pub(crate) struct FailedCall {
    error: RpcError,
    /// Whether the error is the answer of the server, which does not work on the request any more.
    is_answered: bool,
    /// Whether the request has not run, because it was sent in a version that the server does not have any more.
    pub(crate) must_send_again: bool,
}

impl From<RpcError> for FailedCall {
    fn from(error: RpcError) -> Self {
        Self {
            error,
            is_answered: false,
            must_send_again: false,
        }
    }
}

impl From<FailedCall> for RpcError {
    fn from(failed: FailedCall) -> Self {
        failed.error
    }
}

/// Forwards a request of a legacy client, or one that no server asks about.
pub(crate) async fn forward(upstream: &Upstream, request: Request, cx: &Context) -> Outcome {
    let mut outcome = forward_once(upstream, &request, cx).await;
    for _ in 1..MAX_SENDS {
        match outcome {
            Err(failed) if failed.must_send_again => {
                outcome = Box::pin(forward_once(upstream, &request, cx)).await;
            }
            _ => break,
        }
    }
    tasks::task_required(&request, outcome.map_err(RpcError::from))
}

async fn forward_once(
    upstream: &Upstream,
    request: &Request,
    cx: &Context,
) -> Result<Json, FailedCall> {
    let lease = upstream.lease(request, cx).await?;
    let connection = open_connection(&lease)?;
    let _log_level = connection.set_log_level(&request.caller).await;
    let is_legacy_client = !request.caller.dialect.is_modern();
    let request = upstream_request(connection, request.clone());
    if is_legacy_client && connection.dialect().is_modern() {
        return Box::pin(answer_rounds(upstream, &lease, request, cx)).await;
    }
    let client = is_legacy_client.then(|| Arc::new(LegacyClient(cx.clone())));
    let open = || Relay::open(connection.channel(), request, options(upstream));
    let (mut relay, mut registered) = match client {
        Some(client) => {
            let id = |relay: &Relay| relay.request_id().cloned();
            let (relay, registered) = connection.questions().register(client, open, id);
            (relay, Some(registered))
        }
        None => (open(), None),
    };
    let answer = relayed_answer(upstream, &lease, &mut relay, cx).await;
    let is_answered = answer.as_ref().err().is_none_or(|it| it.is_answered);
    if let Some(registered) = registered.as_mut().filter(|_| is_answered) {
        registered.answered();
    }
    Ok(result_of(answer?))
}

/// Forwards a request of a legacy client to a modern server, which asks by returning `input_required`: the client is
/// asked, and the request is sent again with the answers.
pub(crate) async fn answer_rounds(
    upstream: &Upstream,
    lease: &ConnectionLease,
    mut request: Request,
    cx: &Context,
) -> Result<Json, FailedCall> {
    let connection = open_connection(lease)?;
    let mut rounds = None;
    loop {
        let mut relay = Relay::open(connection.channel(), request.clone(), options(upstream));
        let result = match relayed_answer(upstream, lease, &mut relay, cx).await {
            Ok(Answer::InputRequired(result)) => result,
            Ok(answer) => return Ok(result_of(answer)),
            Err(failed) => {
                // The answers of the client are for the state of the server that has asked.
                let must_send_again = failed.must_send_again && rounds.is_none();
                return Err(FailedCall {
                    must_send_again,
                    ..failed
                });
            }
        };
        let rounds: &mut ClientRounds = match &mut rounds {
            Some(rounds) => rounds,
            none => {
                let params = Json::clone(&request.params);
                let new =
                    ClientRounds::new(request.method.clone(), Some(params), DEFAULT_MAX_ROUNDS);
                none.insert(new.map_err(|misuse| internal(&misuse))?)
            }
        };
        match rounds
            .next(&result)
            .map_err(|violation| internal(&violation))?
        {
            InputStep::Ask(questions) => {
                // One after the other: most clients show one dialog at a time.
                for (key, question) in questions {
                    let answer = ask_in(cx, question).await?;
                    rounds
                        .answer(&key, answer)
                        .map_err(|misuse| internal(&misuse))?;
                }
            }
            InputStep::Retry => tokio::time::sleep(retry_pause(rounds.round())).await,
        }
        let params = rounds.retry_params().map_err(|misuse| internal(&misuse))?;
        request.params = params.into();
    }
}

/// Returns the request as the upstream's connection sends it.
pub(crate) fn upstream_request(connection: &UpstreamConnection, mut request: Request) -> Request {
    request.caller = connection.caller(&request.caller);
    request
}

pub(crate) fn options(upstream: &Upstream) -> CallOptions {
    let mut options = CallOptions::default();
    options.idle_timeout = Some(upstream.settings().call_idle_timeout);
    options
}

/// Waits for the answer to a request, and checks the version of a server that answers with an error.
///
/// # Cancel safety
///
/// As [`Relay::answer`]; if the request has failed, the error is lost.
pub(crate) async fn relayed_answer(
    upstream: &Upstream,
    lease: &ConnectionLease,
    relay: &mut Relay,
    cx: &Context,
) -> Result<Answer, FailedCall> {
    let error = match relay.answer(cx).await {
        Ok(answer) => {
            upstream.succeeded();
            return Ok(answer);
        }
        Err(error) => error,
    };
    // Boxed: most calls succeed.
    let has_changed_era = Box::pin(upstream.has_changed_era(lease, &error)).await;
    Err(FailedCall {
        error: upstream.call_failed(lease.attempt(), &error),
        is_answered: matches!(error, Error::Rpc(_)),
        must_send_again: has_changed_era && relay.is_refused(),
    })
}

pub(crate) fn result_of(answer: Answer) -> Json {
    match answer {
        Answer::Complete(result) | Answer::InputRequired(result) => result,
        Answer::Extension { result, .. } => result,
    }
}

/// Converts the answer of an upstream.
pub(crate) fn outcome(
    upstream: &Upstream,
    attempt: Attempt,
    answer: Result<Answer, Error>,
) -> Outcome {
    match answer {
        Ok(answer) => {
            upstream.succeeded();
            Ok(result_of(answer))
        }
        Err(error) => Err(upstream.call_failed(attempt, &error)),
    }
}

pub(crate) fn open_connection(lease: &ConnectionLease) -> Result<&UpstreamConnection, RpcError> {
    // Open since `Upstream::lease` returned.
    lease
        .get()
        .ok_or_else(|| internal(&"the connection is not open"))
}

fn internal(error: &dyn std::fmt::Display) -> RpcError {
    RpcError::internal(error.to_string())
}

/// The pause before a request is sent again because the server asked for that without a question.
fn retry_pause(round: u32) -> Duration {
    Duration::from_millis(100).saturating_mul(1 << round.min(6))
}

/// How often a request is sent that servers of the other era refuse: a client may have two connections to the server that
/// was replaced, its own and the one that all clients share.
pub(crate) const MAX_SENDS: usize = 3;
