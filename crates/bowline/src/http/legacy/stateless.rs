//! Answers legacy requests without a session, each on its own.

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bowline_core::era::{
    Dialect, LegacyFeatures, Rejection as Refused, Request, RequestAction, legacy as era,
};
use bowline_core::http::admission::HttpRejection;
use bowline_core::http::legacy::{LegacyPost, PostBody};
use bowline_core::http::media::AcceptedTypes;
use bowline_core::{self as core, Malformed, Message, Notification, Outcome, RawRequest};
use bowline_types::{
    CancelledNotification, DiscoverRequest, ErrorCode, InitializedNotification, Json, Method,
    NotificationMethod, ProgressNotification, RequestId, RpcError, SetLevelRequest,
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use super::response::json_array;
use super::streams::MAX_SHORT_ANSWER_BYTES;
use super::{INITIALIZE, decode_batch, error_responses};
use crate::exchange::{Channel, ConnectionState, Context, NotificationSink, run_internal};
use crate::http::server::body::with_charge;
use crate::http::server::{
    HttpBody, ResponseFuture, RunningRequest, ServiceState, body, overloaded,
};
use crate::limits::{Account, Charge, ChargeKind, Limit};

/// Answers a POST of a legacy client.
pub(super) fn answer(
    state: &Arc<ServiceState>,
    head: Parts,
    accepts: AcceptedTypes,
    post: LegacyPost,
    mut charge: Charge,
    head_bytes: usize,
) -> Result<ResponseFuture, HttpRejection> {
    let dialect = post.dialect.unwrap_or(Dialect::ASSUMED_ON_HTTP);
    match post.messages {
        PostBody::One(Message::Request(raw)) => {
            answer_request(state, Arc::new(head), accepts, dialect, raw, charge)
        }
        PostBody::One(Message::Notification(notification)) => {
            notified(state, &head, dialect, &notification);
            Ok(ResponseFuture::Ready(body::empty(StatusCode::ACCEPTED)))
        }
        PostBody::One(Message::Response(_)) => Err(invalid("unexpected response message")),
        PostBody::Batch(batch) => {
            let parts = decode_batch(state, &batch)?;
            let batch = StatelessBatch {
                state: state.clone(),
                head: Arc::new(head),
                dialect,
                _head_charge: charge.split(head_bytes),
                account: charge.account().clone(),
            };
            // From here on each request has its own charge.
            drop(charge);
            let answers = async move { Ok(batch.answer(parts).await) };
            Ok(ResponseFuture::Awaited(Box::pin(answers)))
        }
    }
}

fn answer_request(
    state: &Arc<ServiceState>,
    head: Arc<Parts>,
    accepts: AcceptedTypes,
    dialect: &'static Dialect,
    raw: RawRequest,
    charge: Charge,
) -> Result<ResponseFuture, HttpRejection> {
    let id = raw.id.clone();
    if raw.method == SetLevelRequest::NAME {
        let answer = answer_set_level(state.clone(), head, dialect, raw, charge);
        return Ok(ResponseFuture::Awaited(Box::pin(answer)));
    }
    match admit(state, dialect, raw) {
        Ok(RequestAction::Dispatch { request, seal }) => {
            let running = RunningRequest::new(state, id, request, seal, head, charge);
            Ok(ResponseFuture::Running(running.respond(accepts)))
        }
        Ok(RequestAction::Respond(result)) => Ok(immediate_answer(id, Ok(result))),
        Ok(RequestAction::SubscribeResource(_) | RequestAction::UnsubscribeResource(_)) => {
            let why = "resource subscriptions require a session";
            Ok(immediate_answer(
                id,
                Err(RpcError::new(ErrorCode::METHOD_NOT_FOUND, why)),
            ))
        }
        // Not status 404, which means to a client that its session has ended.
        Err(refused) => Ok(immediate_answer(id, Err(refused.into()))),
    }
}

/// Answers `logging/setLevel`, which has no effect without a session: with a result if the responder declares `logging`.
async fn answer_set_level(
    state: Arc<ServiceState>,
    head: Arc<Parts>,
    dialect: &'static Dialect,
    raw: RawRequest,
    charge: Charge,
) -> Result<Response<HttpBody>, HttpRejection> {
    let id = raw.id.clone();
    let mut session = era::Session::without_handshake(dialect, LegacyFeatures::default());
    let caller = session.caller().clone();
    let discover = Request::new(DiscoverRequest::NAME, Json::empty_object(), caller);
    let cx = Context::new(id.clone(), &discover, Arc::new(NoSink))
        .with_principal(super::principal(&head));
    let discovered = run_internal(state.responder.clone(), discover, cx).await;
    if let Ok(result) = &discovered {
        let features = LegacyFeatures::of_handshake(result);
        session = era::Session::without_handshake(dialect, features);
    }
    let outcome = match session.admit(raw, &state.served) {
        Ok(RequestAction::Respond(result)) => Ok(result),
        Ok(_) => Ok(Json::empty_object()),
        Err(refused) => Err(refused.into()),
    };
    drop(charge);
    Ok(body::answer(StatusCode::OK, id, (outcome, None)))
}

/// The sink of a request that is not a client's.
struct NoSink;

impl NotificationSink for NoSink {
    fn notify(&self, _: Notification) {}

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        None
    }
}

