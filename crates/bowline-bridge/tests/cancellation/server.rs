//! The server behind the bridge, and the connections of the bridge to it, which are recorded at the server's end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::exchange::{Outcome, Request};
use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::http::legacy::Legacy;
use bowline::layer::Next;
use bowline::prelude::*;
use bowline::testing::{HandlerCounter, PipeConnector, RecordingSocket, RecordingWire, WireRecord};
use bowline::wire;
use bowline_core::era::{Dialect, Dialects, HttpTransportKind};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::child::ChildServer;
use super::column::Upstream;

/// What the server does, counted.
#[derive(Clone, Default)]
pub(crate) struct ServerCounters {
    /// The handlers of requests, other than the concurrent call.
    pub(crate) handlers: HandlerCounter,
    /// The subscriptions to resources.
    pub(crate) subscriptions: HandlerCounter,
    /// Lets the concurrent call finish.
    pub(crate) finish: Arc<Notify>,
}

/// The connections of the bridge to the server, with their records.
#[derive(Clone, Default)]
pub(crate) struct Connections(Arc<Mutex<Vec<Connection>>>);

#[derive(Default)]
struct Connection {
    record: WireRecord,
    /// The tasks of the server that serve it.
    tasks: Vec<AbortHandle>,
    /// The server over HTTP.
    service: Option<HttpService>,
    /// The server in a child process.
    child: Option<ChildServer>,
}

impl Connections {
    /// Starts a server, and returns the client that the bridge connects with.
    pub(crate) fn connect(&self, counters: &ServerCounters, upstream: Upstream) -> ClientBuilder {
        let record = WireRecord::default();
        let at = {
            let mut connections = self.0.lock().unwrap();
            connections.push(Connection {
                record: record.clone(),
                ..Connection::default()
            });
            connections.len() - 1
        };
        let connect = match upstream {
            Upstream::Wire(_) => {
                let (near, far) = wire::memory();
                let far = RecordingWire::with_record(far, &record);
                self.spawn(at, server(counters).serve(far));
                Client::from_wire(near)
            }
            Upstream::Child(_) => {
                let child = ChildServer::default();
                let command = child.command(counters, &record);
                self.0.lock().unwrap()[at].child = Some(child);
                Client::spawn(command)
            }
            Upstream::Http(_) | Upstream::Http2(_) | Upstream::HttpSse => {
                self.0.lock().unwrap()[at].service = Some(service(counters, upstream));
                let connections = self.clone();
                let connector = PipeConnector::with(move |far| {
                    let socket = RecordingSocket::new(far, &record);
                    let service = connections.service(at);
                    connections.spawn(at, async move { service.serve_connection(socket).await });
                });
                let client = match upstream {
                    Upstream::Http2(_) => HyperClient::with_http2_connector(connector),
                    _ => HyperClient::with_connector(connector),
                };
                Client::connect("http://localhost/mcp").http_client(client)
            }
        };
        connect.protocol_version(upstream.version())
    }

