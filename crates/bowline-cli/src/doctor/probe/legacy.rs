//! Probes of revisions with a handshake over HTTP: sessions, and cancellation by a posted notification.

use std::time::Duration;

use bowline::exchange::Dialect;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::cancel::{CancelCall, CancelOutcome, params};
use super::http::{Endpoint, EventReader, HttpAnswer, HttpLink, HttpOutcome, Outgoing};
use super::message::notification;
use super::{Reply, Request, accept_messages};

/// The outcome of a handshake over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    pub(crate) offered: &'static Dialect,
    pub(crate) outcome: HttpOutcome,
}

/// The id of the handshake's request.
pub(crate) const HANDSHAKE_ID: u64 = 1;

impl Handshake {
    pub(crate) async fn perform(endpoint: &Endpoint, offered: &'static Dialect) -> Self {
        let request = Request::initialize(HANDSHAKE_ID, offered);
        let outcome = endpoint.send(&Outgoing::post(&request)).await;
        Self { offered, outcome }
    }

    pub(crate) fn result(&self) -> Option<Value> {
        let reply = self.outcome.as_ref().ok()?.reply(HANDSHAKE_ID)?;
        reply.result().cloned()
    }

    /// The version that the server answered with, if it is known.
    pub(crate) fn dialect(&self) -> Option<&'static Dialect> {
        Dialect::of(self.result()?["protocolVersion"].as_str()?)
    }

    pub(crate) fn session_id(&self) -> Option<HeaderValue> {
        let answer = self.outcome.as_ref().ok()?;
        answer.headers.get(SESSION_ID).cloned()
    }

    /// The headers of all later requests.
    pub(crate) fn state_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        // The oldest revisions have no such header, and their servers ignore it.
        if let Some(dialect) = self.dialect() {
            let version = HeaderValue::from_static(dialect.version);
            headers.insert(HeaderName::from_static("mcp-protocol-version"), version);
        }
        if let Some(id) = self.session_id() {
            headers.insert(HeaderName::from_static(SESSION_ID), id);
        }
        headers
    }
}

/// What happens to the requests of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionFacts {
    /// The id, if the server issued one.
    pub(crate) id: Option<HeaderValue>,
    /// The answer to `notifications/initialized`.
    pub(crate) initialized: Option<HttpOutcome>,
    /// The answers to requests in the session, each on a connection of its own.
    pub(crate) requests: Vec<HttpOutcome>,
    /// The answers to DELETE, and to a request after it.
    pub(crate) ended: Option<(HttpOutcome, HttpOutcome)>,
}

/// Opens a session, uses it, and ends it.
pub(crate) async fn examine_session(endpoint: &Endpoint, handshake: &Handshake) -> SessionFacts {
    let headers = handshake.state_headers();
    let with_state = |mut outgoing: Outgoing| {
        outgoing.headers.extend(headers.clone());
        outgoing
    };
    let initialized = notification("notifications/initialized", &Value::Null);
    let initialized = endpoint
        .send(&with_state(Outgoing::message(&initialized)))
        .await;
    let mut facts = SessionFacts {
        id: handshake.session_id(),
        initialized: Some(initialized),
        ..SessionFacts::default()
    };
    let dialect = handshake.dialect().unwrap_or(handshake.offered);
    let ping = |id| {
        with_state(Outgoing::post(&Request::new(
            id,
            dialect,
            "ping",
            json!({}),
        )))
    };
    for id in PINGS {
        facts.requests.push(endpoint.send(&ping(id)).await);
    }
    facts
}

/// Ends a session, and returns the answer to DELETE and to a request after it; `None` if there is no session.
pub(crate) async fn end_session(
    endpoint: &Endpoint,
    handshake: &Handshake,
) -> Option<(HttpOutcome, HttpOutcome)> {
    handshake.session_id()?;
    let headers = handshake.state_headers();
    let mut delete = Outgoing::new(Method::DELETE);
    delete.headers.extend(headers.clone());
    let deleted = endpoint.send(&delete).await;
    let dialect = handshake.dialect().unwrap_or(handshake.offered);
    let mut ping = Outgoing::post(&Request::new(99, dialect, "ping", json!({})));
    ping.headers.extend(headers);
    Some((deleted, endpoint.send(&ping).await))
}

/// Returns whether an answer means that the server does not know the session.
pub(crate) fn is_session_unknown(answer: &HttpAnswer) -> bool {
    matches!(answer.status, 400 | 404) && answer.reply(0).is_none_or(|it| it.result().is_none())
}

