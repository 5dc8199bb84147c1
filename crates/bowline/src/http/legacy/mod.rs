//! Serves legacy clients (2025-11-25 and earlier) over HTTP, on the same URL as modern ones.
//!
//! ```text
//! POST initialize ────▶ opens a session, whose id is in the response header `Mcp-Session-Id`, also if the request has one
//! POST with the id ───▶ messages for the session
//! GET with the id ────▶ an SSE stream; `Last-Event-ID` resumes one
//! DELETE with the id ─▶ ends the session
//! ```
//!
//! A session is a wire made of POST bodies and responses, with the same `Driver` and `Mux` as any other wire. A
//! disconnect never cancels here; a posted `notifications/cancelled` does, within its session.

mod ascending_map;

mod early_cancels;

mod event_pool;

mod event_store;
pub use event_store::{EventStore, MemoryEventStore, NextStored};

mod eviction;

mod inline_list;

mod http_sse;
pub(super) use http_sse::{answer_message_endpoint, message_endpoint};

mod live_id;

mod replicas;

mod response;

mod revival;

mod session;

mod session_cluster;

mod session_id;

mod session_record;

mod session_state;

mod sessions;

mod stateless;

mod streams;

mod verbs;
pub(super) use verbs::answer_verb;

#[cfg(test)]
mod model;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderValue;
use ::http::request::Parts;
use ::http::{Response, StatusCode};
use bowline_core::era::{Dialect, HttpTransportKind};
use bowline_core::http::admission::HttpRejection;
use bowline_core::http::headers;
use bowline_core::http::legacy::{
    LegacyPost, PostBody, SESSION_ID, UndecodedBatch, unexpected_batch,
};
use bowline_core::http::media::AcceptedTypes;
use bowline_core::json::pick;
use bowline_core::{BatchError, Malformed, Message, RawRequest, shortened};
use bowline_types::meta_key::PROGRESS_TOKEN;
use bowline_types::{ErrorCode, RequestId, RpcError};
use bytes::Bytes;

use super::server::{HttpBody, HttpService, ResponseFuture, ServiceState, body};
use crate::exchange::{InsufficientScope, Principal};
use crate::limits::{Account, Charge, Limit};
use http_sse::session_in_query;
use inline_list::InlineList;
use replicas::ReplicaSettings;
use response::{JsonShape, post_response, single_event_response};
use revival::{FoundSession, Handshake, find_session, new_session_id};
use session::{Session, already_in_flight, session_not_found};
use session_record::RecordChange;
use session_state::{DecodedPost, SessionTimeouts};
use sessions::{SessionOrigin, Sessions};
use streams::{ResponseForm, StreamLayout};

