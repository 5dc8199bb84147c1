//! [`Forwarded`]: a request that another replica answers.

use std::sync::Arc;
use std::time::Duration;

use bowline::cluster::{AskError, Cluster, ReplicaId};
use bowline::exchange::{Context, Notification, Outcome, Request};
use bowline::{Json, RpcError};
use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use super::Replicas;
use super::verbs::{
    ExchangeId, ForwardedRequest, ReplicaEvent, ReplicaQuestion, ReplicaReply, Verb, millis,
};
use crate::upstream::Upstream;

/// A request that another replica answers. Dropping it cancels the request there.
pub(super) struct Forwarded {
    exchange: Exchange,
    /// How many bytes of events were read.
    read: u64,
    /// The beginning of a line.
    line: Vec<u8>,
}

/// Why a request was not forwarded.
pub(super) enum ForwardError {
    /// The replica has ended, and has not received the request.
    Gone,
    /// The replica has refused the request, because it does not own the connections.
    NotOwner,
    Failed(RpcError),
}

/// What a question about the request is sent to.
struct Exchange {
    cluster: Cluster,
    service: Arc<str>,
    owner: ReplicaId,
    id: ExchangeId,
    has_ended: bool,
}

impl Forwarded {
    /// Sends a request to a replica.
    ///
    /// # Cancel safety
    ///
    /// The replica is told that the request was cancelled, whether it has received it or not.
    pub(super) async fn start(
        replicas: &Replicas,
        owner: ReplicaId,
        verb: Verb,
        upstream: &Upstream,
        request: &Request,
        cx: &Context,
    ) -> Result<Self, ForwardError> {
        let id = ExchangeId::random();
        let id = id.map_err(|error| ForwardError::Failed(RpcError::internal(error.to_string())))?;
        let mut exchange = Exchange {
            cluster: replicas.cluster.clone(),
            service: replicas.service.as_str().into(),
            owner,
            id,
            has_ended: false,
        };
        let question = ReplicaQuestion::Start {
            exchange: id,
            verb,
            upstream: upstream.name().to_owned(),
            request: Box::new(ForwardedRequest::new(request, cx)),
        };
        let mut reply = exchange.ask(&question, ASK_TIME).await;
        if matches!((&reply, verb), (Err(AskError::TimedOut), Verb::Attach)) {
            reply = exchange.ask(&question, ASK_TIME).await;
        }
        let error = match reply {
            Ok(ReplicaReply::Accepted) => {
                return Ok(Self {
                    exchange,
                    read: 0,
                    line: Vec::new(),
                });
            }
            Ok(ReplicaReply::NotOwner) => ForwardError::NotOwner,
            Ok(ReplicaReply::Busy) => ForwardError::Failed(busy()),
            // The first of two messages has started it, and it has ended.
            Ok(ReplicaReply::Gone) => ForwardError::Failed(lost()),
            Ok(_) => ForwardError::Failed(not_understood(upstream.name())),
            Err(AskError::ReplicaGone) => ForwardError::Gone,
            Err(error @ AskError::TooLarge { .. }) => {
                ForwardError::Failed(RpcError::internal(error.to_string()))
            }
            // Not known whether it has arrived: the drop of the exchange cancels it.
            Err(error) => return Err(ForwardError::Failed(unreachable(&error))),
        };
        exchange.has_ended = true;
        Err(error)
    }

    /// Passes notifications on until the outcome.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub(super) async fn outcome(mut self, cx: &Context) -> Outcome {
        let mut failing_since = None;
        loop {
            let question = ReplicaQuestion::Read {
                exchange: self.exchange.id,
                after: self.read,
                wait_millis: millis(READ_WAIT),
            };
            match self.exchange.ask(&question, READ_WAIT + ASK_TIME).await {
                Ok(ReplicaReply::Events { bytes, is_end }) => {
                    failing_since = None;
                    if let Some(outcome) = self.accept(&bytes, cx) {
                        self.exchange.has_ended = true;
                        return outcome;
                    }
                    if is_end {
                        return Err(lost());
                    }
                }
                Ok(_) | Err(AskError::ReplicaGone | AskError::TooLarge { .. }) => {
                    self.exchange.has_ended = true;
                    return Err(lost());
                }
                Err(error) => {
                    // Reading again is safe, and an engine that restarts is back within seconds.
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > READ_PATIENCE {
                        return Err(unreachable(&error));
                    }
                    tokio::time::sleep(READ_PAUSE).await;
                }
            }
        }
    }

    /// Passes the notifications of complete lines on; returns the outcome, if it is there.
    fn accept(&mut self, bytes: &Bytes, cx: &Context) -> Option<Outcome> {
        self.read += bytes.len() as u64;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if !self.line.ends_with(b"\n") {
                return None;
            }
            let line = std::mem::take(&mut self.line);
            match serde_json::from_slice(&line) {
                Ok(ReplicaEvent::Notification { method, params }) => {
                    cx.send(Notification::new(method, params));
                }
                Ok(ReplicaEvent::Result(result)) => return Some(Ok(result)),
                Ok(ReplicaEvent::Error(error)) => return Some(Err(error)),
                Err(error) => {
                    tracing::warn!(%error, "received an unknown event of another replica");
                }
            }
        }
        None
    }
}

impl Exchange {
    async fn ask(
        &self,
        question: &ReplicaQuestion,
        within: Duration,
    ) -> Result<ReplicaReply, AskError> {
        // These types always have a JSON form.
        let message = serde_json::to_vec(question).unwrap_or_default();
        let asked = self
            .cluster
            .ask(&self.service, self.owner, message.into(), within);
        asked.await.map(ReplicaReply::decode)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return; // the owner finds out that it is no longer read
        };
        if self.has_ended {
            return;
        }
        let exchange = Self {
            cluster: self.cluster.clone(),
            service: self.service.clone(),
            owner: self.owner,
            id: self.id,
            has_ended: true,
        };
        runtime.spawn(async move {
            let question = ReplicaQuestion::Cancel {
                exchange: exchange.id,
            };
            for _ in 0..2 {
                if !matches!(
                    exchange.ask(&question, ASK_TIME).await,
                    Err(AskError::TimedOut)
                ) {
                    return;
                }
            }
        });
    }
}

fn busy() -> RpcError {
    let data = json!({"reason": "replicaBusy", "retryable": true, "mayHaveRun": false});
    RpcError::internal("too many requests for the replica that is connected to the server")
        .with_data(Json::from(data))
}

fn not_understood(upstream: &str) -> RpcError {
    let what = format!("the replica that is connected to `{upstream}` has another configuration");
    RpcError::internal(what).with_data(Json::from(
        json!({"reason": "replicaDiffers", "mayHaveRun": false}),
    ))
}

fn unreachable(error: &AskError) -> RpcError {
    let what = format!("failed to reach the replica that is connected to the server: {error}");
    RpcError::internal(what).with_data(Json::from(
        json!({"reason": "replicaUnreachable", "mayHaveRun": true}),
    ))
}

/// The error of a call whose replica has ended, the same as for a parked call.
fn lost() -> RpcError {
    RpcError::internal("the call was lost; it may have run").with_data(Json::from(
        json!({"reason": "callLost", "mayHaveRun": true}),
    ))
}

/// How long a replica has for an answer.
const ASK_TIME: Duration = Duration::from_secs(5);
/// How long a replica waits for events.
const READ_WAIT: Duration = Duration::from_secs(20);
/// How long reading is tried while it fails. The other replica cancels after 30 s.
const READ_PATIENCE: Duration = Duration::from_secs(25);
const READ_PAUSE: Duration = Duration::from_millis(200);