    fn spawn<T: Send + 'static>(
        &self,
        at: usize,
        serving: impl Future<Output = T> + Send + 'static,
    ) {
        let task = tokio::spawn(serving).abort_handle();
        self.0.lock().unwrap()[at].tasks.push(task);
    }

    /// Ends the server of each connection, as if its process were killed. Over HTTP another one takes its place.
    pub(crate) fn cut(&self, counters: &ServerCounters, upstream: Upstream) {
        for connection in self.0.lock().unwrap().iter_mut() {
            for task in connection.tasks.drain(..) {
                task.abort();
            }
            if let Some(running) = &mut connection.service {
                running.shut_down(Duration::ZERO);
                *running = service(counters, upstream);
            }
            if let Some(child) = &connection.child {
                child.kill(counters);
            }
        }
    }

    /// Lets the concurrent call finish.
    pub(crate) fn finish(&self, counters: &ServerCounters) {
        counters.finish.notify_one();
        for connection in self.0.lock().unwrap().iter() {
            connection.child.iter().for_each(ChildServer::finish);
        }
    }

    fn service(&self, at: usize) -> HttpService {
        let connections = self.0.lock().unwrap();
        connections[at].service.clone().expect("it uses HTTP")
    }

    /// Returns the record of each connection.
    pub(crate) fn records(&self) -> Vec<WireRecord> {
        let connections = self.0.lock().unwrap();
        connections.iter().map(|it| it.record.clone()).collect()
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

/// Returns the server over HTTP, without newer transports if the bridge is to use HTTP+SSE.
fn service(counters: &ServerCounters, upstream: Upstream) -> HttpService {
    let service = server(counters).http();
    if upstream != Upstream::HttpSse {
        return service;
    }
    let oldest = |dialect: &Dialect| dialect.http.transport == HttpTransportKind::HttpSse;
    let service = service.versions(Dialects::only(oldest));
    service.legacy(Legacy::sessions().http_sse())
}

/// A server whose lists have several pages.
pub(crate) fn server(counters: &ServerCounters) -> Server {
    let intercepted = counters.clone();
    Server::new("upstream", "1.0.0")
        .page_size(1)
        .layer(move |request, next| intercept(intercepted.clone(), request, next))
        .resource_subscriptions()
        .resource(Resource::text("note:1", "one", "first"))
        .prompt(Prompt::new("first", async || "one"))
        .prompt(Prompt::new("second", async || "two"))
        .tool(Tool::new("echo", async |Args(name): Args<Name>| name.name))
        .tool(slow(counters))
        .tool(noisy(counters))
        .tool(ask(counters))
        .tool(gives_up())
        .tool(concurrent(counters))
}

/// Counts subscriptions to resources, and blocks every page of `prompts/list` but the first.
async fn intercept(counters: ServerCounters, request: Request, next: Next) -> Outcome {
    let params: Value = request.params.decode().unwrap();
    match &*request.method {
        "subscriptions/listen" if params["notifications"]["resourceSubscriptions"].is_array() => {
            counters.subscriptions.run(next.run(request)).await
        }
        "prompts/list" if params["cursor"].is_string() => {
            counters.handlers.run(std::future::pending()).await
        }
        _ => next.run(request).await,
    }
}

fn slow(counters: &ServerCounters) -> Tool {
    let counter = counters.handlers.clone();
    Tool::new("slow", move || {
        let counter = counter.clone();
        async move { counter.run(std::future::pending::<String>()).await }
    })
}

fn noisy(counters: &ServerCounters) -> Tool {
    let counter = counters.handlers.clone();
    Tool::new("noisy", move |cx: Context| {
        let counter = counter.clone();
        let noise = async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(1));
            for step in 1.. {
                cx.progress(f64::from(step));
                ticks.tick().await;
            }
            String::new()
        };
        async move { counter.run(noise).await }
    })
}

fn ask(counters: &ServerCounters) -> Tool {
    let counter = counters.handlers.clone();
    Tool::new("ask", move |cx: Context| {
        let counter = counter.clone();
        let asking = async move {
            let name: Name = cx.elicit("name", "What is your name?").await?;
            Ok::<_, ToolError>(name.name)
        };
        async move { counter.run(asking).await }
    })
}

fn gives_up() -> Tool {
    Tool::new("gives up", async |cx: Context| {
        let asking = cx.elicit::<Name>("name", "What is your name?");
        // Until then the question must have reached the client, also on a busy machine.
        let answer = tokio::time::timeout(Duration::from_secs(3), asking).await;
        if answer.is_err() {
            "gave up"
        } else {
            "was answered"
        }
    })
}

fn concurrent(counters: &ServerCounters) -> Tool {
    let finish = counters.finish.clone();
    Tool::new("concurrent", move || {
        let finish = finish.clone();
        async move {
            finish.notified().await;
            "concurrent"
        }
    })
}
