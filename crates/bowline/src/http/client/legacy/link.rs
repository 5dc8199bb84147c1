//! What the requests of one legacy wire have in common: the session, its version, and its GET stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_core::era::{Dialect, VersionHeader, after_opening};
use bowline_core::http::headers::PROTOCOL_VERSION;
use bowline_core::http::legacy::{LAST_EVENT_ID, SESSION_ID};
use bowline_core::{Message, Response as Answer};
use bowline_types::{InitializeResult, RequestId};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::sync::mpsc;

use super::attempts::Attempts;
use super::held::Held;
use crate::exchange::Stopwatch;
use crate::http::client::body::ResponseBody;
use crate::http::client::response::{Events, Reply, message, no_answer, read};
use crate::http::client::send::Handed;
use crate::http::client::{Endpoint, Outgoing, WhenRefused, message_headers, stream_headers};
use crate::wire::Received;
use crate::{Error, Result};

/// What the requests of one wire share.
pub(crate) struct Link {
    pub(super) endpoint: Endpoint,
    incoming: mpsc::Sender<Delivery>,
    session: Mutex<Session>,
    reopening: tokio::sync::Mutex<()>,
}

/// Something for the engine, on its way there.
pub(super) struct Delivery {
    pub(super) received: Received,
    /// Of the request that it is about, if it is about one.
    given_up: Option<GivenUp>,
}

impl Delivery {
    pub(super) fn is_wanted(&self) -> bool {
        !self.given_up.as_ref().is_some_and(GivenUp::is_set)
    }
}

/// Whether a request was given up.
#[derive(Clone, Default)]
pub(super) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Default)]
struct Session {
    id: Option<HeaderValue>,
    dialect: Option<&'static Dialect>,
    /// The handshake, in case the server forgets us.
    handshake: Option<Bytes>,
}

impl Link {
    pub(super) fn new(endpoint: Endpoint, incoming: mpsc::Sender<Delivery>) -> Self {
        Self {
            endpoint,
            incoming,
            session: Mutex::default(),
            reopening: tokio::sync::Mutex::default(),
        }
    }

    /// A handshake is about to be sent.
    pub(super) fn begin(&self, handshake: Bytes) {
        *self.lock() = Session {
            handshake: Some(handshake),
            ..Session::default()
        };
    }

    /// Takes note of what the answer to the handshake says.
    pub(super) fn opened(&self, headers: &HeaderMap, answer: &Answer) {
        let result: Option<InitializeResult> = answer
            .outcome
            .as_ref()
            .ok()
            .and_then(|result| result.decode().ok());
        let mut session = self.lock();
        session.id = headers.get(SESSION_ID).cloned();
        session.dialect = result.and_then(|result| Dialect::of(result.protocol_version.as_str()));
    }

    pub(super) fn session_id(&self) -> Option<HeaderValue> {
        self.lock().id.clone()
    }

    pub(super) async fn post(
        &self,
        frame: Bytes,
        handed: &Handed,
        when_refused: WhenRefused<'_>,
    ) -> Result<Response<ResponseBody>> {
        let headers = self.headers(message_headers());
        let outgoing = Outgoing {
            method: Method::POST,
            headers: &|| Ok(headers.clone()),
            frame,
            handed,
            when_refused,
        };
        self.endpoint.request(&outgoing).await
    }

    /// Posts something that has no answer. If it fails, nobody can be told.
    pub(super) async fn post_quietly(&self, frame: Bytes, when_refused: WhenRefused<'_>) {
        match self.post(frame, &Handed::new(), when_refused).await {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => {
                tracing::debug!(status = %response.status(), "a message was not accepted")
            }
            Err(error) => tracing::debug!(%error, "a message could not be posted"),
        }
    }

