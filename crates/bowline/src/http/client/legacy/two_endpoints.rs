//! HTTP+SSE, the transport of 2024-11-05: one endpoint to listen at, another to post to.
//!
//! The server names the second as the first event of the stream at the first. Everything it says comes
//! over that stream, and the end of the stream is the end of the wire.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_core::{Message, shortened};
use bowline_types::{CancelledNotification, Notice, RequestId};
use bytes::Bytes;
use http::{Method, Uri};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::cancel::{MAX_CANCELS, cannot_overtake, post_cancel};
use super::held::{Both, Held};
use super::link::Delivery;
use super::progress::{GivenUp, Progress};
use super::{POST_LIMIT, cancelled_id};
use crate::exchange::{Pause, Stopwatch, within};
use crate::http::client::UnexpectedStatus;
use crate::http::client::response::{Events, Reply, no_answer, read};
use crate::http::client::send::Handed;
use crate::http::client::{
    Endpoint, Outgoing, WhenRefused, message_headers, stream_headers, within_origin,
};
use crate::wire::{Received, Wire};
use crate::{Error, Result};

/// A server with two endpoints, as a wire.
///
/// # Cancel safety
///
/// Dropping it closes the stream, which is how this transport ends.
pub(super) struct TwoEndpoints {
    incoming: mpsc::Receiver<Delivery>,
    /// Gone once the wire is being closed.
    outgoing: Option<mpsc::Sender<Outbound>>,
    /// A message that found room and was not handed over yet.
    ready: Option<Reserved>,
    /// Requests whose POST is not over.
    under_way: BTreeMap<RequestId, UnderWay>,
    post_to: Endpoint,
    /// Limits how many cancels are posted at once.
    turns: Arc<Semaphore>,
    /// Dropping a set ends its tasks.
    reader: JoinSet<()>,
    writer: JoinSet<()>,
    cancels: JoinSet<()>,
}

type Reserved = Pin<Box<dyn Future<Output = Option<mpsc::OwnedPermit<Outbound>>> + Send>>;

/// A message that waits to be posted.
struct Outbound {
    frame: Bytes,
    handed: Handed,
    progress: watch::Sender<Progress>,
    /// If it is a request.
    request: Option<(RequestId, GivenUp)>,
}

struct UnderWay {
    handed: Handed,
    progress: watch::Receiver<Progress>,
    given_up: GivenUp,
}

impl UnderWay {
    /// Whether the POST was accepted: then only the stream has more to tell.
    fn is_accepted(&self) -> bool {
        matches!(&*self.progress.borrow(), Progress::Answering(_))
    }
}

impl TwoEndpoints {
    /// Listens at `endpoint`, and waits to be told where to post.
    pub(super) async fn open(endpoint: Endpoint, pause: &Pause) -> Result<Self> {
        let outgoing = Outgoing {
            method: Method::GET,
            headers: &|| Ok(stream_headers()),
            frame: Bytes::new(),
            handed: &Handed::new(),
            when_refused: WhenRefused::AuthorizeWhile(pause),
        };
        let response = endpoint.request(&outgoing).await?;
        let mut events = match read(&endpoint, response).await? {
            Reply::Events(events) => events,
            Reply::Bare(status) | Reply::Json(status, _) => return Err(no_answer(status)),
        };
        let post_to = post_address(&endpoint.uri, &mut events).await?;
        let (sender, incoming) = mpsc::channel(MOST_WAITING);
        let (outgoing, queue) = mpsc::channel(MOST_WAITING);
        let post_to = Endpoint {
            uri: post_to,
            ..endpoint
        };
        let (mut reader, mut writer) = (JoinSet::new(), JoinSet::new());
        reader.spawn(listen(events, sender.clone()));
        writer.spawn(post_all(post_to.clone(), queue, sender));
        Ok(Self {
            incoming,
            outgoing: Some(outgoing),
            ready: None,
            under_way: BTreeMap::new(),
            post_to,
            turns: Arc::new(Semaphore::new(MAX_CANCELS)),
            reader,
            writer,
            cancels: JoinSet::new(),
        })
    }