/// Configures how an [`HttpService`] serves legacy clients; passed to [`HttpService::legacy`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::http::legacy::Legacy;
///
/// # fn example(server: bowline::Server) -> bowline::http::HttpService {
/// server.http().legacy(Legacy::sessions().idle_timeout(Duration::from_secs(600)))
/// # }
/// ```
#[derive(Clone)]
#[must_use = "it has no effect until it is passed to `HttpService::legacy`"]
pub struct Legacy {
    mode: SessionMode,
    sessions: Arc<Sessions>,
    timeouts: SessionTimeouts,
    answer_form: AnswerForm,
    transports: LegacyTransports,
    retry: Option<Duration>,
    replicas: ReplicaSettings,
    /// Creates the event store of a session; `None` means a [`MemoryEventStore`] within the limits.
    store: Option<Arc<dyn Fn() -> Box<dyn EventStore> + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionMode {
    Sessions,
    Stateless,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerForm {
    Negotiated,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegacyTransports {
    StreamableHttp,
    WithHttpSse,
}

impl Legacy {
    /// Serves each client in a session, so that the server can send it requests and notifications.
    pub fn sessions() -> Self {
        Self {
            mode: SessionMode::Sessions,
            sessions: Arc::default(),
            timeouts: SessionTimeouts {
                idle_timeout: DEFAULT_IDLE_TIMEOUT,
                orphan_timeout: DEFAULT_ORPHAN_TIMEOUT,
            },
            answer_form: AnswerForm::Negotiated,
            transports: LegacyTransports::StreamableHttp,
            retry: Some(DEFAULT_RETRY),
            replicas: ReplicaSettings::default(),
            store: None,
        }
    }

    /// Serves each POST without a session, so that any of several processes can answer it. The server cannot send
    /// requests or change notifications, and ignores `notifications/cancelled`.
    pub fn stateless() -> Self {
        Self {
            mode: SessionMode::Stateless,
            ..Self::sessions()
        }
    }

    /// Sets how long a session may be idle before its memory is freed. Default: 30 min; [`Duration::MAX`] means never. A
    /// session with an open response or a running call is not idle. Beyond
    /// [`Limits::sessions`](crate::Limits::sessions), the memory of the longest idle session is freed earlier.
    ///
    /// The next message of the client restores the session, until its [lifetime](Self::session_lifetime) is over. One for
    /// which handlers keep [values](crate::Context::connection_state) ends: they cannot be restored.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.idle_timeout = timeout;
        self
    }

    /// Sets how long a session may have no open response before its running calls are cancelled. Default: 5 min;
    /// [`Duration::MAX`] means never.
    pub fn orphan_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.orphan_timeout = timeout;
        self
    }

    /// Answers every POST of a session as JSON, unless the client accepts only `text/event-stream`. Notifications of a
    /// handler are then lost, and its requests to the client fail immediately.
    pub fn json_responses(mut self) -> Self {
        self.answer_form = AnswerForm::Json;
        self
    }

    /// Sets the SSE `retry` field (2025-11-25): how long a client waits before it resumes a stream. Default: 1 s.
    pub fn retry(mut self, after: Duration) -> Self {
        self.retry = Some(after);
        self
    }

    /// Sets the function that creates each session's event store, in place of a [`MemoryEventStore`] within
    /// [`Limits::session_events`](crate::Limits::session_events) and
    /// [`Limits::session_event_bytes`](crate::Limits::session_event_bytes).
    pub fn event_store<S: EventStore>(
        mut self,
        new_store: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        self.store = Some(Arc::new(move || Box::new(new_store())));
        self
    }

    /// Also serves HTTP+SSE, the transport of 2024-11-05: a GET without `Mcp-Session-Id` opens the stream, whose first
    /// event (`endpoint`) is the URL to POST to. A service that is bound to an address then answers at `/sse` too.
    pub fn http_sse(mut self) -> Self {
        self.transports = LegacyTransports::WithHttpSse;
        self
    }

    pub(super) fn has_http_sse(&self) -> bool {
        self.transports == LegacyTransports::WithHttpSse
    }

    pub(super) fn call_orphan_timeout(&self) -> Duration {
        self.timeouts.orphan_timeout
    }

    /// Returns whether a client may still resume a stream that has ended.
    pub(super) fn has_unread_streams(&self) -> bool {
        self.sessions.has_unread()
    }

    fn store(&self, account: &Account) -> Box<dyn EventStore> {
        match &self.store {
            Some(make) => make(),
            None => {
                let counters = account.counters().clone();
                Box::new(MemoryEventStore::with_limits(account.limits(), counters))
            }
        }
    }

    fn timeouts(&self) -> SessionTimeouts {
        self.timeouts
    }

    fn retry_millis(&self) -> Option<u64> {
        let millis = self.retry?.as_millis();
        Some(u64::try_from(millis).map_or(MAX_RETRY, |millis| millis.min(MAX_RETRY)))
    }
}

impl Default for Legacy {
    fn default() -> Self {
        Self::sessions()
    }
}

impl HttpService {
    /// Sets how legacy clients are served.
    pub fn legacy(self, legacy: Legacy) -> Self {
        self.modify(|state| state.legacy = legacy)
    }

    /// Enables HTTP+SSE in builds with the legacy era.
    #[allow(dead_code, reason = "only the feature `testing` calls it")]
    pub(crate) fn with_http_sse(self) -> Self {
        self.legacy(Legacy::sessions().http_sse())
    }

    /// Returns the number of open sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.state.legacy.sessions.len()
    }
}

