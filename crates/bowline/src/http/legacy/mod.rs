//! The legacy era over HTTP, on the same URL: sessions, their streams, and what came before them.
//!
//! ```text
//! POST initialize ──▶ a new session ──▶ its id, in a header
//! POST, GET, DELETE with that id ──▶ a message · a stream to read, again perhaps · the end
//! ```
//!
//! A session is a wire made of POSTs and responses, driven by the same engine as any other. A disconnect
//! never cancels here; a posted `notifications/cancelled` does, within its session.

mod by_key;
mod candidates;

mod early;

mod few;

mod pool;

mod response;

mod session;

mod sessions;

mod state;

mod stateless;

mod store;
pub use store::{After, EventStore, MemoryStore};

mod streams;

#[cfg(test)]
mod model;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue};
use ::http::request::Parts;
use ::http::{Method, Response, StatusCode};
use bowline_core::era::{Dialect, HttpTransport};
use bowline_core::http::admission::Rejection;
use bowline_core::http::headers;
use bowline_core::http::legacy::{Batch, LAST_EVENT_ID, Messages, Post, SESSION_ID, not_a_batch};
use bowline_core::http::media::Accepts;
use bowline_core::json::pick;
use bowline_core::{self as core, BatchError, Malformed, Message, RawRequest, is_batch, shortened};
use bowline_types::meta_key::PROGRESS_TOKEN;
use bowline_types::{InitializeResult, RequestId};
use bytes::Bytes;

use super::server::{HttpBody, HttpService, Site, Taken, body};
use crate::exchange::{InsufficientScope, Principal};
use crate::limits::{Account, Charge, Limit};
use few::Few;
use response::{Shape, answers, events, one_event, only_stream, parse_event_id};
use session::{Session, already_in_flight, gone};
use sessions::Sessions;
use state::{Patience, Posted};
use streams::{CannotRead, Form, Layout, UNSOLICITED};

/// How clients of the legacy era are served; [`HttpService::legacy`] takes one.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::http::legacy::Legacy;
///
/// # fn example(server: bowline::Server) -> bowline::http::HttpService {
/// server.http().legacy(Legacy::sessions().idle_after(Duration::from_secs(600)))
/// # }
/// ```
#[derive(Clone)]
#[must_use = "it is given to `HttpService::legacy`"]
pub struct Legacy {
    mode: Mode,
    sessions: Arc<Sessions>,
    patience: Patience,
    answers: Answers,
    endpoints: Endpoints,
    retry: Option<Duration>,
    /// Makes the store of a session; a [`MemoryStore`] within the limits if there is none.
    store: Option<Arc<dyn Fn() -> Box<dyn EventStore> + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Sessions,
    Stateless,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    AsFits,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoints {
    One,
    AlsoTwo,
}

impl Legacy {
    /// Remembers clients: each gets a session, and can be asked and told things.
    pub fn sessions() -> Self {
        Self {
            mode: Mode::Sessions,
            sessions: Arc::default(),
            patience: Patience {
                idle_after: IDLE_AFTER,
                orphan_limit: ORPHAN_LIMIT,
            },
            answers: Answers::AsFits,
            endpoints: Endpoints::One,
            retry: Some(RETRY),
            store: None,
        }
    }

    /// Remembers nothing, so that any of several processes may answer. Clients cannot be asked, told of
    /// changes, or cancel.
    pub fn stateless() -> Self {
        Self {
            mode: Mode::Stateless,
            ..Self::sessions()
        }
    }

    /// Ends a session whose client was silent for this long; 30 min unless told otherwise. An open response or a running
    /// call holds that off. [`Duration::MAX`] means never. Beyond [`Limits::sessions`](crate::Limits::sessions) the
    /// session that was idle for longest is ended earlier.
    pub fn idle_after(mut self, after: Duration) -> Self {
        self.patience.idle_after = after;
        self
    }

    /// Drops the calls of a session that has had no open response for this long; 5 min unless told
    /// otherwise. [`Duration::MAX`] means never.
    pub fn orphan_limit(mut self, limit: Duration) -> Self {
        self.patience.orphan_limit = limit;
        self
    }

    /// Answers every POST as JSON. What a handler says on the way is lost, and asking its client fails at
    /// once.
    pub fn json_answers(mut self) -> Self {
        self.answers = Answers::Json;
        self
    }

    /// Tells clients how long to wait before they come back to a stream they lost; 1 s unless told
    /// otherwise.
    pub fn retry(mut self, after: Duration) -> Self {
        self.retry = Some(after);
        self
    }

