//! `HttpWire`, Streamable HTTP of the legacy era as an [`EngineWire`]: POSTs out, their responses and a GET stream in.
//!
//! The wire adds the session, and posts cancels so that they do not overtake their requests.

mod background;

mod cancel;
use cancel::{CancelTask, Draining, MAX_CANCELS, ReservedId};

mod engine_timeout_control;

mod http_sse;
use http_sse::HttpSseWire;

mod lost_session;

mod post_state;
use post_state::{AbandonedFlag, PostState};

mod request_task;
use request_task::{Predecessors, RequestTask};

mod session;
use session::SessionLifecycle;

mod stream_backoff;

mod wire_state;
use wire_state::{Delivery, WireState};

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_core::mux::OutgoingMessage;
use bowline_core::{CorrelationKey, Message, RawRequest, shortened};
use bowline_types::{
    InitializeRequest, InitializedNotification, Method, NotificationMethod, RequestId,
    SubscribeRequest, UnsubscribeRequest,
};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::Endpoint;
use super::send::SendState;
use crate::exchange::{CANCEL_TIME, TimeoutPause};
use crate::telemetry::TransportKind;
use crate::wire::{EngineWire, Received, WireEvent};

/// Returns a wire to a legacy server over Streamable HTTP.
#[allow(
    clippy::unnecessary_wraps,
    reason = "a build without legacy returns `None`"
)]
pub(crate) fn wire(endpoint: Endpoint) -> Option<Box<dyn EngineWire>> {
    Some(Box::new(HttpWire::new(endpoint)))
}

/// Opens a wire to a server of 2024-11-05 (HTTP+SSE).
pub(crate) async fn http_sse_wire(
    endpoint: Endpoint,
    pause: &TimeoutPause,
) -> crate::Result<Box<dyn EngineWire>> {
    Ok(Box::new(HttpSseWire::open(endpoint, pause).await?))
}

/// A wire to a legacy server over Streamable HTTP.
///
/// # Cancel safety
///
/// Dropping it aborts every request in flight.
struct HttpWire {
    state: Arc<WireState>,
    incoming: mpsc::Receiver<Delivery>,
    /// All tasks of this wire; dropping the set aborts them.
    tasks: JoinSet<()>,
    in_flight: BTreeMap<RequestId, PostedRequest>,
    /// The ids of the requests whose end the engine received last, oldest first.
    settled: VecDeque<RequestId>,
    /// Responses to cancelled requests.
    draining: Draining,
    /// Limits how many cancels are posted concurrently.
    permits: Arc<Semaphore>,
    /// The task that receives unsolicited messages and opens new sessions.
    background_task: Option<AbortHandle>,
    /// Cancelled requests whose POST is not over. A new request with the same id (`7` or `"7"`) waits for it: the
    /// server might refuse the new one as a duplicate, or apply the cancel to it.
    cancelled: BTreeMap<CorrelationKey, watch::Receiver<Option<ReservedId>>>,
    /// The last `resources/subscribe` or `resources/unsubscribe` of each URI. The next one for the same URI waits for
    /// it: on another connection it could arrive first, and the older one would win.
    subscriptions: BTreeMap<String, watch::Receiver<PostState>>,
    /// The number of messages without a response that are being posted, other than cancels.
    posting: watch::Sender<usize>,
    /// The number of cancels that are being posted, or wait for that.
    cancelling: watch::Sender<usize>,
    /// Closed when the handshake is complete and the GET stream is open; later messages must not overtake that.
    handshake_done: Option<oneshot::Receiver<()>>,
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A request whose response the engine has not received yet.
struct PostedRequest {
    task: AbortHandle,
    send_state: SendState,
    post_state: watch::Receiver<PostState>,
    abandoned: AbandonedFlag,
}

impl HttpWire {
    fn new(endpoint: Endpoint) -> Self {
        let (sender, incoming) = mpsc::channel(QUEUE_CAPACITY);
        Self {
            state: Arc::new(WireState::new(endpoint, sender)),
            incoming,
            tasks: JoinSet::new(),
            in_flight: BTreeMap::new(),
            settled: VecDeque::new(),
            draining: Draining::default(),
            permits: Arc::new(Semaphore::new(MAX_CANCELS)),
            background_task: None,
            cancelled: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            posting: watch::Sender::new(0),
            cancelling: watch::Sender::new(0),
            handshake_done: None,
            closing: None,
        }
    }