/// Passes a notification to the responder. Cancels are dropped: they are matched within a session only.
fn notified(
    state: &ServiceState,
    head: &Parts,
    dialect: &'static Dialect,
    notification: &Notification,
) {
    let handled = [
        CancelledNotification::NAME,
        InitializedNotification::NAME,
        ProgressNotification::NAME,
    ];
    if !handled.contains(&&*notification.method) {
        let session = era::Session::without_handshake(dialect, LegacyFeatures::default());
        state.notified(head, notification, session.caller().clone());
    }
}

/// The requests of one batch.
struct StatelessBatch {
    state: Arc<ServiceState>,
    head: Arc<Parts>,
    dialect: &'static Dialect,
    _head_charge: Charge,
    account: Arc<Account>,
}

impl StatelessBatch {
    /// Answers the requests concurrently, and malformed messages with errors, in one array.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops every request, like closing the response of a single one.
    async fn answer(self, parts: Vec<Result<Message, Malformed>>) -> Response<HttpBody> {
        let mut answers = error_responses(&parts);
        let mut length = answers.iter().map(Bytes::len).sum();
        let mut charge = self.account.empty_charge(ChargeKind::Output);
        // Tasks, so that each is polled only when it is woken itself.
        let mut running = JoinSet::new();
        for part in parts {
            match part {
                Ok(Message::Request(raw)) => drop(running.spawn(self.answer_one(raw))),
                Ok(Message::Notification(notification)) => {
                    notified(&self.state, &self.head, self.dialect, &notification);
                }
                Ok(Message::Response(_)) | Err(_) => {}
            }
        }
        while let Some(answered) = running.join_next().await {
            // A task without an answer was dropped with the runtime; panics of handlers are caught further inside.
            let Ok((id, answer)) = answered else { continue };
            let (answer, more) = self.charge_within_limit(id, answer, length, &mut charge);
            length += more;
            answers.push(answer);
        }
        if answers.is_empty() {
            return body::empty(StatusCode::ACCEPTED);
        }
        body::whole(
            StatusCode::OK,
            with_charge(json_array(&answers), Some(charge)),
        )
    }

    fn answer_one(&self, raw: RawRequest) -> impl Future<Output = (RequestId, Bytes)> + 'static {
        let id = raw.id.clone();
        let params = raw.params.as_ref();
        let size = params.map_or(0, |params| params.as_bytes().len());
        let answering = match self.state.refuses(&raw.method, params) {
            true => Err(self.state.refusal()),
            false => self
                .account
                .charge_request(PER_REQUEST + size)
                .map_err(overloaded),
        };
        let answering = answering
            .and_then(|charge| {
                let head = self.head.clone();
                answer_request(&self.state, head, ONLY_JSON, self.dialect, raw, charge)
            })
            .map_err(|refused| refused.with_id(id.clone()));
        async move {
            let answered = match answering {
                Ok(answering) => answering.await,
                Err(refused) => Err(refused),
            };
            let answer = read_body(answered.unwrap_or_else(body::rejection)).await;
            (id, answer)
        }
    }

    /// Charges an answer, or returns a short error instead if all answers exceed a limit. Also returns its charge.
    fn charge_within_limit(
        &self,
        id: RequestId,
        answer: Bytes,
        length: usize,
        charge: &mut Charge,
    ) -> (Bytes, usize) {
        if answer.len() <= MAX_SHORT_ANSWER_BYTES {
            return (answer, 0);
        }
        let max = self.account.limits().output_bytes;
        let reached = if length > 0 && length + answer.len() > max {
            self.account.counters().refuse(Limit::OutputBytes, max)
        } else {
            match charge.grow(answer.len()) {
                Ok(()) => {
                    let length = answer.len();
                    return (answer, length);
                }
                Err(reached) => reached,
            }
        };
        let refusal = core::Response {
            id: Some(id),
            outcome: Err(reached.into()),
        };
        (Message::from(refusal).to_frame(), 0)
    }
}

async fn read_body(response: Response<HttpBody>) -> Bytes {
    let Ok(body) = response.into_body().collect().await;
    body.to_bytes()
}

fn admit(
    state: &ServiceState,
    dialect: &'static Dialect,
    raw: RawRequest,
) -> Result<RequestAction, Refused> {
    if raw.method == INITIALIZE {
        return era::admit_before_initialize(&raw, &state.served).map(|(_, action)| action);
    }
    // Subscriptions require a session, and `logging/setLevel` is answered elsewhere.
    let features = LegacyFeatures::default();
    era::Session::without_handshake(dialect, features).admit(raw, &state.served)
}

fn immediate_answer(id: RequestId, outcome: Outcome) -> ResponseFuture {
    ResponseFuture::Ready(body::answer(StatusCode::OK, id, (outcome, None)))
}

fn invalid(why: &str) -> HttpRejection {
    RpcError::new(ErrorCode::INVALID_REQUEST, why).into()
}

/// Estimated bytes of a running request: its task, its context.
const PER_REQUEST: usize = 2048;
/// The answers of a batch are sent as one array, so none of them can be a stream.
const ONLY_JSON: AcceptedTypes = AcceptedTypes {
    json: true,
    events: false,
};
