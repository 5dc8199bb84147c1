//! A legacy response: what its stream holds, as JSON or as events.
//!
//! Unlike a modern one it only reads. Dropping it stops nothing; the client may come back for the rest.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use ::http::{Response, StatusCode};
use bowline_core::http::admission::Rejection;
use bowline_core::sse::{self, Event};
use bytes::Bytes;

use super::session::{Reader, gone};
use super::sessions::Sessions;
use super::streams::Form;
use crate::http::server::body::{self, Events, HttpBody};
use crate::http::server::{KeepAlive, Site};
use crate::limits::Charge;

/// How the answers of one POST are written as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    Array,
}

/// The response to a POST that wants answers, as soon as it is clear which form it takes.
///
/// # Cancel safety
///
/// Dropping the future, or the body of the response, stops no handler.
pub(super) async fn answers(
    site: Arc<Site>,
    mut reader: Reader,
    shape: Shape,
    commit_after: Option<Duration>,
) -> Result<Response<HttpBody>, Rejection> {
    let form = {
        let mut decided = pin!(poll_fn(|cx| reader.poll_form(cx)));
        match commit_after {
            // A timer would ring at the next millisecond, and a client that gives up waits for the head.
            Some(Duration::ZERO) => {
                poll_fn(|cx| match decided.as_mut().poll(cx) {
                    Poll::Ready(form) => Poll::Ready(form),
                    Poll::Pending => Poll::Ready(Form::Events),
                })
                .await
            }
            Some(delay) => tokio::time::timeout(delay, decided)
                .await
                .unwrap_or(Form::Events),
            None => decided.as_mut().await,
        }
    };
    if form != Form::Json {
        reader.commit_to_events();
        return Ok(events(&site, reader, None));
    }
    let mut answers = reader.take_answers();
    match (shape, answers.len()) {
        (_, 0) => Err(gone()),
        (Shape::One, _) => Ok(body::whole(StatusCode::OK, answers.swap_remove(0))),
        (Shape::Array, _) => Ok(body::whole(StatusCode::OK, array(&answers))),
    }
}

/// A response that is a stream of events; `charge` is what it takes up while it is open.
pub(super) fn events(site: &Site, reader: Reader, charge: Option<Charge>) -> Response<HttpBody> {
    let http = reader.session().dialect().http;
    let prime = http.primes_streams.then(|| Event {
        id: Some(event_id(reader.key(), reader.read_so_far())),
        retry: site.legacy.retry_millis(),
        ..Event::default()
    });
    body::stream(Reading {
        reader: Some(reader),
        first: prime,
        name: None,
        has_ids: http.resumable,
        keep_alive: KeepAlive::new(site.keep_alive),
        ends: None,
        _charge: charge,
    })
}

/// The one stream of a conversation over HTTP+SSE; its end is the end of the session.
pub(super) fn only_stream(
    site: &Site,
    reader: Reader,
    endpoint: String,
    sessions: Arc<Sessions>,
    charge: Charge,
) -> Response<HttpBody> {
    body::stream(Reading {
        first: Some(Event {
            name: Some("endpoint".into()),
            ..Event::new(endpoint)
        }),
        name: Some("message"),
        has_ids: false,
        keep_alive: KeepAlive::new(site.keep_alive),
        ends: Some(Ends {
            id: reader.session().id.clone(),
            sessions,
        }),
        reader: Some(reader),
        _charge: Some(charge),
    })
}

/// A response that is a stream of one event.
pub(super) fn one_event(frame: &[u8]) -> Response<HttpBody> {
    struct Once(Option<Bytes>);

    impl Events for Once {
        fn poll_next(&mut self, _: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
            Poll::Ready(self.0.take())
        }
    }

    let mut out = Vec::new();
    sse::encode_frame(frame, &mut out);
    body::stream(Once(Some(out.into())))
}

/// Which stream and which place an event id names.
pub(super) fn parse_event_id(id: &str) -> Option<(u64, u64)> {
    let (key, place) = id.split_once('-')?;
    Some((key.parse().ok()?, place.parse().ok()?))
}

fn event_id(key: u64, place: u64) -> String {
    format!("{key}-{place}")
}

/// Several answers as one JSON text.
pub(super) fn array(answers: &[Bytes]) -> Bytes {
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

/// A stream on its way to the client.
struct Reading {
    /// `None` once the end was reached.
    reader: Option<Reader>,
    first: Option<Event>,
    name: Option<&'static str>,
    has_ids: bool,
    keep_alive: KeepAlive,
    ends: Option<Ends>,
    _charge: Option<Charge>,
}

/// Ends a session when dropped.
struct Ends {
    id: String,
    sessions: Arc<Sessions>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        drop(self.sessions.remove(&self.id));
    }
}

impl Events for Reading {
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Option<Bytes>> {
        let mut out = Vec::new();
        if let Some(first) = self.first.take() {
            sse::encode(&first, &mut out);
        }
        while let Some(reader) = &mut self.reader
            && out.len() < ENOUGH
        {
            match reader.poll_next(cx) {
                Poll::Ready(Some((place, frame))) => {
                    let event = Event {
                        name: self.name.map(str::to_owned),
                        id: self.has_ids.then(|| event_id(reader.key(), place)),
                        ..Event::new(frame)
                    };
                    sse::encode(&event, &mut out);
                }
                Poll::Ready(None) => self.reader = None,
                Poll::Pending => break,
            }
        }
        if out.is_empty() {
            if self.reader.is_none() {
                self.ends = None;
                return Poll::Ready(None);
            }
            task::ready!(self.keep_alive.poll(cx));
            out.extend_from_slice(sse::KEEP_ALIVE);
        }
        self.keep_alive.restart();
        Poll::Ready(Some(out.into()))
    }
}

/// How much is put into one chunk before the connection gets its turn.
const ENOUGH: usize = 16 * 1024;
