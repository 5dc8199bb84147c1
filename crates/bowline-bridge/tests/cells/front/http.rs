//! A client's end of the HTTP wires: Streamable HTTP in both eras, and HTTP+SSE. Each request has its own connection.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::wire::{Delivery, FrontWire, Incoming, delivered};
use crate::endpoint::Revision;
use crate::http1::{Body, EventParser, Head, HttpConnection, SseEvent};

/// Streamable HTTP.
#[derive(Debug)]
pub(crate) struct StreamableWire {
    url: String,
    revision: Revision,
    /// The legacy session, once the server has named it.
    session: Arc<Mutex<Option<String>>>,
    responses: BTreeMap<String, AbortHandle>,
    arrived: UnboundedSender<Incoming>,
    incoming: UnboundedReceiver<Incoming>,
}

/// HTTP+SSE.
#[derive(Debug)]
pub(crate) struct SseWire {
    /// The URL for messages.
    url: String,
    incoming: UnboundedReceiver<Incoming>,
}

impl StreamableWire {
    pub(crate) fn new(url: String, revision: Revision) -> Self {
        let (arrived, incoming) = mpsc::unbounded_channel();
        Self {
            url,
            revision,
            session: Arc::default(),
            responses: BTreeMap::new(),
            arrived,
            incoming,
        }
    }

    fn headers(&self, message: &Value) -> String {
        let mut headers = match message {
            Value::Null => "accept: text/event-stream\r\n".to_owned(),
            _ => "accept: application/json, text/event-stream\r\n".to_owned(),
        };
        let mut add = |name: &str, value: &str| {
            let _ = write!(headers, "{name}: {value}\r\n");
        };
        if self.revision.is_modern() {
            add("mcp-protocol-version", self.revision.name());
            let params = &message["params"];
            let name = match message["method"].as_str().unwrap_or_default() {
                "tools/call" => params["name"].as_str(),
                method if method.starts_with("tasks/") => params["taskId"].as_str(),
                _ => None,
            };
            add("mcp-method", message["method"].as_str().unwrap_or_default());
            name.into_iter().for_each(|name| add("mcp-name", name));
            return headers;
        }
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*session {
            add("mcp-session-id", session);
            if self.revision.has_structured_content() {
                add("mcp-protocol-version", self.revision.name());
            }
        }
        headers
    }
}

impl FrontWire for StreamableWire {
    fn request(&mut self, message: Value) {
        let (url, headers) = (self.url.clone(), self.headers(&message));
        let (arrived, session) = (self.arrived.clone(), self.session.clone());
        let id = message["id"].clone();
        let running = tokio::spawn(async move {
            let within = message["id"].clone();
            let received = receive(&url, "POST", &headers, &message, |head| {
                let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(named) = head.header("mcp-session-id") {
                    session.get_or_insert_with(|| named.to_owned());
                }
            });
            let forward = |message| {
                let within = Some(within.clone());
                let _ = arrived.send(Incoming::Message { within, message });
            };
            let ended = match received.await {
                Ok(response) => response.forward(forward).await,
                Err(error) => Err(error),
            };
            let _ = arrived.send(match ended {
                Ok(()) => Incoming::Ended(within),
                Err(error) => Incoming::Failed(error),
            });
        });
        self.responses
            .insert(id.to_string(), running.abort_handle());
    }

    fn post(&mut self, message: Value) -> Delivery {
        post(self.url.clone(), self.headers(&message), message)
    }

    fn open_stream(&mut self) -> Delivery {
        if self.revision.is_modern() {
            return delivered();
        }
        let (opened, delivery) = oneshot::channel();
        let (url, headers) = (self.url.clone(), self.headers(&Value::Null));
        let arrived = self.arrived.clone();
        tokio::spawn(async move {
            let response = receive(&url, "GET", &headers, &Value::Null, |_| ()).await;
            let response = match response {
                Ok(response) if response.head.is_event_stream() => response,
                Ok(response) => return opened.send(Err(response.refusal())),
                Err(error) => return opened.send(Err(error)),
            };
            let _ = opened.send(Ok(()));
            let forward = |message| {
                let _ = arrived.send(Incoming::Message {
                    within: None,
                    message,
                });
            };
            let ended = response.forward(forward).await;
            let text = format!("the stream of the session ended: {ended:?}");
            let _ = arrived.send(Incoming::Failed(text));
            Ok(())
        });
        delivery
    }

    fn close_response(&mut self, id: &Value) {
        if let Some(running) = self.responses.remove(&id.to_string()) {
            // Dropping the task closes its connection.
            running.abort();
        }
    }

