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

/// Forwards a request of a legacy client, or one that no server asks about.
pub(crate) async fn forward(upstream: &Upstream, request: Request, cx: &Context) -> Outcome {
    let lease = upstream.lease(&request, cx).await?;
    let connection = open_connection(&lease)?;
    let _log_level = connection.set_log_level(&request.caller).await;
    let is_legacy_client = !request.caller.dialect.is_modern();
    if is_legacy_client && connection.dialect().is_modern() {
        let sent = upstream_request(connection, request.clone());
        let outcome = Box::pin(answer_rounds(upstream, &lease, sent, cx)).await;
        return tasks::task_required(&request, outcome);
    }
    let request = upstream_request(connection, request);
    let client = is_legacy_client.then(|| Arc::new(LegacyClient(cx.clone())));
    let open = || Relay::open(connection.channel(), request, options(upstream));
    let (mut relay, _registered) = match client {
        Some(client) => {
            let id = |relay: &Relay| relay.request_id().cloned();
            let (relay, registered) = connection.questions().register(client, open, id);
            (relay, Some(registered))
        }
        None => (open(), None),
    };
    outcome(upstream, lease.attempt(), relay.answer(cx).await)
}

/// Forwards a request of a legacy client to a modern server, which asks by returning `input_required`: the client is
/// asked, and the request is sent again with the answers.
pub(crate) async fn answer_rounds(
    upstream: &Upstream,
    lease: &ConnectionLease,
    mut request: Request,
    cx: &Context,
) -> Outcome {
    let connection = open_connection(lease)?;
    let mut rounds = None;
    loop {
        let mut relay = Relay::open(connection.channel(), request.clone(), options(upstream));
        let result = match relay.answer(cx).await {
            Ok(Answer::InputRequired(result)) => result,
            answer => return outcome(upstream, lease.attempt(), answer),
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

/// Converts the answer of an upstream.
pub(crate) fn outcome(
    upstream: &Upstream,
    attempt: Attempt,
    answer: Result<Answer, Error>,
) -> Outcome {
    match answer {
        Ok(Answer::Complete(result) | Answer::InputRequired(result)) => {
            upstream.succeeded();
            Ok(result)
        }
        Ok(Answer::Extension { result, .. }) => {
            upstream.succeeded();
            Ok(result)
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
