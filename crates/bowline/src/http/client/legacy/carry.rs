//! One request on its way: POST it, and bring back everything up to its answer.

use std::sync::Arc;

use bowline_core::{CorrelationKey, Message};
use bowline_types::RequestId;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;

use super::Wanted;
use super::attempts::Attempts;
use super::link::Link;
use crate::http::client::response::{Events, Reply, no_answer, read};
use crate::http::client::send::Handed;
use crate::wire::Received;
use crate::{Error, Result};

/// What brings one request to the server, and back what the server says to it.
pub(super) struct Carrier {
    pub(super) link: Arc<Link>,
    pub(super) id: RequestId,
    /// Told when the head of the response is in, and dropped when the response is at its end.
    pub(super) head: watch::Sender<bool>,
    pub(super) is_opening: bool,
    pub(super) wanted: Wanted,
}

impl Carrier {
    /// Carries the request and delivers what comes back. If that is no answer, the loss is delivered instead.
    pub(super) async fn carry(self, frame: Bytes, handed: Handed) {
        if let Err(error) = self.round_trip(frame, &handed).await {
            let id = self.id.clone();
            self.bring(Received::Lost { id, error }).await;
        }
    }

    async fn round_trip(&self, frame: Bytes, handed: &Handed) -> Result<()> {
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
        let mut attempts = Attempts::new();
        loop {
            attempts.begin();
            let cut = loop {
                match events.next().await {
                    Ok(Some(event)) if event.data.is_empty() => {}
                    Ok(Some(event)) => {
                        attempts.hear();
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
            if !attempts.end() {
                return Err(cut.unwrap_or_else(lost));
            }
            attempts.pause(events.retry()).await;
            let Some(resumed) = self.link.stream(Some(&last_event)).await? else {
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
                    self.bring(Received::Frame(frame)).await;
                    return Delivered::Answer;
                }
                Delivered::Answer
            }
            _ => Delivered::Other,
        };
        self.bring(Received::Frame(frame)).await;
        delivered
    }

    async fn bring(&self, received: Received) {
        self.link.deliver(received, Some(self.wanted.clone())).await;
    }

    fn is_ours(&self, id: Option<&RequestId>) -> bool {
        id.is_none_or(|id| CorrelationKey::from(id) == CorrelationKey::from(&self.id))
    }
}

enum Delivered {
    Answer,
    Other,
}