/// Answers a POST of a legacy client.
pub(super) fn answer(
    state: &Arc<ServiceState>,
    head: Parts,
    accepts: AcceptedTypes,
    body: &Bytes,
    post: LegacyPost,
    charge: Charge,
) -> Result<ResponseFuture, HttpRejection> {
    let legacy = &state.legacy;
    let head_bytes = charge.bytes().saturating_sub(body.len());
    // The requests of a batch are refused one by one, further inside.
    if let PostBody::One(Message::Request(raw)) = &post.messages
        && state.refuses(&raw.method, raw.params.as_ref())
    {
        return Err(state.refusal().with_id(raw.id.clone()));
    }
    if legacy.mode == SessionMode::Stateless {
        return stateless::answer(state, head, accepts, post, charge, head_bytes);
    }
    let post = SessionPost {
        accepts,
        messages: post.messages,
        charge,
        head_bytes,
    };
    if session_in_query(legacy, &head).is_some() {
        return Err(session_not_found());
    }
    let initialize_id = post.initialize_id();
    // A client that names a session and initializes gets another one: others may use the first, behind a gateway.
    if initialize_id.is_none()
        && let Some(id) = session_id(&head)?
    {
        return match find_session(state, id, &principal(&head))? {
            FoundSession::Live(session) => answer_session_post(state, &session, head, post),
            FoundSession::Retired(retired) => {
                let state = state.clone();
                Ok(ResponseFuture::Awaited(Box::pin(async move {
                    let session = retired.revive(&state).await?;
                    answer_session_post(&state, &session, head, post)?.await
                })))
            }
        };
    }
    let Some(id) = initialize_id else {
        return Err(bad_request("`Mcp-Session-Id` is missing"));
    };
    if !serves(state, HttpTransportKind::Streamable) {
        // 405 makes a client fall back to HTTP+SSE: it opens the stream, which names the URL to POST to.
        let why = "Streamable HTTP is not supported";
        return Err(HttpRejection::new(StatusCode::METHOD_NOT_ALLOWED, why));
    }
    let state = state.clone();
    let opening = async move {
        let opened = open(&state, head, post).await;
        opened.map_err(|refused| refused.with_id(id))
    };
    Ok(ResponseFuture::Awaited(Box::pin(opening)))
}

/// A POST to a session, or one that opens a session.
struct SessionPost {
    accepts: AcceptedTypes,
    messages: PostBody,
    charge: Charge,
    /// The part of the charge that is for the head.
    head_bytes: usize,
}

/// Opens a session by answering `initialize`.
async fn open(
    state: &Arc<ServiceState>,
    head: Parts,
    post: SessionPost,
) -> Result<Response<HttpBody>, HttpRejection> {
    let legacy = &state.legacy;
    if let Some(cluster) = legacy.sessions.cluster(state) {
        cluster.ready().await;
    }
    // Dropping this future ends the session unless it was published, so a client that disconnects leaves none behind.
    let running = legacy.sessions.start(
        state,
        legacy,
        StreamLayout::StreamableHttp,
        principal(&head),
        SessionOrigin::Handshake,
    )?;
    let session = running.session.clone();
    let (response, is_negotiated) = answer_initialize(state, &session, head, post).await?;
    if is_negotiated {
        legacy.sessions.publish(running)?;
    }
    Ok(response)
}

/// Has the session's engine answer `initialize`. Returns the response and whether a version was negotiated; if so, the
/// response contains `Mcp-Session-Id`.
async fn answer_initialize(
    state: &ServiceState,
    session: &Arc<Session>,
    head: Parts,
    post: SessionPost,
) -> Result<(Response<HttpBody>, bool), HttpRejection> {
    let (accepts, principal) = (post.accepts, principal(&head));
    let (decoded, _) = post.decode(state, head)?;
    let request = decoded.requests().next().cloned();
    let Some(mut reader) = session.post(decoded, Some(ResponseForm::Json))? else {
        return Err(session_not_found());
    };
    std::future::poll_fn(|cx| reader.poll_form(cx)).await;
    let Some(answer) = reader.take_answers().pop() else {
        return Err(session_not_found());
    };
    let mut response = if accepts.json {
        body::whole(StatusCode::OK, answer.clone())
    } else {
        single_event_response(&answer)
    };
    let Some(handshake) = Handshake::of(request.as_ref(), &answer) else {
        return Ok((response, false));
    };
    session.set_dialect(handshake.caller.dialect);
    session.set_id(new_session_id(state, &principal, &handshake)?);
    let id = HeaderValue::try_from(&*session.id()).expect("base64 and digits are visible ASCII");
    response.headers_mut().insert(SESSION_ID, id);
    Ok((response, true))
}

