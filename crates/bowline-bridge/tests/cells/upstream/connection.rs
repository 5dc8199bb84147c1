//! A connection or a legacy session at the server's end: what is in flight on it, and what it watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::{Change, notification};

/// Where messages for the client are written: the wire, or the response stream of one request.
pub(super) type Reply = UnboundedSender<Value>;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: usize,
    is_modern: bool,
    table: Mutex<Table>,
    next_question: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) is_initialized: bool,
    pub(super) capabilities: Value,
    pub(super) log_level: Option<String>,
    /// The stream of messages that belong to no request.
    pub(super) standalone: Option<Reply>,
    /// What stops each request in flight, by its id as JSON text: `7` and `"7"` differ.
    pub(super) running: BTreeMap<String, Running>,
    pub(super) questions: BTreeMap<String, oneshot::Sender<Value>>,
    /// The URIs of `resources/subscribe`.
    pub(super) subscribed: BTreeSet<String>,
    /// The requests `subscriptions/listen` in flight, by serial number.
    pub(super) listening: BTreeMap<usize, Listening>,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) serial: usize,
    pub(super) stop: oneshot::Sender<()>,
}

#[derive(Debug)]
pub(super) struct Listening {
    pub(super) id: Value,
    pub(super) filter: Value,
    pub(super) reply: Reply,
}

impl Connection {
    pub(super) fn new(number: usize, is_modern: bool) -> Self {
        Self {
            number,
            is_modern,
            table: Mutex::default(),
            next_question: AtomicU64::new(1),
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything: dropping the stop channels ends the handlers.
    pub(super) fn end(&self) {
        *self.table() = Table::default();
    }

    pub(super) fn is_watched(&self, change: Change) -> bool {
        let table = self.table();
        if self.is_modern {
            let mut listening = table.listening.values();
            return listening.any(|one| one.wants(change) && !one.reply.is_closed());
        }
        let open = table.standalone.as_ref();
        let is_open = table.is_initialized && open.is_some_and(|stream| !stream.is_closed());
        is_open
            && match change {
                Change::ToolList => true,
                Change::Resource(uri) => table.subscribed.contains(uri),
            }
    }

    pub(super) fn announce(&self, change: Change) {
        let is_watched = self.is_watched(change);
        let table = self.table();
        let (method, params) = match change {
            Change::ToolList => ("notifications/tools/list_changed", json!({})),
            Change::Resource(uri) => ("notifications/resources/updated", json!({"uri": uri})),
        };
        if self.is_modern {
            for one in table.listening.values().filter(|one| one.wants(change)) {
                let mut params = params.clone();
                params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": one.id});
                let _ = one.reply.send(notification(method, &params));
            }
        } else if let Some(standalone) = table.standalone.as_ref().filter(|_| is_watched) {
            let message = match change {
                Change::ToolList => json!({"jsonrpc": "2.0", "method": method}),
                Change::Resource(_) => notification(method, &params),
            };
            let _ = standalone.send(message);
        }
    }

    /// The id of the next question to the client, and the channel on which its response comes.
    pub(super) fn ask(&self) -> (Value, oneshot::Receiver<Value>) {
        let number = self.next_question.fetch_add(1, Ordering::SeqCst);
        let id = json!(format!("question-{number}"));
        let (sender, receiver) = oneshot::channel();
        self.table().questions.insert(id.to_string(), sender);
        (id, receiver)
    }
}

impl Listening {
    fn wants(&self, change: Change) -> bool {
        match change {
            Change::ToolList => self.filter["toolsListChanged"] == true,
            Change::Resource(uri) => {
                let uris = self.filter["resourceSubscriptions"].as_array();
                uris.is_some_and(|uris| uris.iter().any(|one| one == uri))
            }
        }
    }
}