    fn enqueue(&mut self, message: &Message) {
        let (progress, seen) = watch::channel(Progress::default());
        let (handed, given_up) = (Handed::new(), GivenUp::default());
        let id = match message {
            Message::Request(request) => Some(request.id.clone()),
            Message::Notification(_) | Message::Response(_) => None,
        };
        let outbound = Outbound {
            frame: message.to_frame(),
            handed: handed.clone(),
            progress,
            request: id.clone().map(|id| (id, given_up.clone())),
        };
        let outgoing = self.outgoing.as_ref();
        if outgoing.is_none_or(|outgoing| outgoing.try_send(outbound).is_err()) {
            tracing::debug!("a message was not posted: the wire is closing");
            return;
        }
        if let Some(id) = id {
            let under_way = UnderWay {
                handed,
                progress: seen,
                given_up,
            };
            if let Some(abandoned) = self.under_way.insert(id, under_way) {
                // Dropped without a cancel; its failure must not be taken for that of its successor.
                abandoned.given_up.set();
            }
        }
    }

    /// A request that no connection has yet is withdrawn, and nothing is posted. Otherwise the cancel is posted as soon
    /// as it cannot overtake its request, whatever else is queued.
    fn send_cancel(&mut self, message: &Message, id: Option<&RequestId>) {
        let under_way = id.and_then(|id| self.under_way.remove(id));
        if let Some(under_way) = &under_way {
            under_way.given_up.set();
            if under_way.handed.withdraw() {
                return;
            }
        }
        let (endpoint, frame) = (self.post_to.clone(), message.to_frame());
        let turns = self.turns.clone();
        self.cancels.spawn(async move {
            if let Some(UnderWay {
                handed,
                mut progress,
                ..
            }) = under_way
                && !cannot_overtake(&handed, &mut progress).await
            {
                return; // refused: there is nothing to cancel
            }
            post_cancel(&turns, &endpoint, &message_headers(), frame).await;
        });
    }

    /// A request is forgotten when its POST is accepted, or when the engine receives that it failed.
    fn forget(&mut self, delivery: &Delivery) {
        if let Some(id) = &delivery.settles
            && let Some(under_way) = self.under_way.get(id)
            && delivery.is_about(&under_way.given_up)
        {
            self.under_way.remove(id);
        }
    }
}