    fn incoming(&mut self) -> &mut UnboundedReceiver<Incoming> {
        &mut self.incoming
    }
}

impl SseWire {
    /// Opens the stream, and waits for its first event.
    pub(crate) async fn open(url: &str) -> Result<Self, String> {
        let headers = "accept: text/event-stream\r\n";
        let mut response = receive(url, "GET", headers, &Value::Null, |_| ()).await?;
        if !response.head.is_event_stream() {
            return Err(response.refusal());
        }
        let mut events = response.events().await?.ok_or("the stream ended at once")?;
        let first = events.remove(0);
        if first.name != "endpoint" {
            return Err(format!("expected the event `endpoint`, got {first:?}"));
        }
        let origin = url
            .trim_end_matches(|character| character != '/')
            .trim_end_matches('/');
        let url = match first.data.starts_with('/') {
            true => format!("{origin}{}", first.data),
            false => first.data,
        };
        let (arrived, incoming) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let forward = |message| {
                let _ = arrived.send(Incoming::Message {
                    within: None,
                    message,
                });
            };
            for event in events {
                forward(parse(&event.data)?);
            }
            let ended = response.forward(forward).await;
            let text = format!("the stream ended: {ended:?}");
            let _ = arrived.send(Incoming::Failed(text));
            Ok::<(), String>(())
        });
        Ok(Self { url, incoming })
    }
}

impl FrontWire for SseWire {
    fn request(&mut self, message: Value) {
        // A failed POST shows as a missing answer.
        drop(self.post(message));
    }

    fn post(&mut self, message: Value) -> Delivery {
        post(self.url.clone(), String::new(), message)
    }

    fn open_stream(&mut self) -> Delivery {
        delivered()
    }

    fn close_response(&mut self, _id: &Value) {}

    fn incoming(&mut self) -> &mut UnboundedReceiver<Incoming> {
        &mut self.incoming
    }
}

/// Posts a message that gets no answer of its own.
fn post(url: String, headers: String, message: Value) -> Delivery {
    let (done, delivery) = oneshot::channel();
    tokio::spawn(async move {
        let response = receive(&url, "POST", &headers, &message, |_| ()).await;
        let _ = done.send(response.and_then(|response| match response.head.status() {
            200..=299 => Ok(()),
            _ => Err(response.refusal()),
        }));
    });
    delivery
}

/// A response whose head has arrived.
struct HttpResponse {
    connection: HttpConnection,
    head: Head,
    body: Body,
    parser: EventParser,
}

/// Sends a request, and waits for the head of its response.
async fn receive(
    url: &str,
    method: &str,
    headers: &str,
    message: &Value,
    on_head: impl FnOnce(&Head),
) -> Result<HttpResponse, String> {
    let failed = |error: std::io::Error| format!("{method} {url}: {error}");
    let (mut connection, host, path) = HttpConnection::connect(url).await.map_err(failed)?;
    let body = match message {
        Value::Null => String::new(),
        _ => message.to_string(),
    };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{headers}\
         content-length: {length}\r\n\r\n{body}"
    );
    connection.write(request.as_bytes()).await.map_err(failed)?;
    let head = connection.read_head().await.map_err(failed)?;
    let head = head.ok_or_else(|| format!("{method} {url}: closed without a response"))?;
    on_head(&head);
    let body = head.body(Body::UntilClose);
    let parser = EventParser::default();
    Ok(HttpResponse {
        connection,
        head,
        body,
        parser,
    })
}

impl HttpResponse {
    fn refusal(&self) -> String {
        format!("refused with status {}", self.head.status())
    }

    /// Passes every message on, until the body ends.
    async fn forward(mut self, mut to: impl FnMut(Value)) -> Result<(), String> {
        if self.head.is_event_stream() {
            while let Some(events) = self.events().await? {
                for event in events {
                    to(parse(&event.data)?);
                }
            }
            return Ok(());
        }
        let body = self.connection.read_body(self.body).await;
        let body = body.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&body);
        let refusal = self.refusal();
        to(parse(&text).map_err(|error| format!("{refusal}: {error}"))?);
        Ok(())
    }

    /// The next events; `None` at the end of the stream.
    async fn events(&mut self) -> Result<Option<Vec<SseEvent>>, String> {
        loop {
            let part = self.connection.read_part(&mut self.body).await;
            let Some(part) = part.map_err(|error| error.to_string())? else {
                return Ok(None);
            };
            let events = self.parser.push(&part);
            if !events.is_empty() {
                return Ok(Some(events));
            }
        }
    }
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}: {text:?}"))
}
