//! `HttpSseWire`, the client wire of HTTP+SSE, the transport of 2024-11-05: a GET stream, and an endpoint for POSTs.
//!
//! The first event of the stream (`endpoint`) contains the URL for POSTs. All messages of the server arrive on that
//! stream, and its end is the end of the wire.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_core::mux::OutgoingMessage;
use bowline_core::{Message, shortened};
use bowline_types::RequestId;
use bytes::Bytes;
use http::{Method, Uri};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::POST_LIMIT;
use super::cancel::{MAX_CANCELS, post_cancel, wait_for_order};
use super::engine_timeout_control::{EngineTimeoutControl, TimeoutControlPair};
use super::post_state::{AbandonedFlag, PostState};
use super::wire_state::Delivery;
use crate::exchange::{CANCEL_TIME, TimeoutControl, TimeoutPause, timeout_with_pauses};
use crate::http::client::UnexpectedStatus;
use crate::http::client::response::{ResponseContent, SseStream, read};
use crate::http::client::send::SendState;
use crate::http::client::{
    Endpoint, OutgoingRequest, RefusalPolicy, message_headers, resolve_in_origin, stream_headers,
};
use crate::telemetry::TransportKind;
use crate::wire::{EngineWire, Received, WireEvent};
use crate::{Error, Result};

/// A wire to an HTTP+SSE server.
///
/// # Cancel safety
///
/// Dropping it closes the stream, which ends the connection in this transport.
pub(super) struct HttpSseWire {
    incoming: mpsc::Receiver<Delivery>,
    /// `None` once the wire is being closed.
    outgoing: Option<mpsc::Sender<QueuedPost>>,
    /// Waits for room in the queue of outgoing messages.
    ready: Option<ReserveFuture>,
    /// Requests whose POST is not over.
    pending: BTreeMap<RequestId, PendingPost>,
    post_to: Endpoint,
    /// Limits how many cancels are posted concurrently.
    permits: Arc<Semaphore>,
    /// Dropping a set aborts its tasks.
    reader: JoinSet<()>,
    writer: JoinSet<()>,
    cancels: JoinSet<()>,
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

type ReserveFuture = Pin<Box<dyn Future<Output = Option<mpsc::OwnedPermit<QueuedPost>>> + Send>>;

/// A queued message.
struct QueuedPost {
    frame: Bytes,
    send_state: SendState,
    post_state: watch::Sender<PostState>,
    /// `Some` for a request.
    request: Option<(RequestId, AbandonedFlag)>,
}

struct PendingPost {
    send_state: SendState,
    post_state: watch::Receiver<PostState>,
    abandoned: AbandonedFlag,
}

impl PendingPost {
    /// Returns whether the POST was accepted; the response will arrive on the stream.
    fn is_accepted(&self) -> bool {
        matches!(&*self.post_state.borrow(), PostState::Responded(_))
    }
}

impl HttpSseWire {
    /// Opens the stream at `endpoint` and waits for its `endpoint` event.
    pub(super) async fn open(endpoint: Endpoint, pause: &TimeoutPause) -> Result<Self> {
        let outgoing = OutgoingRequest {
            method: Method::GET,
            headers: &|| Ok(stream_headers()),
            frame: Bytes::new(),
            send_state: &SendState::new(),
            refusal_policy: RefusalPolicy::AuthorizePausing(pause),
        };
        let response = endpoint.request(&outgoing).await?;
        let mut events = match read(&endpoint, response).await? {
            ResponseContent::Sse(events) => events,
            ResponseContent::Other(status, body) | ResponseContent::Json(status, body) => {
                return Err(endpoint.missing_response(status, &body));
            }
        };
        let post_to = post_uri(&endpoint.uri, &mut events).await?;
        let (sender, incoming) = mpsc::channel(QUEUE_CAPACITY);
        let (outgoing, queue) = mpsc::channel(QUEUE_CAPACITY);
        let post_to = Endpoint {
            uri: post_to,
            // Messages are posted one after the other, so a wait would delay answers and cancels.
            retry_unavailable: Duration::ZERO,
            ..endpoint
        };
        let (mut reader, mut writer) = (JoinSet::new(), JoinSet::new());
        reader.spawn(listen(events, sender.clone()));
        writer.spawn(post_all(post_to.clone(), queue, sender));
        Ok(Self {
            incoming,
            outgoing: Some(outgoing),
            ready: None,
            pending: BTreeMap::new(),
            post_to,
            permits: Arc::new(Semaphore::new(MAX_CANCELS)),
            reader,
            writer,
            cancels: JoinSet::new(),
            closing: None,
        })
    }

