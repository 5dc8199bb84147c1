//! Legacy HTTP as a duplex wire: POSTs out, their responses and a GET stream in.
//!
//! The engine above does not know that its wire is made of HTTP requests. What the wire adds is the
//! session, and the legacy spelling of a cancel: a POST of its own that must not overtake the request.

mod attempts;

mod cancel;
use cancel::{Cancel, Draining, MAX_CANCELS, Reserved};

mod carry;

mod held;

mod keep;

mod link;
use link::{Delivery, Link};

mod progress;
use progress::{GivenUp, Progress};

mod session;
use session::Sessions;

mod two_endpoints;
use two_endpoints::TwoEndpoints;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_core::{CorrelationKey, Message, Notification, RawRequest, shortened};
use bowline_types::{
    CancelledNotification, CancelledNotificationParams, InitializeRequest, InitializedNotification,
    Method, Notice, RequestId, SubscribeRequest, UnsubscribeRequest,
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::Endpoint;
use super::send::Handed;
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
    /// Those whose end the engine received last.
    settled: VecDeque<RequestId>,
    /// Responses to requests that were cancelled.
    draining: Draining,
    /// Limits how many cancels are posted at once.
    turns: Arc<Semaphore>,
    /// The task that receives unsolicited messages and opens new sessions.
    keeper: Option<AbortHandle>,
    /// Requests that were cancelled and whose POST is not over. One that has the same id, in any spelling,
    /// waits for that: it might be refused, or the cancel might hit it.
    leaving: BTreeMap<CorrelationKey, watch::Receiver<Option<Reserved>>>,
    /// The last request to subscribe to, or to unsubscribe from, each resource. The next one for the same resource
    /// waits until that one is over: on a connection of its own it could arrive first, and the older would win.
    subscriptions: BTreeMap<String, watch::Receiver<Progress>>,
    /// How many messages that have no answer are on their way.
    posting: watch::Sender<usize>,
    /// Rings when the handshake is over and the GET stream is open: what follows must not overtake that.
    gate: Option<oneshot::Receiver<()>>,
    farewell: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A request whose end the engine has not received yet.
struct UnderWay {
    task: AbortHandle,
    handed: Handed,
    progress: watch::Receiver<Progress>,
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
            settled: VecDeque::new(),
            draining: Draining::default(),
            turns: Arc::new(Semaphore::new(MAX_CANCELS)),
            keeper: None,
            leaving: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            posting: watch::Sender::new(0),
            gate: None,
            farewell: None,
        }
    }

    fn send_request(&mut self, request: &RawRequest, message: &Message) {
        let (id, frame) = (&request.id, message.to_frame());
        let is_opening = request.method == InitializeRequest::NAME;
        if is_opening {
            let earlier = self.link.change(|sessions| sessions.begin(frame.clone()));
            drop(earlier);
            if self.keeper.is_none() {
                let link = self.link.clone();
                self.keeper = Some(self.tasks.spawn(async move { link.keep().await }));
            }
        }
        let (handed, given_up) = (Handed::new(), GivenUp::default());
        let (progress, seen) = watch::channel(Progress::default());
        let carrying = carry::Carrier {
            link: self.link.clone(),
            id: id.clone(),
            progress,
            given_up: given_up.clone(),
            is_opening,
        };
        let predecessors = carry::Predecessors {
            same_id: self.leaving.get(&CorrelationKey::from(id)).cloned(),
            same_resource: subscribed_resource(request)
                .and_then(|uri| self.subscriptions.insert(uri, seen.clone())),
        };
        let task = self
            .tasks
            .spawn(carrying.run(frame, handed.clone(), predecessors));
        let under_way = UnderWay {
            task,
            handed,
            progress: seen,
            given_up,
        };
        if let Some(abandoned) = self.under_way.insert(id.clone(), under_way) {
            // Dropped without a cancel; its answer must not be taken for that of its successor.
            abandoned.given_up.set();
        }
    }

    /// A cancel never overtakes its request: it waits for the head of the response, or for a moment after
    /// the request was handed to a connection. What was not handed over is withdrawn, and nothing is posted.
    fn send_cancel(&mut self, message: &Message, id: Option<&RequestId>) {
        let under_way = id.and_then(|id| Some((id, self.under_way.remove(id)?)));
        let Some((id, under_way)) = under_way else {
            if id.is_some_and(|id| self.settled.contains(id)) {
                // The engine had queued it before it received the end. In another session it might hit a successor.
                tracing::debug!("a cancel was dropped: its request is over");
                return;
            }
            return self.post(message);
        };
        let UnderWay {
            task,
            handed,
            progress,
            given_up,
        } = under_way;
        given_up.set();
        if handed.withdraw() {
            return task.abort();
        }
        let (left, leaving) = watch::channel(None);
        self.leaving.insert(CorrelationKey::from(id), leaving);
        self.draining.push(task.clone());
        let cancel = Cancel {
            link: self.link.clone(),
            frame: message.to_frame(),
            handed,
            progress,
            carrier: task,
            turns: self.turns.clone(),
            posting: Posting::begin(&self.posting),
            left,
        };
        self.tasks.spawn(cancel.run());
    }

    fn send_initialized(&mut self, message: &Message) {
        let (link, frame) = (self.link.clone(), message.to_frame());
        let (posted, gate) = oneshot::channel();
        self.gate = Some(gate);
        let posting = Posting::begin(&self.posting);
        self.tasks.spawn(async move {
            let session = link.current().unwrap_or_default();
            link.post_in_time(&session, frame).await;
            drop(posting);
            link.change(Sessions::initialized);
            // What the first call makes the server say unsolicited would be lost if no stream were open.
            let _ = timeout(STREAM_LIMIT, link.stream_is_decided()).await;
            drop(posted);
        });
    }

    /// Posts a message that has no answer.
    fn post(&mut self, message: &Message) {
        let (link, frame) = (self.link.clone(), message.to_frame());
        let session = self.link.current();
        if self.link.sessions.borrow().is_forgotten() && matches!(message, Message::Response(_)) {
            // The question was asked in a session that is gone; in the next one its id may be that of another.
            tracing::debug!("an answer was dropped: its session is gone");
            return;
        }
        let posting = Posting::begin(&self.posting);
        self.tasks.spawn(async move {
            let session = match session {
                Some(session) => Ok(session),
                None => link.session(None).await,
            };
            match session {
                Ok(session) => link.post_in_time(&session, frame).await,
                Err(error) => {
                    tracing::debug!(error = %shortened(&error), "failed to post a message")
                }
            }
            drop(posting);
        });
    }
}

