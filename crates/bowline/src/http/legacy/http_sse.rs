//! HTTP+SSE, the transport of 2024-11-05: one stream, and an endpoint to POST to.
//!
//! The stream is the session, so it is not revived: a POST that reaches another replica is delivered to the one that
//! has the stream, which the id names.
//!
//! ```text
//! id = 32 random hexadecimal digits, and with a cluster 16 that name the replica
//! ```

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderMap, Response, StatusCode};
use bowline_core::era::HttpTransportKind;
use bowline_core::http::admission::HttpRejection;
use bowline_core::http::legacy::{PostBody, unexpected_batch};
use bowline_core::http::media::AcceptedTypes;
use bowline_core::{Message, is_batch};
use bytes::Bytes;

use super::live_id::OwnerId;
use super::response::http_sse_response;
use super::session::{Session, session_not_found};
use super::sessions::{SessionOrigin, random_session_id};
use super::streams::{StreamLayout, UNSOLICITED};
use super::{
    Legacy, LegacyTransports, SessionMode, SessionPost, missing_scopes_response, principal, serves,
};
use crate::exchange::Principal;
use crate::http::server::{HttpBody, ResponseFuture, ServiceState, body};
use crate::limits::Charge;

/// The HTTP+SSE session that the URL of a POST names.
pub(in crate::http) struct HttpSseSession(SessionPlace);

enum SessionPlace {
    Here(Arc<Session>),
    /// On another replica, with this id.
    Elsewhere(OwnerId, String),
}

/// Returns the HTTP+SSE session that the URL of a POST names. An unknown id is not an error: the application's own URL
/// may contain the same query parameter.
pub(in crate::http) fn message_endpoint(
    state: &Arc<ServiceState>,
    head: &Parts,
) -> Option<HttpSseSession> {
    let sessions = &state.legacy.sessions;
    let id = session_in_query(&state.legacy, head)?;
    if let Ok(session) = sessions.find(id, &principal(head)) {
        return Some(HttpSseSession(SessionPlace::Here(session)));
    }
    let cluster = state.cluster.as_ref()?;
    let owner = OwnerId::parse(id.get(RANDOM_DIGITS..)?)?;
    let is_own = owner.0 == *cluster.replica().as_bytes();
    (!is_own).then(|| HttpSseSession(SessionPlace::Elsewhere(owner, id.to_owned())))
}

/// Answers a POST to the message endpoint of HTTP+SSE.
///
/// The URL decides the era, not headers or `_meta`. A client that probes for the modern era gets its answer within the
/// session and then sends `initialize`; an HTTP error status would make it drop the connection.
pub(in crate::http) fn answer_message_endpoint(
    state: &Arc<ServiceState>,
    HttpSseSession(place): HttpSseSession,
    head: Parts,
    accepts: AcceptedTypes,
    body: &Bytes,
    charge: Charge,
) -> Result<ResponseFuture, HttpRejection> {
    if is_batch(body) {
        return Err(unexpected_batch()); // only 2025-03-26 has batches, and it has no HTTP+SSE
    }
    let message = Message::decode(body)?;
    match place {
        SessionPlace::Here(session) => {
            let post = SessionPost {
                accepts,
                messages: PostBody::One(message),
                head_bytes: charge.bytes().saturating_sub(body.len()),
                charge,
            };
            queue_post(state, &session, head, post).map(ResponseFuture::Ready)
        }
        SessionPlace::Elsewhere(owner, id) => {
            let cluster = state.legacy.sessions.cluster(state).cloned();
            let cluster = cluster.ok_or_else(session_not_found)?;
            let (principal, body) = (principal(&head), body.clone());
            Ok(ResponseFuture::Awaited(Box::pin(async move {
                let _charge = charge;
                cluster.deliver(owner, id, &principal, &body).await?;
                Ok(body::empty(StatusCode::ACCEPTED))
            })))
        }
    }
}

