//! Legacy HTTP as a duplex wire: POSTs out, their responses and a GET stream in.
//!
//! The engine above does not know that its wire is made of HTTP requests. What the wire adds is the
//! session, and the legacy spelling of a cancel: a POST of its own that must not overtake the request.

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
use tokio::time::timeout;

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
        let frame = message.to_frame();
        let under_way = id.and_then(|id| Some((id, self.under_way.remove(id)?)));
        let Some((id, under_way)) = under_way else {
            let link = self.link.clone();
            self.tasks
                .spawn(async move { link.post_quietly(frame, WhenRefused::GiveUp).await });
            return;
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
        let link = self.link.clone();
        let (left, leaving) = watch::channel(());
        self.leaving.insert(CorrelationKey::from(id), leaving);
        self.tasks.spawn(async move {
            let _ = timeout(HEAD_START, head.wait_for(|seen| *seen)).await;
            link.post_quietly(frame, WhenRefused::GiveUp).await;
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
        self.tasks.spawn(async move {
            link.post_quietly(frame, WhenRefused::Authorize).await;
            drop(posted);
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
                _ => self.post(message),
            },
            Message::Response(_) => self.post(message),
        }
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let farewell = self.farewell.get_or_insert_with(|| {
            let link = self.link.clone();
            // Cancels that were queued are still on their way; the rest ends with the session.
            let mut tasks = std::mem::take(&mut self.tasks);
            for under_way in std::mem::take(&mut self.under_way).into_values() {
                under_way.task.abort();
            }
            Box::pin(async move {
                let _ = timeout(FAREWELL_LIMIT, link.end()).await;
                tasks.abort_all();
            })
        });
        farewell.as_mut().poll(cx).map(Ok)
    }
}

impl HttpWire {
    fn post(&mut self, message: &Message) {
        let (link, frame) = (self.link.clone(), message.to_frame());
        self.tasks
            .spawn(async move { link.post_quietly(frame, WhenRefused::Authorize).await });
    }
}

fn cancelled_id(notification: &Notification) -> Option<RequestId> {
    let params: CancelledNotificationParams = notification.params.as_ref()?.decode().ok()?;
    params.request_id
}

/// How long a cancel waits for the head of the response to its request.
const HEAD_START: Duration = Duration::from_millis(100);
/// How long the response to a cancelled request is drained.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
const MOST_WAITING: usize = 256;
const MOST_TASKS: usize = 8192;
