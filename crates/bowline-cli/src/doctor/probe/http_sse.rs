//! HTTP+SSE, the transport of 2024-11-05: the first event of a stream names the endpoint that messages are posted to, and
//! answers arrive on the stream.

use std::time::Duration;

use bowline_core::sse;
use bytes::Bytes;
use http::{Method, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::accept_messages;
use super::channel::{Channel, ChannelFailure, ChannelState};
use super::http::{ConnectionTask, Endpoint, HttpFailure, Outgoing};

/// An open stream, and where messages are posted.
#[derive(Debug)]
pub(crate) struct HttpSse {
    /// For messages. It has the headers of the user.
    pub(crate) endpoint: Endpoint,
    messages: mpsc::Receiver<(Instant, Value)>,
    reader: JoinHandle<()>,
    state: ChannelState,
}

/// What a GET of the URL shows.
#[derive(Debug)]
pub(crate) enum HttpSseOpening {
    Open(Box<HttpSse>),
    /// The server has this transport, and names an endpoint that clients refuse.
    BadEndpoint(String),
    /// The server does not have it.
    Absent,
}

impl HttpSse {
    /// Opens the stream, and waits for its first event.
    pub(crate) async fn open(endpoint: &Endpoint) -> HttpSseOpening {
        let deadline = Instant::now() + endpoint.patience.stream;
        let outgoing = Outgoing::new(Method::GET).with("accept", "text/event-stream");
        let started = timeout_at(deadline, endpoint.start(&outgoing)).await;
        let Ok(Ok((response, connection))) = started else {
            return HttpSseOpening::Absent;
        };
        if !response.status().is_success() {
            return HttpSseOpening::Absent;
        }
        let mut decoder = sse::Decoder::new(sse::DecoderLimits {
            line: MAX_EVENT,
            event: MAX_EVENT,
        });
        let mut body = response.into_body();
        let first = loop {
            match decoder.next() {
                Some(Ok(event)) => break event,
                Some(Err(_)) => return HttpSseOpening::Absent,
                None => {}
            }
            match timeout_at(deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => decoder.push(frame.into_data().unwrap_or_default()),
                _ => return HttpSseOpening::Absent,
            }
        };
        if first.name.as_deref() != Some("endpoint") {
            return HttpSseOpening::Absent;
        }
        let Some(uri) = same_origin(&endpoint.uri, &first.data) else {
            let named = String::from_utf8_lossy(&first.data);
            return HttpSseOpening::BadEndpoint(named.chars().take(MAX_QUOTED).collect());
        };
        let (send, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let reader = tokio::spawn(read_messages(decoder, body, connection, send));
        HttpSseOpening::Open(Box::new(Self {
            endpoint: Endpoint {
                uri,
                ..endpoint.clone()
            },
            messages,
            reader,
            state: ChannelState::default(),
        }))
    }
}

impl Drop for HttpSse {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Channel for HttpSse {
    async fn write(&mut self, message: &Value, limit: Duration) -> Result<(), ChannelFailure> {
        let outgoing = Outgoing::message(message);
        let posted = timeout(limit, self.endpoint.send(&outgoing)).await;
        match posted.unwrap_or(Err(HttpFailure::TimedOut(limit))) {
            Ok(answer) if answer.is_success() => Ok(()),
            Ok(answer) => {
                let how = format!("a posted message got status {}", answer.status);
                Err(ChannelFailure::Ended(how))
            }
            Err(HttpFailure::TimedOut(after)) => Err(ChannelFailure::TimedOut(after)),
            Err(failure) => Err(ChannelFailure::Ended(failure.to_string())),
        }
    }

    async fn next_message(
        &mut self,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(Instant, Value), ChannelFailure> {
        match timeout_at(deadline, self.messages.recv()).await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(ChannelFailure::Ended("the event stream ended".to_owned())),
            Err(_) => Err(ChannelFailure::TimedOut(limit)),
        }
    }

    fn state(&mut self) -> &mut ChannelState {
        &mut self.state
    }
}

/// Returns the endpoint that an event names, if it has the origin of the stream: messages may contain a token.
fn same_origin(stream: &Uri, named: &Bytes) -> Option<Uri> {
    let base = url::Url::parse(&stream.to_string()).ok()?;
    let endpoint = base.join(std::str::from_utf8(named).ok()?.trim()).ok()?;
    (endpoint.origin() == base.origin()).then(|| endpoint.as_str().parse().ok())?
}

async fn read_messages(
    mut decoder: sse::Decoder,
    mut body: Incoming,
    _connection: ConnectionTask,
    messages: mpsc::Sender<(Instant, Value)>,
) {
    loop {
        while let Some(event) = decoder.next() {
            let Ok(event) = event else {
                return;
            };
            for message in accept_messages(&event.data) {
                if messages.send((Instant::now(), message)).await.is_err() {
                    return;
                }
            }
        }
        match body.frame().await {
            Some(Ok(frame)) => decoder.push(frame.into_data().unwrap_or_default()),
            _ => return,
        }
    }
}

const MAX_EVENT: usize = 16 << 20;
/// Few, because each may be as long as the limit.
const MAX_QUEUED_MESSAGES: usize = 2;
const MAX_QUOTED: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(named: &'static str) -> Option<String> {
        let stream = Uri::from_static("https://mcp.example/a/sse");
        same_origin(&stream, &Bytes::from_static(named.as_bytes())).map(|it| it.to_string())
    }

    #[test]
    fn an_endpoint_is_relative_to_the_stream_and_never_elsewhere() {
        let expected = "https://mcp.example/a/messages?id=1";
        assert_eq!(joined("messages?id=1").as_deref(), Some(expected));
        assert_eq!(joined("/a/messages?id=1").as_deref(), Some(expected));
        assert_eq!(
            joined("https://mcp.example/a/messages?id=1").as_deref(),
            Some(expected)
        );
        assert_eq!(joined("https://other.example/messages"), None);
        assert_eq!(joined("http://mcp.example/messages"), None);
        assert_eq!(joined("//other.example/messages"), None);
    }
}
