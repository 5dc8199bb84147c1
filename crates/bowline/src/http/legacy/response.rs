//! Legacy responses: they read a stream of a session, as JSON or as SSE.
//!
//! Unlike a modern response, dropping one stops no handler; the client may resume the stream.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use ::http::{Response, StatusCode};
use bowline_core::http::admission::HttpRejection;
use bowline_core::sse::{self, SseEvent};
use bytes::Bytes;

use super::session::{StreamReader, session_not_found};
use super::sessions::Sessions;
use super::streams::ResponseForm;
use crate::http::server::body::{self, EventSource, HttpBody};
use crate::http::server::{KeepAlive, ServiceState};
use crate::limits::Charge;

/// Whether the JSON answer to a POST is one response or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonShape {
    One,
    Array,
}

/// Returns the response to a POST with requests, as soon as its form is decided.
///
/// # Cancel safety
///
/// Dropping the future, or the body of the response, stops no handler.
pub(super) async fn post_response(
    state: Arc<ServiceState>,
    mut reader: StreamReader,
    shape: JsonShape,
    stream_after: Option<Duration>,
) -> Result<Response<HttpBody>, HttpRejection> {
    let form = {
        let mut decided = pin!(poll_fn(|cx| reader.poll_form(cx)));
        match stream_after {
            // Without a timer, which would fire a millisecond later: a client that cancels waits for the head.
            Some(Duration::ZERO) => {
                poll_fn(|cx| match decided.as_mut().poll(cx) {
                    Poll::Ready(form) => Poll::Ready(form),
                    Poll::Pending => Poll::Ready(ResponseForm::Events),
                })
                .await
            }
            Some(delay) => tokio::time::timeout(delay, decided)
                .await
                .unwrap_or(ResponseForm::Events),
            None => decided.as_mut().await,
        }
    };
    if form != ResponseForm::Json {
        reader.commit_to_events();
        return Ok(stream_response(&state, reader, None));
    }
    let mut answers = reader.take_answers();
    match (shape, answers.len()) {
        (_, 0) => Err(session_not_found()),
        (JsonShape::One, _) => Ok(body::whole(StatusCode::OK, answers.swap_remove(0))),
        (JsonShape::Array, _) => Ok(body::whole(StatusCode::OK, json_array(&answers))),
    }
}

/// Returns an SSE response; `charge` is held while it is open.
pub(super) fn stream_response(
    state: &ServiceState,
    reader: StreamReader,
    charge: Option<Charge>,
) -> Response<HttpBody> {
    let http = reader.session().dialect().http;
    let prime = http.primes_streams.then(|| SseEvent {
        id: Some(reader.event_id(reader.read_so_far())),
        retry: state.legacy.retry_millis(),
        ..SseEvent::default()
    });
    body::stream(StreamResponseBody {
        reader: Some(reader),
        first: prime,
        has_ids: http.resumable,
        keep_alive: KeepAlive::new(state.keep_alive),
        session_guard: None,
        _charge: charge,
    })
}

/// Returns the SSE stream of an HTTP+SSE session, which ends when the stream does.
pub(super) fn http_sse_response(
    state: &ServiceState,
    reader: StreamReader,
    endpoint: String,
    sessions: Arc<Sessions>,
    charge: Charge,
) -> Response<HttpBody> {
    body::stream(StreamResponseBody {
        first: Some(SseEvent {
            name: Some("endpoint".into()),
            ..SseEvent::new(endpoint)
        }),
        has_ids: false,
        keep_alive: KeepAlive::new(state.keep_alive),
        session_guard: Some(EndSessionOnDrop {
            id: reader.session().id(),
            sessions,
        }),
        reader: Some(reader),
        _charge: Some(charge),
    })
}

/// Returns an SSE response with one event.
pub(super) fn single_event_response(frame: &[u8]) -> Response<HttpBody> {
    struct SingleEvent(Option<Bytes>);

    impl EventSource for SingleEvent {
        fn poll_next(&mut self, _: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
            Poll::Ready(self.0.take())
        }
    }

    let mut out = Vec::new();
    sse::encode_frame(frame, &mut out);
    body::stream(SingleEvent(Some(out.into())))
}

/// Joins answers to a JSON array.
pub(super) fn json_array(answers: &[Bytes]) -> Bytes {
    let mut out = vec![b'['];
    for (at, answer) in answers.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(answer);
    }
    out.push(b']');
    out.into()
}

/// The body of an SSE response.
struct StreamResponseBody {
    /// `None` after the end of the stream.
    reader: Option<StreamReader>,
    first: Option<SseEvent>,
    has_ids: bool,
    keep_alive: KeepAlive,
    session_guard: Option<EndSessionOnDrop>,
    _charge: Option<Charge>,
}

/// A guard that ends a session when dropped.
struct EndSessionOnDrop {
    id: Arc<str>,
    sessions: Arc<Sessions>,
}

impl Drop for EndSessionOnDrop {
    fn drop(&mut self) {
        drop(self.sessions.remove(&self.id));
    }
}

impl EventSource for StreamResponseBody {
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
        let mut out = Vec::new();
        if let Some(first) = self.first.take() {
            sse::encode(&first, &mut out);
        }
        while let Some(reader) = &mut self.reader
            && out.len() < TARGET_CHUNK_BYTES
        {
            match reader.poll_next(cx) {
                Poll::Ready(Some((position, frame))) => {
                    let event = SseEvent {
                        id: self.has_ids.then(|| reader.event_id(position)),
                        ..SseEvent::message(frame)
                    };
                    sse::encode(&event, &mut out);
                }
                Poll::Ready(None) => self.reader = None,
                Poll::Pending => break,
            }
        }
        if out.is_empty() {
            if self.reader.is_none() {
                self.session_guard = None; // not only when hyper drops the body
                return Poll::Ready(None);
            }
            task::ready!(self.keep_alive.poll(cx));
            out.extend_from_slice(sse::KEEP_ALIVE);
        }
        self.keep_alive.record_activity();
        Poll::Ready(Some(out.into()))
    }
}

/// How many bytes are put into one chunk before it is passed to hyper.
const TARGET_CHUNK_BYTES: usize = 16 * 1024;