impl Wire for TwoEndpoints {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        loop {
            match ready!(self.incoming.poll_recv(cx)) {
                Some(delivery) if delivery.is_wanted() => {
                    self.forget(&delivery);
                    return Poll::Ready(delivery.received);
                }
                Some(_) => {}
                None => return Poll::Ready(Received::End),
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(Some(_)) = self.cancels.poll_join_next(cx) {}
        self.under_way
            .retain(|_, under_way| !under_way.is_accepted());
        if self.cancels.len() >= super::MOST_TASKS {
            return Poll::Pending;
        }
        let Some(outgoing) = &self.outgoing else {
            return Poll::Pending; // there is never room again
        };
        if outgoing.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if outgoing.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        // Room is waited for by reserving it; the place is given back at once, for only we send.
        let outgoing = outgoing.clone();
        let reserved = self
            .ready
            .get_or_insert_with(|| Box::pin(async move { outgoing.reserve_owned().await.ok() }));
        match reserved.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(place) => {
                drop(place);
                self.ready = None;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn send(&mut self, message: &Message) {
        match message {
            Message::Notification(cancel) if cancel.method == CancelledNotification::NAME => {
                self.send_cancel(message, cancelled_id(cancel).as_ref());
            }
            _ => self.enqueue(message),
        }
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The writer ends when it has posted all that was sent; the driver decides how long that may take.
        self.outgoing = None;
        self.ready = None;
        while ready!(self.writer.poll_join_next(cx)).is_some() {}
        while ready!(self.cancels.poll_join_next(cx)).is_some() {}
        self.reader.abort_all();
        Poll::Ready(Ok(()))
    }
}

/// The first event says where to post, within the same origin.
async fn post_address(listening_at: &Uri, events: &mut Events) -> Result<Uri> {
    let first = events.next().await?;
    let Some(event) = first.filter(|event| event.name.as_deref() == Some("endpoint")) else {
        return Err(Error::protocol(
            "the stream does not begin by naming an endpoint",
        ));
    };
    let named = std::str::from_utf8(&event.data)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let named: Uri = named.ok_or_else(|| Error::protocol("the named endpoint is no URL"))?;
    within_origin(listening_at, named)
}

async fn listen(mut events: Events, incoming: mpsc::Sender<Delivery>) {
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
    // Fails only when the wire is gone, and then nobody waits.
    let _ = incoming.send(Delivery::new(end)).await;
}

/// Posts the messages in the order of the calls: each waits until the one before it was accepted, but not for long. A
/// POST that stalls costs only its own message.
async fn post_all(
    endpoint: Endpoint,
    mut queue: mpsc::Receiver<Outbound>,
    incoming: mpsc::Sender<Delivery>,
) {
    let mut posts = JoinSet::new();
    while let Some(outbound) = queue.recv().await {
        while posts.try_join_next().is_some() {}
        while posts.len() >= MAX_POSTS {
            posts.join_next().await;
        }
        if outbound.handed.is_withdrawn() {
            continue;
        }
        let (over, is_over) = oneshot::channel();
        posts.spawn(post_one(endpoint.clone(), outbound, incoming.clone(), over));
        let _ = timeout(ORDER_LIMIT, is_over).await;
    }
    while posts.join_next().await.is_some() {}
}

async fn post_one(
    endpoint: Endpoint,
    outbound: Outbound,
    incoming: mpsc::Sender<Delivery>,
    over: oneshot::Sender<()>,
) {
    let Outbound {
        frame,
        handed,
        progress,
        request,
    } = outbound;
    let pause = Pause::default();
    progress.send_replace(Progress::Posted(Arc::default()));
    let posted = match &request {
        Some((id, given_up)) => {
            let held = Held::new(&incoming, id, |received| {
                Delivery::about(received, given_up)
            });
            let clock = Both(&held, &pause);
            let clock: &dyn Stopwatch = &clock;
            let posting = post(
                &endpoint,
                frame,
                &handed,
                WhenRefused::AuthorizeWhile(clock),
            );
            within(POST_LIMIT, &pause, posting).await
        }
        None => {
            let posting = post(&endpoint, frame, &handed, WhenRefused::GiveUp);
            within(POST_LIMIT, &pause, posting).await
        }
    };
    match &posted {
        Ok(()) => drop(progress.send_replace(Progress::Answering(Arc::default()))),
        Err(error) => {
            tracing::debug!(error = %shortened(&error), "failed to post a message");
            // A status is the server's word that it did not take the request; a broken connection is not.
            if handed.is_withdrawn() || UnexpectedStatus::of(error).is_some() {
                progress.send_replace(Progress::Refused);
            }
        }
    }
    drop(over);
    if let (Err(error), Some((id, given_up))) = (posted, request) {
        let lost = Received::Lost {
            id: id.clone(),
            error,
        };
        // Fails only when the wire is gone, and then nobody waits.
        let _ = incoming.send(Delivery::end(lost, id, &given_up)).await;
    }
}

async fn post(
    endpoint: &Endpoint,
    frame: Bytes,
    handed: &Handed,
    when_refused: WhenRefused<'_>,
) -> Result<()> {
    let outgoing = Outgoing {
        method: Method::POST,
        headers: &|| Ok(message_headers()),
        frame,
        handed,
        when_refused,
    };
    let response = endpoint.request(&outgoing).await?;
    match response.status().is_success() {
        true => Ok(()),
        false => Err(no_answer(response.status())),
    }
}

const MOST_WAITING: usize = 256;
/// How many POSTs may be unanswered at once.
const MAX_POSTS: usize = 32;
/// How long a message waits for the one before it to be accepted.
const ORDER_LIMIT: Duration = Duration::from_secs(1);