    fn send_request(&mut self, request: &RawRequest, message: &Message) {
        let (id, frame) = (&request.id, message.to_frame());
        let is_opening = request.method == InitializeRequest::NAME;
        if is_opening {
            let earlier = self.state.change(|sessions| sessions.begin(frame.clone()));
            drop(earlier);
            if self.background_task.is_none() {
                let state = self.state.clone();
                self.background_task = Some(
                    self.tasks
                        .spawn(async move { state.run_background().await }),
                );
            }
        }
        let (send_state, abandoned) = (SendState::new(), AbandonedFlag::default());
        let (post_state, seen) = watch::channel(PostState::default());
        let request_task = RequestTask {
            state: self.state.clone(),
            id: id.clone(),
            post_state,
            abandoned: abandoned.clone(),
            is_opening,
        };
        let predecessors = Predecessors {
            same_id: self.cancelled.get(&CorrelationKey::from(id)).cloned(),
            same_resource: subscribed_resource(request)
                .and_then(|uri| self.subscriptions.insert(uri, seen.clone())),
        };
        let task = self
            .tasks
            .spawn(request_task.run(frame, send_state.clone(), predecessors));
        let in_flight = PostedRequest {
            task,
            send_state,
            post_state: seen,
            abandoned,
        };
        if let Some(replaced) = self.in_flight.insert(id.clone(), in_flight) {
            // Dropped without a cancel; its response must not be delivered to its successor with the same id.
            replaced.abandoned.set();
        }
    }

    /// Withdraws a request that no connection has yet, without posting a cancel. Otherwise posts the cancel once it
    /// cannot overtake the request: after the response head, or 100 ms after a connection got the body.
    fn send_cancel(&mut self, message: &Message, id: &RequestId) {
        let Some(in_flight) = self.in_flight.remove(id) else {
            if self.settled.contains(id) {
                // The engine queued the cancel before it received the end. In another session the id may be reused.
                tracing::debug!("dropped a cancel; its request is over");
                return;
            }
            return self.post(message);
        };
        let PostedRequest {
            task,
            send_state,
            post_state,
            abandoned,
        } = in_flight;
        abandoned.set();
        if send_state.withdraw() {
            return task.abort();
        }
        let (reservation, reserved) = watch::channel(None);
        self.cancelled.insert(CorrelationKey::from(id), reserved);
        self.draining.push(task.clone());
        let cancel = CancelTask {
            state: self.state.clone(),
            frame: message.to_frame(),
            send_state,
            post_state,
            request_task: task,
            permits: self.permits.clone(),
            posting: PostingGuard::begin(&self.cancelling),
            reservation,
        };
        self.tasks.spawn(cancel.run());
    }

    fn send_initialized(&mut self, message: &Message) {
        let (state, frame) = (self.state.clone(), message.to_frame());
        let (posted, handshake_done) = oneshot::channel();
        self.handshake_done = Some(handshake_done);
        let posting = PostingGuard::begin(&self.posting);
        self.tasks.spawn(async move {
            let session = state.current().unwrap_or_default();
            state.post_with_timeout(&session, frame).await;
            drop(posting);
            state.change(SessionLifecycle::initialized);
            // Unsolicited messages that the first call triggers would be lost without an open stream.
            let _ = timeout(STREAM_LIMIT, state.wait_for_stream()).await;
            drop(posted);
        });
    }