    fn enqueue(&mut self, message: &Message) {
        let (post_state, seen) = watch::channel(PostState::default());
        let (send_state, abandoned) = (SendState::new(), AbandonedFlag::default());
        let id = match message {
            Message::Request(request) => Some(request.id.clone()),
            Message::Notification(_) | Message::Response(_) => None,
        };
        let queued = QueuedPost {
            frame: message.to_frame(),
            send_state: send_state.clone(),
            post_state,
            request: id.clone().map(|id| (id, abandoned.clone())),
        };
        let outgoing = self.outgoing.as_ref();
        if outgoing.is_none_or(|outgoing| outgoing.try_send(queued).is_err()) {
            tracing::debug!("dropped a message; the wire is closing");
            return;
        }
        if let Some(id) = id {
            let pending = PendingPost {
                send_state,
                post_state: seen,
                abandoned,
            };
            if let Some(replaced) = self.pending.insert(id, pending) {
                // Dropped without a cancel; its failure must not be delivered to its successor with the same id.
                replaced.abandoned.set();
            }
        }
    }

    /// Withdraws a request that no connection has yet, without posting a cancel. Otherwise posts the cancel as soon as
    /// it cannot overtake the request, bypassing the queue.
    fn send_cancel(&mut self, message: &Message, id: &RequestId) {
        let pending = self.pending.remove(id);
        if let Some(pending) = &pending {
            pending.abandoned.set();
            if pending.send_state.withdraw() {
                return;
            }
        }
        let (endpoint, frame) = (self.post_to.clone(), message.to_frame());
        let permits = self.permits.clone();
        self.cancels.spawn(async move {
            if let Some(PendingPost {
                send_state,
                mut post_state,
                ..
            }) = pending
                && !wait_for_order(&send_state, &mut post_state).await
            {
                return; // refused by the server
            }
            post_cancel(&permits, &endpoint, &message_headers(), frame).await;
        });
    }

