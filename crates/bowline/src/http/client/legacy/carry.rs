//! One request on its way: POST it, and bring back everything up to its answer.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::{CorrelationKey, Message, decode_batch, is_batch, shortened};
use bowline_types::RequestId;
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::attempts::Attempts;
use super::cancel::Reserved;
use super::keep::is_over;
use super::link::Link;
use super::progress::{GivenUp, Progress};
use super::session::Session;
use crate::exchange::Stopwatch;
use crate::http::client::WhenRefused;
use crate::http::client::body::ResponseBody;
use crate::http::client::response::{Events, Reply, no_answer, read};
use crate::http::client::send::Handed;
use crate::limits::Limits;
use crate::wire::Received;
use crate::{Error, Result};

/// Carries one request.
pub(super) struct Carrier {
    pub(super) link: Arc<Link>,
    pub(super) id: RequestId,
    pub(super) progress: watch::Sender<Progress>,
    /// Whether the caller has dropped the request.
    pub(super) given_up: GivenUp,
    pub(super) is_opening: bool,
}

/// Requests that must be over before another is posted.
pub(super) struct Predecessors {
    /// One that was cancelled, and has the same id.
    pub(super) same_id: Option<watch::Receiver<Option<Reserved>>>,
    /// One that subscribes to, or unsubscribes from, the same resource.
    pub(super) same_resource: Option<watch::Receiver<Progress>>,
}

impl Predecessors {
    async fn are_over(self, link: &Link) {
        // To wait for a change fails when the request is over.
        if let Some(mut request) = self.same_resource {
            let is_over = async { while request.changed().await.is_ok() {} };
            // A server that does not answer it must not hold up the next one for long.
            let _ = timeout(ORDER_LIMIT, is_over).await;
        }
        if let Some(mut leaving) = self.same_id {
            while leaving.changed().await.is_ok() {}
            let reserved = *leaving.borrow();
            if let Some(Reserved { until, session }) = reserved {
                let mut sessions = link.sessions.subscribe();
                // A time that is over ends the waiting, and so does the session.
                let _ = timeout_at(until, is_over(&mut sessions, session)).await;
            }
        }
    }
}

impl Carrier {
    /// Carries the request, once its predecessors are over, and delivers what comes back. If that is no answer, the
    /// loss is delivered instead.
    pub(super) async fn run(self, frame: Bytes, handed: Handed, predecessors: Predecessors) {
        predecessors.are_over(&self.link).await;
        if let Err(error) = self.carry(frame, &handed).await {
            let id = self.id.clone();
            self.settle(Received::Lost { id, error }).await;
        }
    }

    async fn carry(&self, frame: Bytes, handed: &Handed) -> Result<()> {
        let clock = self.link.stopwatch(&self.id, &self.given_up);
        let Some((session, response)) = self.post(frame, handed, &clock).await? else {
            return Ok(()); // dropped, and refused: it was not processed and never will be
        };
        let headers = response.headers().clone();
        match read(&self.link.endpoint, response).await? {
            Reply::Bare(status) => Err(no_answer(status)),
            Reply::Json(status, body) => match self.deliver(&session, &headers, body).await {
                Delivered::Answer => Ok(()),
                Delivered::Other => Err(no_answer(status)),
            },
            Reply::Events(events) => self.follow(&session, &headers, events).await,
        }
    }

    /// Posts the request, and once more in a new session if the server has forgotten the one it was posted in. `None`
    /// if it was dropped before it was refused like that.
    async fn post(
        &self,
        frame: Bytes,
        handed: &Handed,
        clock: &dyn Stopwatch,
    ) -> Result<Option<(Arc<Session>, Response<ResponseBody>)>> {
        let when_refused = WhenRefused::AuthorizeWhile(clock);
        for _ in 0..MAX_SESSIONS {
            let session = match self.is_opening {
                true => Arc::default(),
                false => self.link.session(Some(clock)).await?,
            };
            // Before a connection can have the body: a cancel that finds it there must know the session.
            self.progress
                .send_replace(Progress::Posted(session.clone()));
            let posted = self
                .link
                .post(&session, frame.clone(), handed, when_refused);
            let response = posted.await.inspect_err(|_| {
                if handed.is_withdrawn() {
                    self.progress.send_replace(Progress::Refused);
                }
            })?;
            if response.status() != StatusCode::NOT_FOUND || session.id.is_none() {
                let answering = Progress::Answering(session.clone());
                self.progress.send_replace(answering);
                return Ok(Some((session, response)));
            }
            // Taken back before the cancel can find it handed over: the copy that was refused has nothing to cancel.
            let is_wanted = handed.take_back();
            self.progress.send_replace(Progress::Refused);
            self.link.forget(&session);
            if !is_wanted {
                return Ok(None);
            }
        }
        Err(no_answer(StatusCode::NOT_FOUND))
    }