    /// Keeps the events of each new session in what this makes, in place of a [`MemoryStore`] within
    /// [`Limits::session_events`](crate::Limits::session_events) and
    /// [`Limits::session_event_bytes`](crate::Limits::session_event_bytes).
    pub fn event_store<S: EventStore>(
        mut self,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Self {
        self.store = Some(Arc::new(move || Box::new(make())));
        self
    }

    /// Also serves the two endpoints of 2024-11-05, HTTP+SSE: a GET without a session opens the stream,
    /// and its first event says where to post. A service that is bound to an address then answers at `/sse` too.
    pub fn http_sse(mut self) -> Self {
        self.endpoints = Endpoints::AlsoTwo;
        self
    }

    pub(super) fn has_http_sse(&self) -> bool {
        self.endpoints == Endpoints::AlsoTwo
    }

    pub(super) fn orphan_limit_of_calls(&self) -> Duration {
        self.patience.orphan_limit
    }

    fn store(&self, account: &Account) -> Box<dyn EventStore> {
        match &self.store {
            Some(make) => make(),
            None => {
                let meters = account.meters().clone();
                Box::new(MemoryStore::within(account.limits(), meters))
            }
        }
    }

    fn patience(&self) -> Patience {
        self.patience
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
    /// Decides how clients of the legacy era are served.
    pub fn legacy(self, legacy: Legacy) -> Self {
        self.having(|site| site.legacy = legacy)
    }

    /// Has the two endpoints of 2024-11-05 too, where there is a legacy era.
    #[allow(dead_code, reason = "only the feature `testing` calls it")]
    pub(crate) fn with_http_sse(self) -> Self {
        self.legacy(Legacy::sessions().http_sse())
    }

    /// How many sessions are open.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.site.legacy.sessions.len()
    }
}

/// Answers what a legacy client posted.
pub(super) fn answer(
    site: &Arc<Site>,
    head: Parts,
    accepts: Accepts,
    body: &Bytes,
    post: Post,
    charge: Charge,
) -> Result<Taken, Rejection> {
    let legacy = &site.legacy;
    let head_bytes = charge.bytes().saturating_sub(body.len());
    if legacy.mode == Mode::Stateless {
        return stateless::answer(site, head, accepts, post, charge, head_bytes);
    }
    let posting = Posting {
        accepts,
        messages: post.messages,
        charge,
        head_bytes,
    };
    if session_in_query(legacy, &head).is_some() {
        return Err(gone());
    }
    if let Some(id) = session_id(&head)? {
        let session = legacy.sessions.find(id, &principal(&head))?;
        return hear(site, &session, head, posting);
    }
    let Some(id) = posting.handshake() else {
        return Err(bad_request("`Mcp-Session-Id` is missing"));
    };
    if !serves(site, HttpTransport::Streamable) {
        // Tells a client of any age to ask for the stream, which names where to post.
        let why = "there is no Streamable HTTP here";
        return Err(Rejection::http(StatusCode::METHOD_NOT_ALLOWED, why));
    }
    let site = site.clone();
    let opening = async move {
        let opened = open(&site, head, posting).await;
        opened.map_err(|refused| refused.about(id))
    };
    Ok(Taken::Elsewhere(Box::pin(opening)))
}

/// The session whose second endpoint a POST goes to.
pub(super) struct SecondEndpoint(Arc<Session>);

/// Returns the HTTP+SSE session that the URL of a POST names. A URL that names none of ours may have such a query for
/// reasons of its own.
pub(super) fn second_endpoint(site: &Site, head: &Parts) -> Option<SecondEndpoint> {
    let legacy = &site.legacy;
    let id = session_in_query(legacy, head)?;
    let session = legacy.sessions.find(id, &principal(head));
    session.ok().map(SecondEndpoint)
}

/// Answers what was posted to the second of two endpoints.
///
/// Neither headers nor `_meta` are asked which era it belongs to: the URL has decided that. A client that probes for the
/// modern era first is answered within its session, where it then shakes hands; a refusal by status would end its
/// connection.
pub(super) fn answer_second_endpoint(
    site: &Arc<Site>,
    SecondEndpoint(session): &SecondEndpoint,
    head: Parts,
    accepts: Accepts,
    body: &Bytes,
    charge: Charge,
) -> Result<Taken, Rejection> {
    if is_batch(body) {
        return Err(not_a_batch()); // the version that has them has one endpoint
    }
    let posting = Posting {
        accepts,
        messages: Messages::One(Message::decode(body)?),
        head_bytes: charge.bytes().saturating_sub(body.len()),
        charge,
    };
    hear_only(site, session, head, posting).map(Taken::Now)
}

/// A POST of a client that has a session, or opens one.
struct Posting {
    accepts: Accepts,
    messages: Messages,
    charge: Charge,
    /// How much of the charge is for the head.
    head_bytes: usize,
}

/// Answers a GET or a DELETE.
pub(super) fn answer_verb(site: &Arc<Site>, head: &Parts) -> Result<Response<HttpBody>, Rejection> {
    let legacy = &site.legacy;
    if legacy.mode == Mode::Stateless {
        let why = "this server remembers no clients";
        return Err(Rejection::http(StatusCode::METHOD_NOT_ALLOWED, why));
    }
    check_version(site, head)?;
    // Before anything is opened: a browser, or a client that looks for metadata, would wait for the end of a stream.
    if head.method == Method::GET && !Accepts::read(&head.headers).events {
        let why = "a stream is read as `text/event-stream`";
        return Err(Rejection::http(StatusCode::NOT_ACCEPTABLE, why));
    }
    let Some(id) = session_id(head)? else {
        if head.method == Method::GET && serves_two_endpoints(site) {
            return open_two_endpoints(site, head);
        }
        return Err(bad_request("`Mcp-Session-Id` is missing"));
    };
    let session = legacy.sessions.find(id, &principal(head))?;
    if head.method == Method::DELETE {
        drop(legacy.sessions.remove(id));
        return Ok(body::empty(StatusCode::NO_CONTENT));
    }
    let (key, after) = match single(head, &LAST_EVENT_ID)? {
        None => (UNSOLICITED, None),
        Some(id) => {
            let named = parse_event_id(id).map(|(key, place)| (key, Some(place)));
            named.ok_or_else(|| bad_request(UNKNOWN_EVENT))?
        }
    };
    let charge = site.charge_stream(head)?;
    let reader = session.read(key, after).map_err(|why| match why {
        CannotRead::Taken => Rejection::http(StatusCode::CONFLICT, "the stream is already open"),
        CannotRead::Unknown => bad_request(UNKNOWN_EVENT),
        CannotRead::Lost => bad_request("events after `Last-Event-ID` have expired"),
        // The one status besides 200 that the specification has for a GET. Clients that take an error for no answer, as
        // TypeScript's do, come back for the rest of the stream; an empty one would bring them back once more.
        CannotRead::Over => {
            let why = "the stream ended with the event of `Last-Event-ID`";
            Rejection::http(StatusCode::METHOD_NOT_ALLOWED, why)
        }
    })?;
    Ok(events(site, reader, Some(charge)))
}

/// Opens a session: the one thing that a client can do without one.
async fn open(
    site: &Arc<Site>,
    head: Parts,
    posting: Posting,
) -> Result<Response<HttpBody>, Rejection> {
    let legacy = &site.legacy;
    // Ends with this future, unless the client can name it by then.
    let driven = legacy
        .sessions
        .start(site, legacy, Layout::PerPost, principal(&head))?;
    let session = driven.session.clone();
    let (response, has_agreed) = shake_hands(site, &session, head, posting).await?;
    if has_agreed {
        legacy.sessions.publish(driven)?;
    }
    Ok(response)
}

/// Has the engine of a session answer `initialize`. Returns the response, which names the session if both sides agreed on
/// a version, and whether they did.
async fn shake_hands(
    site: &Site,
    session: &Arc<Session>,
    head: Parts,
    posting: Posting,
) -> Result<(Response<HttpBody>, bool), Rejection> {
    let accepts = posting.accepts;
    let (posted, _) = posting.decode(site, head)?;
    let Some(mut reader) = session.post(posted, Some(Form::Json))? else {
        return Err(gone());
    };
    std::future::poll_fn(|cx| reader.poll_form(cx)).await;
    let Some(answer) = reader.take_answers().pop() else {
        return Err(gone());
    };
    let mut response = if accepts.json {
        body::whole(StatusCode::OK, answer.clone())
    } else {
        one_event(&answer)
    };
    let Some(dialect) = agreed_on(&answer) else {
        return Ok((response, false));
    };
    session.agree_on(dialect);
    let id = HeaderValue::try_from(&session.id).expect("hexadecimal digits are visible ASCII");
    let headers = response.headers_mut();
    headers.insert(SESSION_ID, id);
    // A web page that is let in has to repeat the id, and may only read what is exposed to it.
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, SESSION_ID.into());
    Ok((response, true))
}

/// The version that an answer to `initialize` agrees on, unless it is an error.
fn agreed_on(answer: &Bytes) -> Option<&'static Dialect> {
    let Ok(Message::Response(core::Response {
        outcome: Ok(result),
        ..
    })) = Message::decode(answer)
    else {
        return None;
    };
    let result: InitializeResult = result.decode().ok()?;
    Dialect::of(result.protocol_version.as_str())
}