/// Passes a POST to the message endpoint to its session; responses go onto the SSE stream.
fn queue_post(
    state: &ServiceState,
    session: &Arc<Session>,
    head: Parts,
    post: SessionPost,
) -> Result<Response<HttpBody>, HttpRejection> {
    let principal = principal(&head);
    let (decoded, _) = post.decode(state, head)?;
    if let Some(refusal) = missing_scopes_response(state, &principal, &decoded) {
        return Ok(refusal);
    }
    session.post(decoded, None)?;
    Ok(body::empty(StatusCode::ACCEPTED))
}

/// Why a POST that another replica has received is not accepted.
pub(super) enum DeliverError {
    /// There is no such session.
    Gone,
    Refused(StatusCode, String),
}

/// Passes a POST that another replica has received to its session.
pub(super) fn accept_delivered(
    state: &ServiceState,
    id: &str,
    principal: Principal,
    frame: &Bytes,
) -> Result<(), DeliverError> {
    let session = state.legacy.sessions.find(id, &principal);
    let session = session.map_err(|_| DeliverError::Gone)?;
    let refused =
        |refused: HttpRejection| DeliverError::Refused(refused.status(), refused.to_string());
    let (mut head, ()) = ::http::Request::new(()).into_parts();
    head.extensions.insert(principal);
    let mut charge = state.charge(&head).map_err(refused)?;
    let head_bytes = charge.bytes();
    if !charge.try_grow(frame.len()) {
        let why = "too much memory is in use".to_owned();
        return Err(DeliverError::Refused(StatusCode::SERVICE_UNAVAILABLE, why));
    }
    let message = Message::decode(frame).map_err(|malformed| refused(malformed.into()))?;
    let post = SessionPost {
        accepts: AcceptedTypes::read(&HeaderMap::new()),
        messages: PostBody::One(message),
        charge,
        head_bytes,
    };
    let answered = queue_post(state, &session, head, post).map_err(refused)?;
    match answered.status() {
        StatusCode::ACCEPTED => Ok(()),
        status => Err(DeliverError::Refused(
            status,
            "insufficient scope".to_owned(),
        )),
    }
}

/// Opens an HTTP+SSE session: an SSE stream whose first event names the message endpoint.
pub(super) fn open_http_sse(
    state: &Arc<ServiceState>,
    head: &Parts,
) -> Result<Response<HttpBody>, HttpRejection> {
    let legacy = &state.legacy;
    let charge = state.charge_stream(head)?;
    let (layout, origin) = (StreamLayout::HttpSse, SessionOrigin::Handshake);
    let running = legacy
        .sessions
        .start(state, legacy, layout, principal(head), origin)?;
    let session = running.session.clone();
    session.set_id(new_id(state)?);
    let reader = session
        .attach(UNSOLICITED, None)
        .map_err(|_| session_not_found())?;
    legacy.sessions.publish(running)?;
    let endpoint = format!("{}?{SESSION_PARAMETER}={}", head.uri.path(), session.id());
    let sessions = legacy.sessions.clone();
    Ok(http_sse_response(state, reader, endpoint, sessions, charge))
}

fn new_id(state: &Arc<ServiceState>) -> Result<Arc<str>, HttpRejection> {
    let sessions = &state.legacy.sessions;
    let random = random_session_id()?;
    // Also starts to receive what other replicas deliver.
    match sessions.cluster(state) {
        Some(_) => Ok(format!("{random}{}", sessions.owner(state)?).into()),
        None => Ok(random),
    }
}

pub(super) fn serves_http_sse(state: &ServiceState) -> bool {
    state.legacy.transports == LegacyTransports::WithHttpSse
        && serves(state, HttpTransportKind::HttpSse)
}

pub(super) fn session_in_query<'a>(legacy: &Legacy, head: &'a Parts) -> Option<&'a str> {
    if legacy.mode == SessionMode::Stateless
        || legacy.transports == LegacyTransports::StreamableHttp
    {
        return None;
    }
    let mut pairs = head.uri.query()?.split('&');
    pairs.find_map(|pair| pair.strip_prefix(SESSION_PARAMETER)?.strip_prefix('='))
}

/// The query parameter of the message endpoint that contains the session id.
const SESSION_PARAMETER: &str = "session";
const RANDOM_DIGITS: usize = 32;