impl Wire for HttpWire {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        loop {
            match ready!(self.incoming.poll_recv(cx)) {
                Some(delivery) if delivery.is_wanted() => {
                    self.forget_settled(&delivery);
                    return Poll::Ready(delivery.received);
                }
                Some(_) => {}
                None => return Poll::Ready(Received::End),
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(Some(_)) = self.tasks.poll_join_next(cx) {}
        let now = Instant::now();
        self.leaving
            .retain(|_, leaving| leaving.has_changed().is_ok() || is_reserved(leaving, now));
        self.subscriptions
            .retain(|_, request| request.has_changed().is_ok());
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
            Message::Request(request) => self.send_request(request, message),
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
            let (link, mut posting) = (self.link.clone(), self.posting.subscribe());
            let mut tasks = std::mem::take(&mut self.tasks);
            // A session that is found gone from now on is not opened again.
            self.keeper.iter().for_each(AbortHandle::abort);
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
    /// A request is forgotten when the engine receives its end and not before: a cancel that the engine sends until then
    /// finds it. One that is queued by then is not posted, for there is nothing to cancel.
    fn forget_settled(&mut self, delivery: &Delivery) {
        if let Some(id) = &delivery.settles
            && let Some(under_way) = self.under_way.get(id)
            && delivery.is_about(&under_way.given_up)
        {
            self.under_way.remove(id);
            if self.settled.len() == MOST_WAITING {
                self.settled.pop_front();
            }
            self.settled.push_back(id.clone());
        }
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

/// Whether the id of a request that is over is reserved.
fn is_reserved(leaving: &watch::Receiver<Option<Reserved>>, now: Instant) -> bool {
    let reserved = *leaving.borrow();
    reserved.is_some_and(|reserved| reserved.until > now)
}

/// The resource that a request subscribes to or unsubscribes from.
fn subscribed_resource(request: &RawRequest) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        uri: String,
    }
    if !matches!(
        &*request.method,
        SubscribeRequest::NAME | UnsubscribeRequest::NAME
    ) {
        return None;
    }
    let params: Named = request.params.as_ref()?.decode().ok()?;
    Some(params.uri)
}

/// How long a message without an answer, or a handshake of our own, may take.
const POST_LIMIT: Duration = Duration::from_secs(30);
/// How long the first message waits for the GET stream. Some servers do not answer a GET before they have an event.
const STREAM_LIMIT: Duration = Duration::from_millis(500);
/// How long closing waits for what is on its way, and then for the goodbye.
const POSTING_LIMIT: Duration = Duration::from_millis(500);
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);
const MOST_WAITING: usize = 256;
const MOST_TASKS: usize = 8192;