/// Takes in what a client posted to its session.
fn hear(
    site: &Arc<Site>,
    session: &Arc<Session>,
    head: Parts,
    posting: Posting,
) -> Result<Taken, Rejection> {
    let accepts = posting.accepts;
    // A client that names no version in a header has agreed on one all the same.
    if matches!(posting.messages, Messages::Batch(_)) && !session.dialect().batches {
        return Err(not_a_batch());
    }
    if let Some(id) = posting.handshake() {
        // Where the engine does not refuse it, it may agree on another version.
        let (site, session) = (site.clone(), session.clone());
        let again = async move {
            let answered = shake_hands(&site, &session, head, posting).await;
            answered
                .map(|(response, _)| response)
                .map_err(|refused| refused.about(id))
        };
        return Ok(Taken::Elsewhere(Box::pin(again)));
    }
    let principal = principal(&head);
    let (posted, shape) = posting.decode(site, head)?;
    if let Some(refusal) = beyond_scope(site, &principal, &posted) {
        return Ok(Taken::Now(refusal));
    }
    if !posted.wants_answer() {
        session.post(posted, None)?;
        return Ok(Taken::Now(body::empty(StatusCode::ACCEPTED)));
    }
    let form = if !accepts.events || (site.legacy.answers == Answers::Json && accepts.json) {
        Form::Json
    } else if accepts.json {
        Form::Undecided
    } else {
        Form::Events
    };
    let commit_after = match form {
        Form::Json => None,
        Form::Events => Some(Duration::ZERO),
        Form::Undecided if posted.requests().any(wants_progress) => Some(Duration::ZERO),
        Form::Undecided => Some(COMMIT_AFTER),
    };
    let first = posted.requests().next().map(|raw| raw.id.clone());
    let reader = session
        .post(posted, Some(form))
        .map_err(|refused| match refused.id() {
            Some(_) => refused,
            None => refused.about(first),
        })?;
    let Some(reader) = reader else {
        return Err(gone());
    };
    let answers = answers(site.clone(), reader, shape, commit_after);
    Ok(Taken::Elsewhere(Box::pin(answers)))
}