/// Calls a tool, posts `notifications/cancelled` after `start`, and reads the response of the call.
pub(crate) async fn cancel_over_http(
    link: &mut HttpLink<'_>,
    call: &CancelCall,
    start: Duration,
) -> CancelOutcome {
    if !link.state_headers.contains_key(SESSION_ID) {
        return CancelOutcome::NotApplicable(
            "the server issues no Mcp-Session-Id, so that it cannot match a posted cancel",
        );
    }
    let patience = link.endpoint.patience;
    let (request, outgoing) = link.prepare("tools/call", params(call));
    let starting = link.endpoint.start(&outgoing);
    tokio::pin!(starting);
    let started = Instant::now();
    let head = timeout_at(started + start, &mut starting).await;
    let mut response = match head {
        Ok(Ok((response, connection))) => Some((CallBody::new(response), connection)),
        Ok(Err(failure)) => return CancelOutcome::Failed(failure.to_string()),
        Err(_) => None, // no head before the answer
    };
    if let Some((body, _)) = &mut response {
        match body.read_until(started + start, request.id).await {
            CallEnd::Answered(Reply::Result(_)) | CallEnd::Ended => return CancelOutcome::TooFast,
            CallEnd::Answered(error) => return CancelOutcome::Failed(error.describe()),
            CallEnd::Open => {}
        }
    }

    let cancelled = json!({"requestId": request.id, "reason": "the doctor checks cancellation"});
    let mut cancel = Outgoing::message(&notification("notifications/cancelled", &cancelled));
    cancel.headers.extend(link.state_headers.clone());
    if let Err(failure) = link.endpoint.send(&cancel).await {
        return CancelOutcome::Failed(format!("the cancel: {failure}"));
    }
    let deadline = Instant::now() + patience.cancel;
    let (mut body, _connection) = match response {
        Some(response) => response,
        None => match timeout_at(deadline, &mut starting).await {
            Ok(Ok((response, connection))) => (CallBody::new(response), connection),
            Ok(Err(_)) => return CancelOutcome::Stopped,
            Err(_) => return CancelOutcome::Hung,
        },
    };
    match body.read_until(deadline, request.id).await {
        CallEnd::Answered(Reply::Result(_)) => CancelOutcome::Answered,
        CallEnd::Answered(Reply::Error { .. }) | CallEnd::Ended => CancelOutcome::Stopped,
        CallEnd::Open => CancelOutcome::Hung,
    }
}

/// The response of a call.
struct CallBody {
    body: Incoming,
    is_stream: bool,
    events: EventReader,
    /// A body that is not a stream, as far as it has arrived.
    text: Vec<u8>,
}

enum CallEnd {
    Answered(Reply),
    /// Without an answer.
    Ended,
    /// It goes on.
    Open,
}

impl CallBody {
    fn new(response: http::Response<Incoming>) -> Self {
        let media = response.headers().get(http::header::CONTENT_TYPE);
        let media = media.and_then(|it| it.to_str().ok()).unwrap_or_default();
        Self {
            is_stream: media.starts_with("text/event-stream"),
            body: response.into_body(),
            events: EventReader::new(),
            text: Vec::new(),
        }
    }

    async fn read_until(&mut self, deadline: Instant, id: u64) -> CallEnd {
        let find = |messages: Vec<Value>| messages.iter().find_map(|it| Reply::of(it, id));
        loop {
            let chunk = match timeout_at(deadline, self.body.frame()).await {
                Err(_) => return CallEnd::Open,
                Ok(None | Some(Err(_))) => {
                    let answer = find(accept_messages(&self.text));
                    return answer.map_or(CallEnd::Ended, CallEnd::Answered);
                }
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            };
            if self.is_stream {
                let Ok(messages) = self.events.push(chunk) else {
                    return CallEnd::Ended;
                };
                if let Some(reply) = find(messages) {
                    return CallEnd::Answered(reply);
                }
            } else if self.text.len() < MAX_BODY {
                self.text.extend_from_slice(&chunk);
            }
        }
    }
}

pub(crate) const SESSION_ID: &str = "mcp-session-id";
/// The ids of the requests in a session. Several, because a load balancer may choose the right replica by chance.
const PINGS: std::ops::Range<u64> = 2..8;
const MAX_BODY: usize = 4 << 20;
