//! Upstream servers, written with raw bytes: one for each revision over each wire.

mod answers;
mod arrival;
mod connection;
mod http;
mod http_sse;
mod lines;
mod modern_http;
mod questions;
mod record;
mod streamable_http;
mod tasks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::endpoint::{Endpoint, Wire};
use crate::middle::UpstreamAddress;
use connection::Connection;
pub(crate) use record::{Record, Seen, SeenEvent, SeenRequest};
use tasks::Tasks;

/// What a check asks of an upstream server. Everything else about it is on the wire.
pub(crate) trait UpstreamServer {
    /// The address to give to the middle.
    fn address(&self) -> UpstreamAddress;

    /// What the server saw at its socket.
    fn record(&self) -> &Record;

    /// Lets one call of the tool `count` continue.
    fn open_gate(&self);

    /// Completes the tasks that run.
    fn complete_tasks(&self);

    /// Waits until a client would receive an announcement of this change.
    async fn watched(&self, change: Change);

    /// Waits until no client would receive it.
    async fn unwatched(&self, change: Change);

    /// Announces a change to the clients that watch it, in the form of the revision. A changed list has one tool more.
    fn announce(&self, change: Change);
}

/// A change that a server announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    ToolList,
    Resource(&'static str),
}

/// A fault of an upstream server, to show that a check notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    WrongResult,
    NoProgress,
    IgnoresCancel,
    NeverAsks,
    NoAnnouncements,
    IgnoresLogLevel,
    NoCompletions,
    TasksNeverEnd,
}

/// An upstream server.
#[derive(Debug)]
pub(crate) struct RawServer {
    state: Arc<State>,
    address: UpstreamAddress,
}

/// What the connections of a server share.
#[derive(Debug)]
struct State {
    endpoint: Endpoint,
    fault: Option<Fault>,
    record: Record,
    connections: Mutex<Vec<Arc<Connection>>>,
    gate: Semaphore,
    has_changed_list: AtomicBool,
    tasks: Tasks,
}

impl RawServer {
    /// Starts a server on a new port, or one that is spawned when it is connected to.
    pub(crate) async fn start(endpoint: Endpoint, fault: Option<Fault>) -> Result<Self, String> {
        let state = Arc::new(State {
            endpoint,
            fault,
            record: Record::new(),
            connections: Mutex::default(),
            gate: Semaphore::new(0),
            has_changed_list: AtomicBool::new(false),
            tasks: Tasks::default(),
        });
        let address = match endpoint.wire {
            Wire::Stdio => {
                let state = state.clone();
                UpstreamAddress::Spawn(Arc::new(move || lines::spawn(&state)))
            }
            Wire::Http | Wire::HttpSse => {
                let listener = TcpListener::bind("127.0.0.1:0").await;
                let listener = listener.map_err(|error| format!("failed to bind: {error}"))?;
                let address = listener.local_addr().map_err(|error| error.to_string())?;
                tokio::spawn(http::accept(listener, state.clone()));
                let path = match endpoint.wire {
                    Wire::HttpSse => "/sse",
                    _ => "/mcp",
                };
                UpstreamAddress::Url(format!("http://{address}{path}"))
            }
        };
        Ok(Self { state, address })
    }
}

impl UpstreamServer for RawServer {
    fn address(&self) -> UpstreamAddress {
        self.address.clone()
    }

    fn record(&self) -> &Record {
        &self.state.record
    }

    fn open_gate(&self) {
        self.state.gate.add_permits(1);
    }

    fn complete_tasks(&self) {
        if self.state.fault != Some(Fault::TasksNeverEnd) {
            self.state.tasks.complete();
        }
    }

    async fn watched(&self, change: Change) {
        let is_watched = |_: &[Seen]| self.state.is_watched(change).then_some(());
        self.state.record.wait(is_watched).await;
    }

    async fn unwatched(&self, change: Change) {
        let is_unwatched = |_: &[Seen]| (!self.state.is_watched(change)).then_some(());
        self.state.record.wait(is_unwatched).await;
    }

    fn announce(&self, change: Change) {
        if change == Change::ToolList {
            self.state.has_changed_list.store(true, Ordering::SeqCst);
        }
        if self.state.fault != Some(Fault::NoAnnouncements) {
            for connection in self.state.connections() {
                connection.announce(change);
            }
        }
    }
}

impl State {
    fn connections(&self) -> Vec<Arc<Connection>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A new connection or session, whose number is its position.
    fn connect(&self) -> Arc<Connection> {
        let connections = self.connections.lock();
        let mut connections = connections.unwrap_or_else(PoisonError::into_inner);
        let is_modern = self.endpoint.revision.is_modern();
        let connection = Arc::new(Connection::new(connections.len(), is_modern));
        connections.push(connection.clone());
        connection
    }

    fn is_watched(&self, change: Change) -> bool {
        let connections = self.connections();
        connections.iter().any(|one| one.is_watched(change))
    }

    fn violation(&self, connection: &Connection, text: impl Into<String>) {
        let text = text.into();
        self.record
            .add(connection.number, |_| SeenEvent::Violation(text));
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}
