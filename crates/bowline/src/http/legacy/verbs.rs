//! GET and DELETE: streams of a session, and its end.

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{Method, Response, StatusCode};
use bowline_core::http::admission::HttpRejection;
use bowline_core::http::legacy::LAST_EVENT_ID;
use bowline_core::http::media::AcceptedTypes;

use super::http_sse::{open_http_sse, serves_http_sse};
use super::live_id::EventId;
use super::response::stream_response;
use super::revival::{FoundSession, find_session};
use super::session::Session;
use super::session_cluster::resume_elsewhere;
use super::sessions::session_key;
use super::streams::{AttachError, UNSOLICITED};
use super::{SessionMode, bad_request, check_version, principal, session_id, single_header};
use crate::http::server::{HttpBody, ResponseFuture, ServiceState, body};

/// Answers a GET or a DELETE.
pub(in crate::http) fn answer_verb(
    state: &Arc<ServiceState>,
    head: Parts,
) -> Result<ResponseFuture, HttpRejection> {
    let legacy = &state.legacy;
    if legacy.mode == SessionMode::Stateless {
        let why = "this server is stateless and has no sessions";
        return Err(HttpRejection::new(StatusCode::METHOD_NOT_ALLOWED, why));
    }
    check_version(state, &head)?;
    // Checked before a stream opens: a browser, or a client that looks for metadata, would wait for its end.
    if head.method == Method::GET && !AcceptedTypes::read(&head.headers).events {
        let why = "the client does not accept `text/event-stream`";
        return Err(HttpRejection::new(StatusCode::NOT_ACCEPTABLE, why));
    }
    let Some(id) = session_id(&head)? else {
        if head.method == Method::GET && serves_http_sse(state) {
            return open_http_sse(state, &head).map(ResponseFuture::Ready);
        }
        return Err(bad_request("`Mcp-Session-Id` is missing"));
    };
    let found = find_session(state, id, &principal(&head))?;
    let state = state.clone();
    Ok(ResponseFuture::Awaited(Box::pin(async move {
        if head.method == Method::DELETE {
            return Ok(end_session(&state, &head).await);
        }
        let session = match found {
            FoundSession::Live(session) => session,
            FoundSession::Retired(retired) => retired.revive(&state).await?,
        };
        open_stream(&state, &head, &session).await
    })))
}

/// Ends a session that was found, on all replicas.
async fn end_session(state: &Arc<ServiceState>, head: &Parts) -> Response<HttpBody> {
    let sessions = &state.legacy.sessions;
    if let Ok(Some(id)) = session_id(head) {
        sessions.end(id);
        if let Some(cluster) = sessions.cluster(state) {
            cluster.end(session_key(id)).await;
        }
    }
    body::empty(StatusCode::NO_CONTENT)
}

/// Answers a GET with a stream of a session: the one that `Last-Event-ID` names, or that of unsolicited messages.
async fn open_stream(
    state: &Arc<ServiceState>,
    head: &Parts,
    session: &Arc<Session>,
) -> Result<Response<HttpBody>, HttpRejection> {
    let last_event = single_header(head, &LAST_EVENT_ID)?;
    let last_event = last_event
        .map(|id| EventId::parse(id).ok_or_else(|| bad_request(UNKNOWN_EVENT)))
        .transpose()?;
    let charge = state.charge_stream(head)?;
    let cluster = state.legacy.sessions.cluster(state);
    let attached = match last_event {
        None => session.attach(UNSOLICITED, None),
        Some(event) if event.live == session.live() => {
            session.attach(event.key, Some(event.position))
        }
        // The client lost the stream of another live state: it gets all that it may have missed.
        Some(event) if event.key == UNSOLICITED => session.attach_after_gap(),
        Some(event) => {
            return match (cluster, event.live) {
                (Some(cluster), Some(live)) => {
                    let cluster = cluster.clone();
                    resume_elsewhere(state, cluster, session, (live, event), charge).await
                }
                _ => Err(bad_request(FOREIGN_EVENT)),
            };
        }
    };
    let reader = attached.map_err(attach_rejection)?;
    if let Some(cluster) = cluster
        && last_event.is_none_or(|event| event.key == UNSOLICITED)
    {
        cluster.attached(session).await;
    }
    Ok(stream_response(state, reader, Some(charge)))
}

fn attach_rejection(why: AttachError) -> HttpRejection {
    match why {
        AttachError::AlreadyOpen => {
            HttpRejection::new(StatusCode::CONFLICT, "the stream is already open")
        }
        AttachError::Unknown => bad_request(UNKNOWN_EVENT),
        AttachError::Lost => bad_request("events after `Last-Event-ID` have expired"),
        // The only status besides 200 that the specification defines for a GET. The TypeScript SDK does not count an
        // error as the response and resumes the stream after it; an empty stream would make it do so again.
        AttachError::Ended => {
            let why = "the stream ended at `Last-Event-ID`";
            HttpRejection::new(StatusCode::METHOD_NOT_ALLOWED, why)
        }
    }
}

const UNKNOWN_EVENT: &str = "`Last-Event-ID` is not an event of this session";
/// A stream that ends with the live state of a session cannot be continued.
const FOREIGN_EVENT: &str =
    "`Last-Event-ID` is of a call on another replica, or from before the session was freed";