    /// Whoever counts the time of a request. What it is told about one that was given up is not heard, for its id
    /// may be that of another by then.
    pub(super) fn stopwatch<'a>(
        &'a self,
        id: &'a RequestId,
        given_up: &'a GivenUp,
    ) -> impl Stopwatch + 'a {
        Held::new(&self.incoming, id, |received| Delivery {
            received,
            given_up: Some(given_up.clone()),
        })
    }

    /// Hands a message, or the loss of one, to the engine.
    pub(super) async fn deliver(&self, received: Received) {
        self.send(received, None).await;
    }

    /// Hands the end of a request to the engine, unless the request was given up when it gets there.
    pub(super) async fn settle(&self, received: Received, given_up: &GivenUp) {
        self.send(received, Some(given_up.clone())).await;
    }

    async fn send(&self, received: Received, given_up: Option<GivenUp>) {
        let delivery = Delivery { received, given_up };
        // Fails only when the wire is gone, and then nobody waits.
        let _ = self.incoming.send(delivery).await;
    }

    /// Hears what the server says unasked, for as long as it lets us.
    pub(super) async fn listen(&self) {
        let mut last_event = None;
        let mut attempts = Attempts::new();
        loop {
            let stream = self.stream(last_event.as_deref(), WhenRefused::Authorize);
            let Ok(Some(mut events)) = stream.await else {
                return;
            };
            attempts.begin();
            while let Ok(Some(event)) = events.next().await {
                if !event.data.is_empty() {
                    attempts.hear();
                    self.deliver(Received::Frame(event.data)).await;
                }
            }
            last_event = events.last_event_id().map(str::to_owned).or(last_event);
            if !attempts.end() {
                break;
            }
            attempts.pause(events.retry()).await;
        }
        tracing::warn!("the server keeps closing its stream; it is not asked again");
    }

    /// Opens a GET stream; `None` if the server has none.
    pub(super) async fn stream(
        &self,
        last_event: Option<&str>,
        when_refused: WhenRefused<'_>,
    ) -> Result<Option<Events>> {
        let mut headers = self.headers(stream_headers());
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let outgoing = Outgoing {
            method: Method::GET,
            headers: &|| Ok(headers.clone()),
            frame: Bytes::new(),
            handed: &Handed::new(),
            when_refused,
        };
        let response = self.endpoint.request(&outgoing).await?;
        match read(&self.endpoint, response).await? {
            Reply::Events(events) => Ok(Some(events)),
            Reply::Bare(StatusCode::METHOD_NOT_ALLOWED) => Ok(None),
            Reply::Bare(status) | Reply::Json(status, _) => Err(no_answer(status)),
        }
    }

    /// Shakes hands again after the server forgot the session `forgotten`. Whether there is a new one.
    pub(super) async fn reopen(
        &self,
        forgotten: &HeaderValue,
        when_refused: WhenRefused<'_>,
    ) -> Result<()> {
        let _one_at_a_time = self.reopening.lock().await;
        if self.session_id().as_ref() != Some(forgotten) {
            return Ok(()); // somebody else did it meanwhile
        }
        let Some(handshake) = self.lock().handshake.clone() else {
            return Err(Error::Closed);
        };
        self.begin(handshake.clone());
        let response = self.post(handshake, &Handed::new(), when_refused).await?;
        let headers = response.headers().clone();
        let answer = match read(&self.endpoint, response).await? {
            Reply::Bare(status) => return Err(no_answer(status)),
            Reply::Json(_, body) => message(&body)?,
            Reply::Events(mut events) => loop {
                let Some(event) = events.next().await? else {
                    return Err(Error::Closed);
                };
                if let Ok(answer @ Message::Response(_)) = message(&event.data) {
                    break answer;
                }
            },
        };
        let Message::Response(answer) = answer else {
            return Err(Error::protocol("the handshake was not answered"));
        };
        self.opened(&headers, &answer);
        answer.outcome.map_err(Error::Peer)?;
        if let Some(ready) = self.dialect().and_then(after_opening) {
            let ready = Message::from(ready).to_frame();
            self.post_quietly(ready, when_refused).await;
        }
        Ok(())
    }

    /// Tells the server that the session is over, if there is one.
    pub(super) async fn end(&self) {
        if self.session_id().is_some() {
            let headers = self.headers(HeaderMap::new());
            let outgoing = Outgoing {
                method: Method::DELETE,
                headers: &|| Ok(headers.clone()),
                frame: Bytes::new(),
                handed: &Handed::new(),
                when_refused: WhenRefused::GiveUp,
            };
            if let Err(error) = self.endpoint.request(&outgoing).await {
                tracing::debug!(%error, "the session could not be ended");
            }
        }
    }

    fn dialect(&self) -> Option<&'static Dialect> {
        self.lock().dialect
    }

    fn headers(&self, mut headers: HeaderMap) -> HeaderMap {
        let session = self.lock();
        if let Some(id) = &session.id {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(dialect) = session.dialect
            && dialect.http.version_header != VersionHeader::Never
        {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(dialect.version));
        }
        headers
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        // No code that could panic runs under this lock.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
