//! Resumption of a stream of another replica: its events are read from there, by long polling.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use ::http::{Response, StatusCode};
use bowline_core::http::admission::HttpRejection;
use bowline_core::sse::{self, SseEvent};
use bytes::Bytes;

use super::verbs::{SessionQuestion, SessionReply};
use super::{NOT_UNDERSTOOD, SessionCluster, gone};
use crate::exchange::BoxFuture;
use crate::http::legacy::live_id::{EventId, LiveId};
use crate::http::legacy::session::Session;
use crate::http::legacy::sessions::session_key;
use crate::http::server::body::{self, EventSource, HttpBody};
use crate::http::server::{KeepAlive, ServiceState, unavailable};
use crate::limits::Charge;

/// Returns a response with the events of another live state after `event`, until its stream ends.
///
/// # Errors
///
/// If its owner has ended or cannot be reached, or the events are not stored.
pub(in crate::http::legacy) async fn resume_elsewhere(
    state: &ServiceState,
    cluster: Arc<SessionCluster>,
    session: &Arc<Session>,
    (live, event): (LiveId, EventId),
    charge: Charge,
) -> Result<Response<HttpBody>, HttpRejection> {
    let mut stream = RemoteStream {
        cluster,
        session: session.clone(),
        live,
        stream: event.key,
        after: event.position,
        events: VecDeque::new(),
        is_end: false,
        reading: None,
        keep_alive: KeepAlive::new(state.keep_alive),
        _charge: charge,
    };
    // Before the response, so that an error has a status.
    let first = stream.read(Duration::ZERO).await?;
    if first.is_end && first.events.is_empty() {
        let why = "the stream ended at `Last-Event-ID`";
        return Err(HttpRejection::new(StatusCode::METHOD_NOT_ALLOWED, why));
    }
    stream.accept(first);
    Ok(body::stream(stream))
}

/// The body of the response.
struct RemoteStream {
    cluster: Arc<SessionCluster>,
    /// Held so that the session here is not idle; its version decides the form of events.
    session: Arc<Session>,
    live: LiveId,
    stream: u64,
    after: u64,
    events: VecDeque<(u64, String)>,
    is_end: bool,
    reading: Option<BoxFuture<'static, Result<RemoteEvents, HttpRejection>>>,
    keep_alive: KeepAlive,
    _charge: Charge,
}

struct RemoteEvents {
    events: Vec<(u64, String)>,
    is_end: bool,
}

impl RemoteStream {
    fn read(&self, wait: Duration) -> BoxFuture<'static, Result<RemoteEvents, HttpRejection>> {
        let question = SessionQuestion::Read {
            session: session_key(&self.session.id()).to_owned(),
            number: self.live.number,
            stream: self.stream,
            after: self.after,
            wait_millis: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        };
        let (cluster, live) = (self.cluster.clone(), self.live);
        Box::pin(async move {
            match cluster.ask(live.owner, &question, wait).await? {
                SessionReply::Events { events, is_end } => Ok(RemoteEvents { events, is_end }),
                SessionReply::Gone => Err(gone()),
                SessionReply::Lost => Err(crate::http::legacy::bad_request(
                    "events after `Last-Event-ID` have expired",
                )),
                _ => Err(unavailable(NOT_UNDERSTOOD)),
            }
        })
    }

    fn accept(&mut self, read: RemoteEvents) {
        self.events.extend(read.events);
        self.is_end = read.is_end;
    }

    /// Encodes the events that were read.
    fn take_events(&mut self) -> Option<Bytes> {
        let has_ids = self.session.dialect().http.resumable;
        let mut out = Vec::new();
        for (position, frame) in self.events.drain(..) {
            self.after = position;
            let id = EventId {
                live: Some(self.live),
                key: self.stream,
                position,
            };
            let event = SseEvent {
                id: has_ids.then(|| id.to_string()),
                ..SseEvent::message(frame)
            };
            sse::encode(&event, &mut out);
        }
        (!out.is_empty()).then(|| out.into())
    }
}

impl EventSource for RemoteStream {
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(events) = self.take_events() {
                self.keep_alive.record_activity();
                return Poll::Ready(Some(events));
            }
            if self.is_end {
                return Poll::Ready(None);
            }
            if self.reading.is_none() {
                self.reading = Some(self.read(WAIT));
            }
            let reading = self
                .reading
                .as_mut()
                .map(|reading| reading.as_mut().poll(cx));
            match reading {
                Some(Poll::Ready(read)) => {
                    self.reading = None;
                    match read {
                        Ok(read) => self.accept(read),
                        // The client resumes the stream, and gets the error as a status.
                        Err(_) => return Poll::Ready(None),
                    }
                }
                Some(Poll::Pending) | None => {
                    task::ready!(self.keep_alive.poll(cx));
                    self.keep_alive.record_activity();
                    return Poll::Ready(Some(Bytes::from_static(sse::KEEP_ALIVE)));
                }
            }
        }
    }
}

/// How long the owner waits for an event.
const WAIT: Duration = Duration::from_secs(20);