    /// Delivers a stream up to the answer, resuming it where it was cut if the server lets us.
    async fn follow(
        &self,
        session: &Session,
        headers: &HeaderMap,
        mut events: Events,
    ) -> Result<()> {
        let mut attempts = Attempts::new();
        let mut last_event = None;
        loop {
            attempts.begin();
            let cut = loop {
                match events.next_message().await {
                    Ok(Some(data)) => {
                        attempts.hear();
                        if let Delivered::Answer = self.deliver(session, headers, data).await {
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
            if !attempts.end() {
                return Err(cut.unwrap_or_else(lost));
            }
            let wait = attempts.wait(events.retry());
            let id = self.id.clone();
            let until = Instant::now().checked_add(wait);
            let waiting = Received::Waiting { id, until };
            self.link.tell_of(waiting, &self.given_up).await;
            sleep(wait).await;
            if self.given_up.is_set() {
                return Ok(()); // nobody waits for the rest
            }
            let stopwatch = self.link.stopwatch(&self.id, &self.given_up);
            let when_refused = WhenRefused::AuthorizeWhile(&stopwatch);
            let resuming = self.link.stream(session, Some(last_event), when_refused);
            let Some(resumed) = resuming.await? else {
                return Err(cut.unwrap_or_else(lost));
            };
            events = resumed;
        }
    }

    /// Delivers a message, or each message of a batch where the revision has batches.
    async fn deliver(&self, session: &Session, headers: &HeaderMap, frame: Bytes) -> Delivered {
        let takes_batches = session.dialect.is_some_and(|dialect| dialect.batches);
        if !takes_batches || !is_batch(&frame) {
            return self.deliver_one(headers, frame).await;
        }
        let Ok(parts) = decode_batch(&frame, Limits::default().batch_messages) else {
            self.link.deliver(Received::Frame(frame)).await; // which refuses it
            return Delivered::Other;
        };
        let mut delivered = Delivered::Other;
        for part in parts {
            match part {
                Ok(part) => {
                    if let Delivered::Answer = self.deliver_one(headers, part.to_frame()).await {
                        delivered = Delivered::Answer;
                    }
                }
                Err(malformed) => {
                    let malformed = shortened(malformed);
                    tracing::warn!(%malformed, "a part of a batch was no message");
                }
            }
        }
        delivered
    }

    async fn deliver_one(&self, headers: &HeaderMap, frame: Bytes) -> Delivered {
        let answer = match Message::decode(&frame) {
            Ok(Message::Response(answer)) if self.is_ours(answer.id.as_ref()) => answer,
            _ => {
                self.link.deliver(Received::Frame(frame)).await;
                return Delivered::Other;
            }
        };
        if self.is_opening {
            let session = self.link.issue(headers, &answer);
            self.link.change(|sessions| sessions.greet(session));
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
        self.link.settle(end, &self.id, &self.given_up).await;
    }

    fn is_ours(&self, id: Option<&RequestId>) -> bool {
        id.is_none_or(|id| CorrelationKey::from(id) == CorrelationKey::from(&self.id))
    }
}

enum Delivered {
    Answer,
    Other,
}

/// How long a request waits for the one before it about the same resource.
const ORDER_LIMIT: Duration = Duration::from_secs(5);
/// In how many sessions a request is posted: a server that forgets the new one at once is not asked for ever.
const MAX_SESSIONS: usize = 2;