    /// Posts a message that has no response.
    fn post(&mut self, message: &Message) {
        let (state, frame) = (self.state.clone(), message.to_frame());
        let session = self.state.current();
        if self.state.sessions.borrow().is_lost() && matches!(message, Message::Response(_)) {
            // The server's request belongs to a session that is gone; its id may be another request's in the next one.
            tracing::debug!("dropped a response; its session is gone");
            return;
        }
        let posting = PostingGuard::begin(&self.posting);
        self.tasks.spawn(async move {
            let session = match session {
                Some(session) => Ok(session),
                None => state.session(None).await,
            };
            match session {
                Ok(session) => state.post_with_timeout(&session, frame).await,
                Err(error) => {
                    tracing::debug!(error = %shortened(&error), "failed to post a message")
                }
            }
            drop(posting);
        });
    }
}

impl EngineWire for HttpWire {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<WireEvent> {
        loop {
            match ready!(self.incoming.poll_recv(cx)) {
                Some(delivery) if delivery.is_wanted() => {
                    self.forget_settled(&delivery);
                    return Poll::Ready(delivery.into_event());
                }
                Some(_) => {}
                None => return Poll::Ready(Received::End.into()),
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(Some(_)) = self.tasks.poll_join_next(cx) {}
        let now = Instant::now();
        self.cancelled
            .retain(|_, reserved| reserved.has_changed().is_ok() || is_reserved(reserved, now));
        self.subscriptions
            .retain(|_, request| request.has_changed().is_ok());
        if let Some(handshake_done) = &mut self.handshake_done {
            if Pin::new(handshake_done).poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.handshake_done = None;
        }
        if self.tasks.len() < MAX_TASKS {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn send(&mut self, outgoing: &OutgoingMessage) {
        let message = &outgoing.message;
        match (message, &outgoing.cancels) {
            (_, Some(id)) => self.send_cancel(message, id),
            (Message::Request(request), None) => self.send_request(request, message),
            (Message::Notification(notification), None)
                if notification.method == InitializedNotification::NAME =>
            {
                self.send_initialized(message);
            }
            _ => self.post(message),
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closing = self.closing.get_or_insert_with(|| {
            let state = self.state.clone();
            let (mut posting, mut cancelling) =
                (self.posting.subscribe(), self.cancelling.subscribe());
            let mut tasks = std::mem::take(&mut self.tasks);
            // First, so that a 404 from now on does not open a new session.
            self.background_task.iter().for_each(AbortHandle::abort);
            for in_flight in std::mem::take(&mut self.in_flight).into_values() {
                in_flight.task.abort();
            }
            Box::pin(async move {
                // Other requests end with the session.
                let _ = tokio::join!(
                    timeout(POSTING_LIMIT, none_left(&mut posting)),
                    timeout(CANCEL_TIME, none_left(&mut cancelling)),
                );
                let lost = *cancelling.borrow();
                if lost > 0 {
                    tracing::warn!(
                        count = lost,
                        "cancels were not answered before the end of the session"
                    );
                }
                let _ = timeout(DELETE_LIMIT, state.end()).await;
                tasks.abort_all();
            })
        });
        closing.as_mut().poll(cx).map(Ok)
    }

    fn transport(&self) -> TransportKind {
        TransportKind::Http
    }
}

impl HttpWire {
    /// Removes a request when the engine receives its end, and not earlier: a cancel that the engine sends before must
    /// find it. A cancel already queued by then is not posted (see `settled`).
    fn forget_settled(&mut self, delivery: &Delivery) {
        if let Some(id) = &delivery.settles
            && let Some(in_flight) = self.in_flight.get(id)
            && delivery.belongs_to(&in_flight.abandoned)
        {
            self.in_flight.remove(id);
            if self.settled.len() == QUEUE_CAPACITY {
                self.settled.pop_front();
            }
            self.settled.push_back(id.clone());
        }
    }
}

/// Counts one message without a response while it is being posted.
struct PostingGuard(watch::Sender<usize>);

impl PostingGuard {
    fn begin(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for PostingGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Waits until no message that this counts is being posted.
async fn none_left(count: &mut watch::Receiver<usize>) {
    // Fails only when the wire was dropped, and this with it.
    drop(count.wait_for(|count| *count == 0).await);
}

/// Returns whether the id of a request that is over is still reserved.
fn is_reserved(reserved: &watch::Receiver<Option<ReservedId>>, now: Instant) -> bool {
    let reserved = *reserved.borrow();
    reserved.is_some_and(|reserved| reserved.until > now)
}

/// Returns the URI of a `resources/subscribe` or `resources/unsubscribe` request as JSON text, which is the same for
/// the same URI: this side has encoded it.
fn subscribed_resource(request: &RawRequest) -> Option<String> {
    let methods = [SubscribeRequest::NAME, UnsubscribeRequest::NAME];
    let params = request.params.as_ref();
    let params = params.filter(|_| methods.contains(&&*request.method))?;
    Some(params.member("uri").ok()??.as_str().to_owned())
}

/// Timeout of posting a message without a response, and of a repeated handshake.
const POST_LIMIT: Duration = Duration::from_secs(30);
/// How long the first message waits for the GET stream. Some servers send no response head before the first event.
const STREAM_LIMIT: Duration = Duration::from_millis(500);
/// How long closing waits for messages being posted, other than cancels, and then for the DELETE.
const POSTING_LIMIT: Duration = Duration::from_millis(500);
const DELETE_LIMIT: Duration = Duration::from_secs(1);
const QUEUE_CAPACITY: usize = 256;
const MAX_TASKS: usize = 8192;
