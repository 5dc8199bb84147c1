//! One request on its way: POST it, and bring back everything up to its answer.

use std::sync::Arc;

use bowline_core::{CorrelationKey, Message};
use bowline_types::RequestId;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;

use super::link::{GivenUp, Link, MOST_FAILURES};
use crate::http::client::WhenRefused;
use crate::http::client::response::{Events, Reply, no_answer, read};
use crate::http::client::send::Handed;
use crate::wire::Received;
use crate::{Error, Result};

/// Carries one request.
pub(super) struct Carrier {
    pub(super) link: Arc<Link>,
    pub(super) id: RequestId,
    /// Told when the head of the response is there.
    pub(super) head: watch::Sender<bool>,
    /// Whether anybody still waits for the answer.
    pub(super) given_up: GivenUp,
    pub(super) is_opening: bool,
}

impl Carrier {
    /// Carries the request, once a predecessor with the same id has left, and delivers what comes back. If
    /// that is no answer, the loss is delivered instead.
    pub(super) async fn run(
        self,
        frame: Bytes,
        handed: Handed,
        predecessor: Option<watch::Receiver<()>>,
    ) {
        if let Some(mut leaving) = predecessor {
            // It never changes; it fails when the predecessor has left.
            let _ = leaving.changed().await;
        }
        if let Err(error) = self.carry(frame, &handed).await {
            let id = self.id.clone();
            self.settle(Received::Lost { id, error }).await;
        }
    }

    async fn carry(&self, frame: Bytes, handed: &Handed) -> Result<()> {
        let session = self.link.session_id();
        let stopwatch = self.link.stopwatch(&self.id);
        let when_refused = WhenRefused::AuthorizeWhile(&stopwatch);
        let posted = self.link.post(frame.clone(), handed, when_refused);
        let mut response = posted.await?;
        if let (StatusCode::NOT_FOUND, Some(forgotten)) = (response.status(), &session) {
            // The server forgot the session: start another, and ask once more.
            self.link.reopen(forgotten, when_refused).await?;
            response = self.link.post(frame, handed, when_refused).await?;
        }
        self.head.send_replace(true);
        let headers = response.headers().clone();
        match read(&self.link.endpoint, response).await? {
            Reply::Bare(status) => Err(no_answer(status)),
            Reply::Json(status, body) => match self.deliver(&headers, body).await {
                Delivered::Answer => Ok(()),
                Delivered::Other => Err(no_answer(status)),
            },
            Reply::Events(events) => self.follow(&headers, events).await,
        }
    }

    /// Delivers a stream up to the answer, resuming it where it was cut if the server lets us.
    async fn follow(&self, headers: &HeaderMap, mut events: Events) -> Result<()> {
        let mut failures = 0;
        loop {
            let mut heard_any = false;
            let cut = loop {
                match events.next().await {
                    Ok(Some(event)) if event.data.is_empty() => {}
                    Ok(Some(event)) => {
                        heard_any = true;
                        if let Delivered::Answer = self.deliver(headers, event.data).await {
                            return Ok(());
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            let lost = || Error::Transport {
                what: "the response ended without an answer".into(),
                source: None,
            };
            let Some(last_event) = events.last_event_id().map(str::to_owned) else {
                return Err(cut.unwrap_or_else(lost));
            };
            failures = if heard_any { 0 } else { failures + 1 };
            if failures >= MOST_FAILURES {
                return Err(cut.unwrap_or_else(lost));
            }
            self.link.pause(events.retry(), failures).await;
            if self.given_up.is_set() {
                return Ok(()); // nobody waits for the rest
            }
            let stopwatch = self.link.stopwatch(&self.id);
            let when_refused = WhenRefused::AuthorizeWhile(&stopwatch);
            let resuming = self.link.stream(Some(&last_event), when_refused);
            let Some(resumed) = resuming.await? else {
                return Err(cut.unwrap_or_else(lost));
            };
            events = resumed;
        }
    }

    async fn deliver(&self, headers: &HeaderMap, frame: Bytes) -> Delivered {
        let answer = match Message::decode(&frame) {
            Ok(Message::Response(answer)) if self.is_ours(answer.id.as_ref()) => answer,
            _ => {
                self.link.deliver(Received::Frame(frame)).await;
                return Delivered::Other;
            }
        };
        if self.is_opening {
            self.link.opened(headers, &answer);
        }
        let frame = match answer.id {
            Some(_) => frame,
            // An error without an id can only be about what was posted.
            None => {
                let id = Some(self.id.clone());
                Message::from(bowline_core::Response { id, ..answer }).to_frame()
            }
        };
        self.settle(Received::Frame(frame)).await;
        Delivered::Answer
    }

    /// Delivers how the request ended, unless nobody waits for it any more when that is taken in: its id
    /// may be another's by then.
    async fn settle(&self, end: Received) {
        self.link.settle(end, &self.given_up).await;
    }

    fn is_ours(&self, id: Option<&RequestId>) -> bool {
        id.is_none_or(|id| CorrelationKey::from(id) == CorrelationKey::from(&self.id))
    }
}

enum Delivered {
    Answer,
    Other,
}