    /// Removes a request when the engine receives that its POST failed; `poll_ready` removes the accepted ones.
    fn forget(&mut self, delivery: &Delivery) {
        if let Some(id) = &delivery.settles
            && let Some(pending) = self.pending.get(id)
            && delivery.belongs_to(&pending.abandoned)
        {
            self.pending.remove(id);
        }
    }
}

impl EngineWire for HttpSseWire {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<WireEvent> {
        loop {
            match ready!(self.incoming.poll_recv(cx)) {
                Some(delivery) if delivery.is_wanted() => {
                    self.forget(&delivery);
                    return Poll::Ready(delivery.into_event());
                }
                Some(_) => {}
                None => return Poll::Ready(Received::End.into()),
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(Some(_)) = self.cancels.poll_join_next(cx) {}
        self.pending.retain(|_, pending| !pending.is_accepted());
        if self.cancels.len() >= super::MAX_TASKS {
            return Poll::Pending;
        }
        let Some(outgoing) = &self.outgoing else {
            return Poll::Pending; // closing: no more messages are accepted
        };
        if outgoing.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if outgoing.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        // Waits for room by reserving a slot, and releases it again: no other sender can take it.
        let outgoing = outgoing.clone();
        let reserved = self
            .ready
            .get_or_insert_with(|| Box::pin(async move { outgoing.reserve_owned().await.ok() }));
        match reserved.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(permit) => {
                drop(permit);
                self.ready = None;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn send(&mut self, outgoing: &OutgoingMessage) {
        match &outgoing.cancels {
            Some(id) => self.send_cancel(&outgoing.message, id),
            None => self.enqueue(&outgoing.message),
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The writer ends when the queue is empty.
        self.outgoing = None;
        self.ready = None;
        let closing = self.closing.get_or_insert_with(|| {
            let mut writer = std::mem::take(&mut self.writer);
            let mut cancels = std::mem::take(&mut self.cancels);
            Box::pin(async move {
                let written = async { while writer.join_next().await.is_some() {} };
                let cancelled = async { while cancels.join_next().await.is_some() {} };
                let _ = tokio::join!(
                    timeout(WRITE_LIMIT, written),
                    timeout(CANCEL_TIME, cancelled)
                );
                if !cancels.is_empty() {
                    let count = cancels.len();
                    tracing::warn!(
                        count,
                        "cancels were not answered before the end of the connection"
                    );
                }
            })
        });
        ready!(closing.as_mut().poll(cx));
        self.reader.abort_all();
        Poll::Ready(Ok(()))
    }

    fn transport(&self) -> TransportKind {
        TransportKind::Http
    }
}

/// Reads the URL for POSTs from the first event; it must be of the same origin.
async fn post_uri(stream_uri: &Uri, events: &mut SseStream) -> Result<Uri> {
    let first = events.next().await?;
    let Some(event) = first.filter(|event| event.name.as_deref() == Some("endpoint")) else {
        return Err(Error::protocol(
            "expected an `endpoint` event at the start of the stream",
        ));
    };
    let named = std::str::from_utf8(&event.data)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let named: Uri = named.ok_or_else(|| Error::protocol("invalid URL in the `endpoint` event"))?;
    resolve_in_origin(stream_uri, named)
}

async fn listen(mut events: SseStream, incoming: mpsc::Sender<Delivery>) {
    let end = loop {
        match events.next().await {
            Ok(Some(event)) if event.data.is_empty() => {}
            Ok(Some(event)) => {
                let delivery = Delivery::new(Received::Frame(event.data));
                if incoming.send(delivery).await.is_err() {
                    return;
                }
            }
            Ok(None) => break Received::End,
            Err(error) => break Received::Broken(io::Error::other(error)),
        }
    };
    // Fails only when the wire was dropped, and the engine with it.
    let _ = incoming.send(Delivery::new(end)).await;
}

/// Posts the queued messages in order: each waits until the one before it was accepted, but at most `ORDER_LIMIT`, so
/// that a stalled POST does not block the others.
async fn post_all(
    endpoint: Endpoint,
    mut queue: mpsc::Receiver<QueuedPost>,
    incoming: mpsc::Sender<Delivery>,
) {
    let mut posts = JoinSet::new();
    while let Some(queued) = queue.recv().await {
        while posts.try_join_next().is_some() {}
        while posts.len() >= MAX_POSTS {
            posts.join_next().await;
        }
        if queued.send_state.is_withdrawn() {
            continue;
        }
        let (done, is_done) = oneshot::channel();
        posts.spawn(post_one(endpoint.clone(), queued, incoming.clone(), done));
        let _ = timeout(ORDER_LIMIT, is_done).await;
    }
    while posts.join_next().await.is_some() {}
}

async fn post_one(
    endpoint: Endpoint,
    queued: QueuedPost,
    incoming: mpsc::Sender<Delivery>,
    done: oneshot::Sender<()>,
) {
    let QueuedPost {
        frame,
        send_state,
        post_state,
        request,
    } = queued;
    let pause = TimeoutPause::default();
    post_state.send_replace(PostState::Posted(Arc::default()));
    let posted = match &request {
        Some((id, abandoned)) => {
            let engine = EngineTimeoutControl {
                incoming: &incoming,
                id,
                abandoned,
            };
            let timeouts = TimeoutControlPair(&engine, &pause);
            let timeouts: &dyn TimeoutControl = &timeouts;
            let posting = post(
                &endpoint,
                frame,
                &send_state,
                RefusalPolicy::AuthorizePausing(timeouts),
            );
            timeout_with_pauses(POST_LIMIT, &pause, posting).await
        }
        None => {
            let posting = post(&endpoint, frame, &send_state, RefusalPolicy::Fail);
            timeout_with_pauses(POST_LIMIT, &pause, posting).await
        }
    };
    match &posted {
        Ok(()) => drop(post_state.send_replace(PostState::Responded(Arc::default()))),
        Err(error) => {
            tracing::debug!(error = %shortened(&error), "failed to post a message");
            // An error status means that the server did not take the request; a broken connection does not.
            if send_state.is_withdrawn() || UnexpectedStatus::of(error).is_some() {
                post_state.send_replace(PostState::Refused);
            }
        }
    }
    drop(done);
    if let (Err(error), Some((id, abandoned))) = (posted, request) {
        let lost = WireEvent::RequestFailed {
            id: id.clone(),
            error,
        };
        // Fails only when the wire was dropped, and the engine with it.
        let _ = incoming.send(Delivery::end(lost, id, &abandoned)).await;
    }
}

async fn post(
    endpoint: &Endpoint,
    frame: Bytes,
    send_state: &SendState,
    refusal_policy: RefusalPolicy<'_>,
) -> Result<()> {
    let outgoing = OutgoingRequest {
        method: Method::POST,
        headers: &|| Ok(message_headers()),
        frame,
        send_state,
        refusal_policy,
    };
    let response = endpoint.request(&outgoing).await?;
    match endpoint.drain_response(response) {
        status if status.is_success() => Ok(()),
        status => Err(endpoint.missing_response(status, &Bytes::new())),
    }
}

const QUEUE_CAPACITY: usize = 256;
/// Maximum number of concurrent POSTs.
const MAX_POSTS: usize = 32;
/// How long closing waits for messages being posted, other than cancels.
const WRITE_LIMIT: Duration = Duration::from_secs(1);
/// How long a message waits until the one before it is accepted.
const ORDER_LIMIT: Duration = Duration::from_secs(1);
