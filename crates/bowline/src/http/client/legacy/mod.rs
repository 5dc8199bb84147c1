//! Legacy HTTP as a duplex wire: POSTs out, their responses and a GET stream in.
//!
//! The engine above does not know that its wire is made of HTTP requests. What the wire adds is the
//! session, and the legacy spelling of a cancel: a POST of its own that must not overtake the request.

mod attempts;

mod carry;

mod held;

mod link;
use link::{Delivery, GivenUp, Link};

mod two_endpoints;
use two_endpoints::TwoEndpoints;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_core::{CorrelationKey, Message, Notification};
use bowline_types::{
    CancelledNotification, CancelledNotificationParams, InitializeRequest, InitializedNotification,
    Method, Notice, RequestId,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{timeout, timeout_at};

use super::send::Handed;
use super::{Endpoint, WhenRefused};
use crate::exchange::Pause;
use crate::wire::{Received, Wire};

/// A wire to a legacy server.
#[allow(clippy::unnecessary_wraps, reason = "a build without legacy has none")]
pub(crate) fn wire(endpoint: Endpoint) -> Option<Box<dyn Wire>> {
    Some(Box::new(HttpWire::new(endpoint)))
}

/// A wire to a server of 2024-11-05, which has two endpoints.
pub(crate) async fn two_endpoints(
    endpoint: Endpoint,
    pause: &Pause,
) -> crate::Result<Box<dyn Wire>> {
    Ok(Box::new(TwoEndpoints::open(endpoint, pause).await?))
}

/// A legacy server over HTTP, as a wire.
///
/// # Cancel safety
///
/// Dropping it drops every request that is under way.
struct HttpWire {
    link: Arc<Link>,
    incoming: mpsc::Receiver<Delivery>,
    /// Every task of this wire; dropping the set ends them.
    tasks: JoinSet<()>,
    under_way: BTreeMap<RequestId, UnderWay>,
    /// Requests that were cancelled and whose POST is not over. One that has the same id, in any spelling,
    /// waits for that: it might be refused, or the cancel might hit it.
    leaving: BTreeMap<CorrelationKey, watch::Receiver<()>>,
    /// How many messages that have no answer are on their way.
    posting: watch::Sender<usize>,
    /// Rings when the handshake's last word was posted: what follows must not overtake it.
    gate: Option<oneshot::Receiver<()>>,
    farewell: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A request whose answer is not in yet.
struct UnderWay {
    task: AbortHandle,
    handed: Handed,
    head: watch::Receiver<bool>,
    given_up: GivenUp,
}

impl HttpWire {
    fn new(endpoint: Endpoint) -> Self {
        let (sender, incoming) = mpsc::channel(MOST_WAITING);
        Self {
            link: Arc::new(Link::new(endpoint, sender)),
            incoming,
            tasks: JoinSet::new(),
            under_way: BTreeMap::new(),
            leaving: BTreeMap::new(),
            posting: watch::Sender::new(0),
            gate: None,
            farewell: None,
        }
    }

    fn send_request(&mut self, id: &RequestId, message: &Message, is_opening: bool) {
        let frame = message.to_frame();
        if is_opening {
            // A version learned earlier must not leak onto the handshake.
            self.link.begin(frame.clone());
        }
        let (handed, head) = (Handed::new(), watch::Sender::new(false));
        let (head_seen, given_up) = (head.subscribe(), GivenUp::default());
        let carrying = carry::Carrier {
            link: self.link.clone(),
            id: id.clone(),
            head,
            given_up: given_up.clone(),
            is_opening,
        };
        let predecessor = self.leaving.get(&CorrelationKey::from(id)).cloned();
        let task = self
            .tasks
            .spawn(carrying.run(frame, handed.clone(), predecessor));
        self.under_way.insert(
            id.clone(),
            UnderWay {
                task,
                handed,
                head: head_seen,
                given_up,
            },
        );
    }

    /// A cancel never overtakes its request: it waits for the head of the response, or for a moment after
    /// the request was handed to a connection. What was not handed over is withdrawn, and nothing is posted.
    fn send_cancel(&mut self, message: &Message, id: Option<&RequestId>) {
        let under_way = id.and_then(|id| Some((id, self.under_way.remove(id)?)));
        let Some((id, under_way)) = under_way else {
            return self.post(message, WhenRefused::GiveUp);
        };
        let UnderWay {
            task,
            handed,
            mut head,
            given_up,
        } = under_way;
        given_up.set();
        if handed.withdraw() {
            return task.abort();
        }
        let (link, frame) = (self.link.clone(), message.to_frame());
        let (left, leaving) = watch::channel(());
        self.leaving.insert(CorrelationKey::from(id), leaving);
        let posting = Posting::begin(&self.posting);
        self.tasks.spawn(async move {
            let head_start = handed.since() + HEAD_START;
            let _ = timeout_at(head_start, head.wait_for(|seen| *seen)).await;
            link.post_quietly(frame, WhenRefused::GiveUp).await;
            drop(posting);
            // A disconnect is no signal in this era, so the response is let run out rather than cut. Whoever
            // carries it holds the other end of `head` until it is done.
            let ended = async { while head.changed().await.is_ok() {} };
            let _ = timeout(DRAIN_LIMIT, ended).await;
            task.abort();
            drop(left);
        });
    }

    fn send_initialized(&mut self, message: &Message) {
        let (link, frame) = (self.link.clone(), message.to_frame());
        let (posted, gate) = oneshot::channel();
        self.gate = Some(gate);
        let posting = Posting::begin(&self.posting);
        self.tasks.spawn(async move {
            link.post_quietly(frame, WhenRefused::Authorize).await;
            drop((posting, posted));
            link.listen().await;
        });
    }
}

impl Wire for HttpWire {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        loop {
            match ready!(self.incoming.poll_recv(cx)) {
                Some(delivery) if delivery.is_wanted() => return Poll::Ready(delivery.received),
                Some(_) => {}
                None => return Poll::Ready(Received::End),
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(Some(_)) = self.tasks.poll_join_next(cx) {}
        self.under_way
            .retain(|_, under_way| !under_way.task.is_finished());
        self.leaving
            .retain(|_, leaving| leaving.has_changed().is_ok());
        if let Some(gate) = &mut self.gate {
            if Pin::new(gate).poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.gate = None;
        }
        if self.tasks.len() < MOST_TASKS {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn send(&mut self, message: &Message) {
        match message {
            Message::Request(request) => {
                self.send_request(
                    &request.id,
                    message,
                    request.method == InitializeRequest::NAME,
                );
            }
            Message::Notification(notification) => match &*notification.method {
                CancelledNotification::NAME => {
                    self.send_cancel(message, cancelled_id(notification).as_ref());
                }
                InitializedNotification::NAME => self.send_initialized(message),
                _ => self.post(message, WhenRefused::Authorize),
            },
            Message::Response(_) => self.post(message, WhenRefused::Authorize),
        }
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let farewell = self.farewell.get_or_insert_with(|| {
            let (link, mut posting) = (self.link.clone(), self.posting.subscribe());
            let mut tasks = std::mem::take(&mut self.tasks);
            for under_way in std::mem::take(&mut self.under_way).into_values() {
                under_way.task.abort();
            }
            Box::pin(async move {
                // Cancels may still be on their way. What is not cancelled ends with the session.
                let _ = timeout(POSTING_LIMIT, posting.wait_for(|left| *left == 0)).await;
                let _ = timeout(FAREWELL_LIMIT, link.end()).await;
                tasks.abort_all();
            })
        });
        farewell.as_mut().poll(cx).map(Ok)
    }
}

impl HttpWire {
    fn post(&mut self, message: &Message, when_refused: WhenRefused<'static>) {
        let (link, frame) = (self.link.clone(), message.to_frame());
        let posting = Posting::begin(&self.posting);
        self.tasks.spawn(async move {
            link.post_quietly(frame, when_refused).await;
            drop(posting);
        });
    }
}

/// A message that has no answer, on its way.
struct Posting(watch::Sender<usize>);

impl Posting {
    fn begin(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Posting {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

fn cancelled_id(notification: &Notification) -> Option<RequestId> {
    let params: CancelledNotificationParams = notification.params.as_ref()?.decode().ok()?;
    params.request_id
}

/// How long after its request a cancel waits for the head of the response.
const HEAD_START: Duration = Duration::from_millis(100);
/// How long the response to a cancelled request is drained.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long closing waits for what is on its way, and then for the goodbye.
const POSTING_LIMIT: Duration = Duration::from_millis(500);
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
const MOST_WAITING: usize = 256;
const MOST_TASKS: usize = 8192;
