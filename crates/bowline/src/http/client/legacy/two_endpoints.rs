//! HTTP+SSE, the transport of 2024-11-05: one endpoint to listen at, another to post to.
//!
//! The server names the second as the first event of the stream at the first. Everything it says comes
//! over that stream, and the end of the stream is the end of the wire.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bowline_core::Message;
use bowline_types::{CancelledNotification, Notice, RequestId};
use bytes::Bytes;
use http::{Method, Uri};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::held::Held;
use crate::exchange::Pause;
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
    incoming: mpsc::Receiver<Received>,
    /// Gone once the wire is being closed.
    outgoing: Option<mpsc::Sender<Bytes>>,
    /// A message that found room and was not handed over yet.
    ready: Option<Reserved>,
    /// Dropping a set ends its task.
    reader: JoinSet<()>,
    writer: JoinSet<()>,
}

type Reserved = Pin<Box<dyn Future<Output = Option<mpsc::OwnedPermit<Bytes>>> + Send>>;

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
        writer.spawn(post_all(post_to, queue, sender));
        Ok(Self {
            incoming,
            outgoing: Some(outgoing),
            ready: None,
            reader,
            writer,
        })
    }
}

impl Wire for TwoEndpoints {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        self.incoming
            .poll_recv(cx)
            .map(|received| received.unwrap_or(Received::End))
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
        let outgoing = self.outgoing.as_ref();
        let sent = outgoing.is_some_and(|outgoing| outgoing.try_send(message.to_frame()).is_ok());
        if !sent {
            tracing::debug!("a message was not posted: the wire is closing");
        }
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The writer ends when it has posted all that was sent; whoever closes decides how long that may take.
        self.outgoing = None;
        self.ready = None;
        while ready!(self.writer.poll_join_next(cx)).is_some() {}
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

async fn listen(mut events: Events, incoming: mpsc::Sender<Received>) {
    let end = loop {
        match events.next().await {
            Ok(Some(event)) if event.data.is_empty() => {}
            Ok(Some(event)) => {
                if incoming.send(Received::Frame(event.data)).await.is_err() {
                    return;
                }
            }
            Ok(None) => break Received::End,
            Err(error) => break Received::Broken(io::Error::other(error)),
        }
    };
    // Fails only when the wire is gone, and then nobody waits.
    let _ = incoming.send(end).await;
}

/// Posts one message after the other: the order on the wire is the order of the calls.
///
/// Nothing waits for a cancel. What it concerns was posted before, and what follows has nothing to do with it.
async fn post_all(
    endpoint: Endpoint,
    mut queue: mpsc::Receiver<Bytes>,
    incoming: mpsc::Sender<Received>,
) {
    let mut cancels = JoinSet::new();
    while let Some(frame) = queue.recv().await {
        while cancels.try_join_next().is_some() {}
        match Message::decode(&frame) {
            Ok(Message::Request(request)) => {
                post_request(&endpoint, request.id, frame, &incoming).await;
            }
            Ok(Message::Notification(cancel))
                if cancel.method == CancelledNotification::NAME && cancels.len() < MOST_WAITING =>
            {
                let endpoint = endpoint.clone();
                cancels.spawn(async move { post_quietly(&endpoint, frame).await });
            }
            _ => post_quietly(&endpoint, frame).await,
        }
    }
    while cancels.join_next().await.is_some() {}
}

async fn post_request(
    endpoint: &Endpoint,
    id: RequestId,
    frame: Bytes,
    incoming: &mpsc::Sender<Received>,
) {
    let stopwatch = Held::new(incoming, &id, std::convert::identity);
    let posted = post(endpoint, frame, WhenRefused::AuthorizeWhile(&stopwatch)).await;
    if let Err(error) = posted {
        let _ = incoming.send(Received::Lost { id, error }).await;
    }
}

/// Posts something that has no answer. If it fails, nobody can be told.
async fn post_quietly(endpoint: &Endpoint, frame: Bytes) {
    if let Err(error) = post(endpoint, frame, WhenRefused::GiveUp).await {
        tracing::debug!(%error, "a message could not be posted");
    }
}

async fn post(endpoint: &Endpoint, frame: Bytes, when_refused: WhenRefused<'_>) -> Result<()> {
    let outgoing = Outgoing {
        method: Method::POST,
        headers: &|| Ok(message_headers()),
        frame,
        handed: &Handed::new(),
        when_refused,
    };
    let response = endpoint.request(&outgoing).await?;
    match response.status().is_success() {
        true => Ok(()),
        false => Err(no_answer(response.status())),
    }
}

const MOST_WAITING: usize = 256;