impl Posting {
    /// The id of the request, if it is `initialize`.
    fn handshake(&self) -> Option<RequestId> {
        match &self.messages {
            Messages::One(Message::Request(raw)) if raw.method == INITIALIZE => {
                Some(raw.id.clone())
            }
            Messages::One(_) | Messages::Batch(_) => None,
        }
    }

    /// Decodes what was posted, once it is clear that it may be.
    fn decode(self, site: &Site, head: Parts) -> Result<(Posted, Shape), Rejection> {
        let (messages, refusals, shape) = match self.messages {
            Messages::One(message) => (Few::from_iter([message]), Vec::new(), Shape::One),
            Messages::Batch(batch) => {
                let parts = decode(site, &batch)?;
                let mut ids = BTreeSet::new();
                let requests = parts.iter().filter_map(|part| match part {
                    Ok(Message::Request(raw)) => Some(&raw.id),
                    _ => None,
                });
                if let Some(twice) = { requests }.find(|id| !ids.insert(*id)) {
                    return Err(already_in_flight(twice.clone()));
                }
                let refusals = refusals(&parts);
                let messages = parts.into_iter().flatten().collect();
                (messages, refusals, Shape::Array)
            }
        };
        let posted = Posted::new(messages, refusals, head, self.charge, self.head_bytes);
        Ok((posted, shape))
    }
}

/// Decodes a batch within the limit.
fn decode(site: &Site, batch: &Batch) -> Result<Vec<Result<Message, Malformed>>, Rejection> {
    let max = site.account.limits().batch_messages;
    batch.decode(max).map_err(|refused| {
        if let BatchError::TooLong { .. } = refused {
            site.account.meters().refuse(Limit::BatchMessages, max);
        }
        refused.into()
    })
}