/// Answers a POST to a session.
fn answer_session_post(
    state: &Arc<ServiceState>,
    session: &Arc<Session>,
    head: Parts,
    post: SessionPost,
) -> Result<ResponseFuture, HttpRejection> {
    let accepts = post.accepts;
    // The negotiated version decides, even if the client sends no `MCP-Protocol-Version`.
    if matches!(post.messages, PostBody::Batch(_)) && !session.dialect().batches {
        return Err(unexpected_batch());
    }
    let principal = principal(&head);
    let (decoded, shape) = post.decode(state, head)?;
    if let Some(refusal) = missing_scopes_response(state, &principal, &decoded) {
        return Ok(ResponseFuture::Ready(refusal));
    }
    if let Some(cluster) = state.legacy.sessions.cluster(state)
        && concerns_other_replicas(&decoded)
    {
        let (state, session) = (state.clone(), session.clone());
        let (cluster, mut decoded) = (cluster.clone(), decoded);
        return Ok(ResponseFuture::Awaited(Box::pin(async move {
            cluster.before_post(&session, &mut decoded).await?;
            queue_session_post(&state, &session, decoded, shape, accepts)?.await
        })));
    }
    if decoded
        .responses()
        .any(|answer| session.is_foreign_answer(answer))
    {
        return Err(bad_request(FOREIGN_ANSWER));
    }
    queue_session_post(state, session, decoded, shape, accepts)
}

/// Returns whether a POST may have to be passed on to other replicas.
fn concerns_other_replicas(decoded: &DecodedPost) -> bool {
    let mut changes = decoded.requests().filter_map(RecordChange::of);
    changes.next().is_some()
        || decoded.responses().next().is_some()
        || decoded.notifications().next().is_some()
}

/// Passes a POST to its session, and starts its response.
fn queue_session_post(
    state: &Arc<ServiceState>,
    session: &Arc<Session>,
    decoded: DecodedPost,
    shape: JsonShape,
    accepts: AcceptedTypes,
) -> Result<ResponseFuture, HttpRejection> {
    if !decoded.wants_answer() {
        session.post(decoded, None)?;
        return Ok(ResponseFuture::Ready(body::empty(StatusCode::ACCEPTED)));
    }
    let form = if !accepts.events || (state.legacy.answer_form == AnswerForm::Json && accepts.json)
    {
        ResponseForm::Json
    } else if accepts.json {
        ResponseForm::Undecided
    } else {
        ResponseForm::Events
    };
    let stream_after = match form {
        ResponseForm::Json => None,
        ResponseForm::Events => Some(Duration::ZERO),
        ResponseForm::Undecided if decoded.requests().any(wants_progress) => Some(Duration::ZERO),
        ResponseForm::Undecided => Some(STREAM_AFTER),
    };
    let first = decoded.requests().next().map(|raw| raw.id.clone());
    let reader = session
        .post(decoded, Some(form))
        .map_err(|refused| match refused.id() {
            Some(_) => refused,
            None => refused.with_id(first),
        })?;
    let Some(reader) = reader else {
        return Err(session_not_found());
    };
    let response = post_response(state.clone(), reader, shape, stream_after);
    Ok(ResponseFuture::Awaited(Box::pin(response)))
}

impl SessionPost {
    /// Returns the id of the request if it is `initialize`.
    fn initialize_id(&self) -> Option<RequestId> {
        match &self.messages {
            PostBody::One(Message::Request(raw)) if raw.method == INITIALIZE => {
                Some(raw.id.clone())
            }
            PostBody::One(_) | PostBody::Batch(_) => None,
        }
    }

    /// Decodes the messages. A batch is decoded only here, after the checks that may reject it.
    fn decode(
        self,
        state: &ServiceState,
        head: Parts,
    ) -> Result<(DecodedPost, JsonShape), HttpRejection> {
        let (messages, refusals, shape) = match self.messages {
            PostBody::One(message) => {
                (InlineList::from_iter([message]), Vec::new(), JsonShape::One)
            }
            PostBody::Batch(batch) => {
                let parts = decode_batch(state, &batch)?;
                let mut ids = BTreeSet::new();
                let requests = parts.iter().filter_map(|part| match part {
                    Ok(Message::Request(raw)) => Some(&raw.id),
                    _ => None,
                });
                if let Some(twice) = { requests }.find(|id| !ids.insert(*id)) {
                    return Err(already_in_flight(twice.clone()));
                }
                let is_initialize = |part: &Result<Message, Malformed>| matches!(part, Ok(Message::Request(raw)) if raw.method == INITIALIZE);
                if parts.iter().any(is_initialize) {
                    let why = "a batch must not contain `initialize`";
                    return Err(RpcError::new(ErrorCode::INVALID_REQUEST, why).into());
                }
                let refusals = error_responses(&parts);
                let messages = parts.into_iter().flatten().collect();
                (messages, refusals, JsonShape::Array)
            }
        };
        let decoded = DecodedPost::new(messages, refusals, head, self.charge, self.head_bytes);
        Ok((decoded, shape))
    }
}

