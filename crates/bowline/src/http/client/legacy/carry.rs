//! One request on its way: POST it, and bring back everything up to its answer.

use std::sync::Arc;

use bowline_core::{CorrelationKey, Message};
use bowline_types::RequestId;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;

use super::link::{Attempts, Link};
use crate::http::client::response::{Events, Reply, no_answer, read};
use crate::http::client::send::Handed;
use crate::wire::Received;
use crate::{Error, Result};

/// Carries a request and delivers what comes back. If that is no answer, the loss is delivered instead.
pub(super) async fn carry(
    link: Arc<Link>,
    id: RequestId,
    frame: Bytes,
    handed: Handed,
    head: watch::Sender<bool>,
    is_opening: bool,
) {
    let carrier = Carrier {
        link: &link,
        id: &id,
        head,
        is_opening,
    };
    if let Err(error) = carrier.carry(frame, &handed).await {
        link.deliver(Received::Lost {
            id: id.clone(),
            error,
        })
        .await;
    }
}

struct Carrier<'a> {
    link: &'a Link,
    id: &'a RequestId,
    head: watch::Sender<bool>,
    is_opening: bool,
}

impl Carrier<'_> {
    async fn carry(&self, frame: Bytes, handed: &Handed) -> Result<()> {
        let session = self.link.session_id();
        let mut response = self.link.post(frame.clone(), handed).await?;
        if let (StatusCode::NOT_FOUND, Some(forgotten)) = (response.status(), &session) {
            // The server forgot the session: start another, and ask once more.
            self.link.reopen(forgotten).await?;
            response = self.link.post(frame, handed).await?;
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
        let mut attempts = Attempts::begin();
        let mut last_event = None;
        loop {
            let cut = loop {
                match events.next().await {
                    Ok(Some(event)) if event.data.is_empty() => {}
                    Ok(Some(event)) => {
                        attempts.has_heard();
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
            // A stream that was taken up again and had nothing to say ends where it began.
            last_event = events.last_event_id().map(str::to_owned).or(last_event);
            let Some(last_event) = &last_event else {
                return Err(cut.unwrap_or_else(lost));
            };
            attempts.pause(events.retry()).await;
            if attempts.are_over() {
                return Err(cut.unwrap_or_else(lost));
            }
            let Some(resumed) = self.link.stream(Some(last_event)).await? else {
                return Err(cut.unwrap_or_else(lost));
            };
            events = resumed;
        }
    }

    async fn deliver(&self, headers: &HeaderMap, frame: Bytes) -> Delivered {
        let delivered = match Message::decode(&frame) {
            Ok(Message::Response(answer)) if self.is_ours(answer.id.as_ref()) => {
                if self.is_opening {
                    self.link.opened(headers, &answer);
                }
                // An error without an id can only be about what was posted.
                if answer.id.is_none() {
                    let answer = bowline_core::Response {
                        id: Some(self.id.clone()),
                        ..answer
                    };
                    let frame = Message::from(answer).to_frame();
                    self.link.deliver(Received::Frame(frame)).await;
                    return Delivered::Answer;
                }
                Delivered::Answer
            }
            _ => Delivered::Other,
        };
        self.link.deliver(Received::Frame(frame)).await;
        delivered
    }

    fn is_ours(&self, id: Option<&RequestId>) -> bool {
        id.is_none_or(|id| CorrelationKey::from(id) == CorrelationKey::from(self.id))
    }
}

enum Delivered {
    Answer,
    Other,
}