/// Refuses what the principal of a POST may not do, while there still is a status to say so with. Who an anonymous
/// caller is may still be found out by a layer further inside.
fn beyond_scope(site: &Site, principal: &Principal, posted: &Posted) -> Option<Response<HttpBody>> {
    principal.name()?;
    let needed = |raw: &RawRequest| site.responder.scopes(&raw.method, raw.params.as_ref());
    let needed: BTreeSet<String> = posted.requests().flat_map(needed).collect();
    let missing = InsufficientScope::check(&needed, principal).err()?;
    let id = posted.requests().next()?.id.clone();
    Some(body::insufficient_scope(id, missing))
}

/// Takes in what was posted to the second of two endpoints; answers come over the first.
fn hear_only(
    site: &Site,
    session: &Arc<Session>,
    head: Parts,
    posting: Posting,
) -> Result<Response<HttpBody>, Rejection> {
    let principal = principal(&head);
    let (posted, _) = posting.decode(site, head)?;
    if let Some(refusal) = beyond_scope(site, &principal, &posted) {
        return Ok(refusal);
    }
    session.post(posted, None)?;
    Ok(body::empty(StatusCode::ACCEPTED))
}

/// Opens the first of two endpoints, and says where the second one is.
fn open_two_endpoints(site: &Site, head: &Parts) -> Result<Response<HttpBody>, Rejection> {
    let legacy = &site.legacy;
    let charge = site.charge_stream(head)?;
    let driven = legacy
        .sessions
        .start(site, legacy, Layout::One, principal(head))?;
    let session = driven.session.clone();
    let reader = session.read(UNSOLICITED, None).map_err(|_| gone())?;
    legacy.sessions.publish(driven)?;
    let endpoint = format!("{}?{QUERY}={}", head.uri.path(), session.id);
    let sessions = legacy.sessions.clone();
    Ok(only_stream(site, reader, endpoint, sessions, charge))
}

fn serves_two_endpoints(site: &Site) -> bool {
    site.legacy.endpoints == Endpoints::AlsoTwo && serves(site, HttpTransport::TwoEndpoints)
}

/// Whether a legacy version is served that travels this way.
fn serves(site: &Site, transport: HttpTransport) -> bool {
    let mut served = site.served.iter();
    served.any(|dialect| !dialect.is_modern() && dialect.http.transport == transport)
}

fn session_in_query<'a>(legacy: &Legacy, head: &'a Parts) -> Option<&'a str> {
    if legacy.mode == Mode::Stateless || legacy.endpoints == Endpoints::One {
        return None;
    }
    let mut pairs = head.uri.query()?.split('&');
    pairs.find_map(|pair| pair.strip_prefix(QUERY)?.strip_prefix('='))
}

fn session_id(head: &Parts) -> Result<Option<&str>, Rejection> {
    single(head, &SESSION_ID)
}

fn single<'a>(head: &'a Parts, name: &::http::HeaderName) -> Result<Option<&'a str>, Rejection> {
    let value = headers::single(&head.headers, name)?;
    let text = value.map(std::str::from_utf8).transpose();
    text.map_err(|_| bad_request(&format!("`{name}` is no text")))
}

/// A GET or DELETE names a version that is served, if it names one.
fn check_version(site: &Site, head: &Parts) -> Result<(), Rejection> {
    match single(head, &headers::PROTOCOL_VERSION)? {
        Some(version) if site.served.of(version).is_none_or(Dialect::is_modern) => {
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

/// What the sender of a batch is told of its malformed parts.
fn refusals(parts: &[Result<Message, Malformed>]) -> Vec<Bytes> {
    let malformed = parts.iter().filter_map(|part| part.as_ref().err());
    malformed
        .filter_map(|malformed| malformed.clone().answer())
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

fn bad_request(why: &str) -> Rejection {
    Rejection::http(StatusCode::BAD_REQUEST, why)
}

impl std::fmt::Debug for Legacy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Legacy")
            .field("mode", &self.mode)
            .field("sessions", &self.sessions.len())
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

const INITIALIZE: &str = "initialize";
/// What the second of two endpoints knows its session by.
const QUERY: &str = "session";
const IDLE_AFTER: Duration = Duration::from_secs(30 * 60);
const ORPHAN_LIMIT: Duration = Duration::from_secs(5 * 60);
const RETRY: Duration = Duration::from_secs(1);
/// The longest time, in milliseconds, that the timers of web pages do not take for none at all.
const MAX_RETRY: u64 = i32::MAX as u64;
const UNKNOWN_EVENT: &str = "`Last-Event-ID` names no event of this session";
/// How long an outcome is waited for before the answer becomes a stream. Short, for a legacy client may
/// not say that it gives up before it has seen the head.
const COMMIT_AFTER: Duration = Duration::from_millis(10);