/// Decodes a batch of at most `Limits::batch_messages`.
fn decode_batch(
    state: &ServiceState,
    batch: &UndecodedBatch,
) -> Result<Vec<Result<Message, Malformed>>, HttpRejection> {
    let max = state.account.limits().batch_messages;
    batch.decode(max).map_err(|refused| {
        if let BatchError::TooLong { .. } = refused {
            state.account.counters().refuse(Limit::BatchMessages, max);
        }
        refused.into()
    })
}

/// Returns status 403 if the principal of a POST lacks scopes that its requests need; once a stream is open, it is too
/// late for a status. An anonymous caller passes, because an inner layer may still authenticate it.
fn missing_scopes_response(
    state: &ServiceState,
    principal: &Principal,
    decoded: &DecodedPost,
) -> Option<Response<HttpBody>> {
    principal.name()?;
    let needed = |raw: &RawRequest| {
        state
            .responder
            .required_scopes(&raw.method, raw.params.as_ref())
    };
    let needed: BTreeSet<String> = decoded.requests().flat_map(needed).collect();
    let missing = InsufficientScope::check(&needed, principal).err()?;
    let id = decoded.requests().next()?.id.clone();
    Some(body::insufficient_scope(id, missing))
}

/// Returns whether a served legacy version uses this transport.
fn serves(state: &ServiceState, transport: HttpTransportKind) -> bool {
    let mut served = state.served.iter();
    served.any(|dialect| !dialect.is_modern() && dialect.http.transport == transport)
}

fn session_id(head: &Parts) -> Result<Option<&str>, HttpRejection> {
    single_header(head, &SESSION_ID)
}

fn single_header<'a>(
    head: &'a Parts,
    name: &::http::HeaderName,
) -> Result<Option<&'a str>, HttpRejection> {
    let value = headers::single_value(&head.headers, name)?;
    let text = value.map(std::str::from_utf8).transpose();
    text.map_err(|_| bad_request(&format!("`{name}` is not valid UTF-8")))
}

/// Rejects a GET or DELETE whose `MCP-Protocol-Version` is not a served legacy version.
fn check_version(state: &ServiceState, head: &Parts) -> Result<(), HttpRejection> {
    match single_header(head, &headers::PROTOCOL_VERSION)? {
        Some(version) if state.served.of(version).is_none_or(Dialect::is_modern) => {
            Err(bad_request(&format!(
                "Unsupported protocol version: {:?}",
                shortened(version)
            )))
        }
        _ => Ok(()),
    }
}

fn principal(head: &Parts) -> Principal {
    head.extensions.get().cloned().unwrap_or_default()
}

/// Returns the error responses to the malformed messages of a batch.
fn error_responses(parts: &[Result<Message, Malformed>]) -> Vec<Bytes> {
    let malformed = parts.iter().filter_map(|part| part.as_ref().err());
    malformed
        .filter_map(|malformed| malformed.clone().error_response())
        .map(|answer| Message::from(answer).to_frame())
        .collect()
}

fn wants_progress(raw: &RawRequest) -> bool {
    let meta = raw.params.as_ref().map(|params| params.member("_meta"));
    let Some(Ok(Some(meta))) = meta else {
        return false;
    };
    matches!(pick(&meta, [PROGRESS_TOKEN]), Ok([Some(token)]) if !token.is_null())
}

fn bad_request(why: &str) -> HttpRejection {
    HttpRejection::new(StatusCode::BAD_REQUEST, why)
}

impl std::fmt::Debug for Legacy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Legacy")
            .field("mode", &self.mode)
            .field("sessions", &self.sessions.len())
            .field("timeouts", &self.timeouts)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

const INITIALIZE: &str = "initialize";
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const DEFAULT_ORPHAN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
const DEFAULT_RETRY: Duration = Duration::from_secs(1);
/// The longest delay, in milliseconds, that `setTimeout` supports; browsers treat a longer one as zero.
const MAX_RETRY: u64 = i32::MAX as u64;
const FOREIGN_ANSWER: &str =
    "the answered request was sent by another replica, or before the session was freed";
/// How long a POST waits for an outcome before its response becomes a stream. Short, because a legacy client may hold
/// back a cancel until it has seen the response head.
const STREAM_AFTER: Duration = Duration::from_millis(10);
