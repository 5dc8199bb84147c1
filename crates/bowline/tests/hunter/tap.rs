//! What passes over the pipes, and the laws that can be seen there.
//!
//! Messages are found by how they begin, whatever they are wrapped in: lines, chunks or frames.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use crate::batching::PARTY as BATCHER;
use crate::ledger::{Ledger, Permit};
use crate::network::Way;
use crate::scene::{Carrier, Column, Trouble};

/// Finds messages in a stream of bytes.
#[derive(Debug)]
pub(crate) struct Scanner {
    bytes: Vec<u8>,
    /// How many bytes must follow a message for its reader to know that it is one.
    follow: usize,
}

impl Scanner {
    pub(crate) fn new(column: Column) -> Self {
        Self {
            bytes: Vec::new(),
            follow: usize::from(column.carrier == Carrier::Lines),
        }
    }

    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Vec<Value> {
        self.bytes.extend_from_slice(bytes);
        let mut found = Vec::new();
        let mut done = 0;
        while let Some(start) = find(&self.bytes[done..], BEGIN) {
            let rest = &self.bytes[done + start..];
            let mut values = serde_json::Deserializer::from_slice(rest).into_iter();
            let (value, length) = (values.next(), values.byte_offset());
            match value {
                Some(Ok(value)) if length + self.follow <= rest.len() => found.push(value),
                // The head of a frame is in the middle of it. It is one of thousands, for only bursts fill frames.
                Some(Err(error)) if !error.is_eof() => {
                    done += start + BEGIN.len();
                    continue;
                }
                _ => {
                    self.bytes.drain(..done + start);
                    return found;
                }
            }
            done += start + length;
        }
        // The beginning of a message may be the end of these bytes.
        let over = self.bytes.len().saturating_sub(BEGIN.len());
        self.bytes.drain(..over.max(done));
        found
    }
}

/// Watches over every pipe of one schedule.
pub(crate) struct Tap {
    column: Column,
    ledger: Ledger,
    requests: BTreeMap<(char, String), Request>,
    /// Which request each progress token belongs to.
    tokens: BTreeMap<(char, String), String>,
    /// What was written about changes, by the id of the subscription, or by what changed where it has none.
    notices: BTreeMap<(char, String), Notices>,
}

/// What the server has written about changes to one subscription.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices {
    /// How many notifications it wrote.
    pub(crate) count: usize,
    /// How many changes there had been in the schedule when it wrote the last one.
    pub(crate) stamp: u64,
}

/// All requests of one party with one id.
#[derive(Debug, Default)]
struct Request {
    /// How many left the client, and how many of those it cancelled.
    sent: usize,
    cancelled: usize,
    /// How many the server has read and not answered.
    owed: usize,
    was_read: bool,
    /// When the server read that the last one was cancelled.
    cancelled_at: Option<Instant>,
}

impl Tap {
    pub(crate) fn new(column: Column, ledger: &Ledger) -> Self {
        Self {
            column,
            ledger: ledger.clone(),
            requests: BTreeMap::new(),
            tokens: BTreeMap::new(),
            notices: BTreeMap::new(),
        }
    }

    /// Somebody has written a message.
    pub(crate) fn written(&mut self, party: char, way: Way, message: &Value) {
        if self.ledger.has_trace() {
            self.ledger
                .note(format_args!("{party} {way:?} {}", summary(message)));
        }
        match way {
            Way::ToServer => self.client_wrote(party, message),
            Way::ToClient => self.server_wrote(party, message),
        }
    }

    /// The server has read a message.
    pub(crate) fn read_by_server(&mut self, party: char, message: &Value) {
        if let Some(id) = cancelled_id(message) {
            if let Some(request) = self.requests.get_mut(&(party, id)) {
                request.cancelled_at = Some(Instant::now());
            }
        } else if is_request(message) {
            let id = message["id"].to_string();
            let request = self.requests.entry((party, id.clone())).or_default();
            request.owed += 1;
            request.was_read = true;
            request.cancelled_at = None;
            let token = &message["params"]["_meta"]["progressToken"];
            if !token.is_null() {
                self.tokens.insert((party, token.to_string()), id);
            }
        }
    }

    /// Whether the server has read a request with this id, as JSON.
    pub(crate) fn has_arrived(&self, party: char, id: &str) -> bool {
        let request = self.requests.get(&(party, id.to_owned()));
        request.is_some_and(|request| request.was_read)
    }

    pub(crate) fn notices(&self, party: char, key: &str) -> Notices {
        let notices = self.notices.get(&(party, key.to_owned()));
        notices.copied().unwrap_or_default()
    }

    fn client_wrote(&mut self, party: char, message: &Value) {
        if let Some(id) = cancelled_id(message) {
            if self.column.closing_is_cancelling() {
                self.ledger
                    .broken("nothing is posted to cancel where closing does it", message);
            }
            let request = self.requests.entry((party, id)).or_default();
            request.cancelled += 1;
            // What was handed to a connection counts as sent, even if the connection is cut before it writes.
            let may_be_cut = self.column.carrier != Carrier::Lines;
            let is_excused = match may_be_cut {
                true => self.ledger.permits(Permit::Replay),
                false => self.ledger.is_wrecked(),
            };
            if request.cancelled > request.sent && !is_excused && party != BATCHER {
                self.ledger
                    .broken("only what left is cancelled, and once", message);
            }
        } else if is_request(message) {
            let id = message["id"].to_string();
            self.requests.entry((party, id)).or_default().sent += 1;
        }
    }

    fn server_wrote(&mut self, party: char, message: &Value) {
        let id = match message["method"].as_str() {
            None if message["id"].is_null() => return,
            None => message["id"].to_string(),
            Some("notifications/progress") => {
                let token = message["params"]["progressToken"].to_string();
                match self.tokens.get(&(party, token)) {
                    Some(id) => id.clone(),
                    None => return self.ledger.broken("progress belongs to a request", message),
                }
            }
            Some("notifications/resources/updated") => return self.noticed(party, message),
            Some(_) => return,
        };
        // A client that lost a stream may have it read to it once more, whatever it said meanwhile.
        if self.column.ends_its_posts() && self.ledger.permits(Permit::Replay) {
            return;
        }
        let request = self.requests.entry((party, id)).or_default();
        if message["method"].is_null() {
            let Some(owed) = request.owed.checked_sub(1) else {
                let law = "a request gets at most one answer";
                return self.ledger.broken(law, message);
            };
            request.owed = owed;
        }
        // What is refused at the door of a server that shuts down is nothing that a cancel could find.
        let is_refusal = !message["error"].is_null() && self.ledger.is_wrecked();
        let is_terminator = message["error"]["code"] == CANCELLED && self.column.ends_its_posts();
        // A wire's driver has taken in a cancel as soon as it was read. A POST passes through more hands,
        // but all of them are done before time passes.
        let is_late = match (self.column.carrier, request.cancelled_at) {
            (_, None) => false,
            (Carrier::Lines, Some(_)) => true,
            // A server that shuts down reads the POST of a cancel, and refuses it.
            (_, Some(at)) => Instant::now() > at && !self.ledger.is_wrecked(),
        };
        // The answer to one request of a batch may be ready and wait for the others; whoever posts batches checks
        // its answers itself.
        let may_have_waited = party == BATCHER && message["method"].is_null();
        // What was begun to be written counts as said.
        let has_room = self.column.has_room() && self.column.trouble != Trouble::Unread;
        if is_late && !is_terminator && !is_refusal && !may_have_waited && has_room {
            self.ledger
                .broken("nothing is said of a request after its cancel", message);
        }
    }
}

impl Tap {
    /// The server has written that something changed.
    fn noticed(&mut self, party: char, message: &Value) {
        let params = &message["params"];
        let key = match &params["_meta"]["io.modelcontextprotocol/subscriptionId"] {
            Value::String(id) => id,
            _ => params["uri"].as_str().unwrap_or_default(),
        };
        let notices = self.notices.entry((party, key.to_owned())).or_default();
        notices.count += 1;
        notices.stamp = self.ledger.changes();
    }
}

/// A message, in few words that are the same in every run.
fn summary(message: &Value) -> String {
    let id = &message["id"];
    match message["method"].as_str() {
        Some("notifications/cancelled") => {
            format!("cancelled {}", message["params"]["requestId"])
        }
        Some(method) if id.is_null() => method.to_owned(),
        Some(method) => format!("{id} {method} {}", message["params"]["arguments"]["tag"]),
        None if message["error"].is_null() => {
            format!("{id} result {}", message["result"]["content"][0]["text"])
        }
        None => format!("{id} error {}", message["error"]["code"]),
    }
}

/// Where `text` begins in `bytes`. A search in text is a fast one even without optimization; it is done block by
/// block, because checking that bytes are text is not.
fn find(bytes: &[u8], text: &str) -> Option<usize> {
    let mut start = 0;
    while start < bytes.len() {
        let end = bytes.len().min(start + BLOCK);
        let mut at = start;
        for chunk in bytes[start..end].utf8_chunks() {
            if let Some(found) = chunk.valid().find(text) {
                return Some(at + found);
            }
            at += chunk.valid().len() + chunk.invalid().len();
        }
        if end == bytes.len() {
            return None;
        }
        // It may begin in this block and end in the next.
        start = end - text.len();
    }
    None
}

fn is_request(message: &Value) -> bool {
    message["method"].is_string() && !message["id"].is_null()
}

fn cancelled_id(message: &Value) -> Option<String> {
    let is_cancel = message["method"] == "notifications/cancelled";
    is_cancel.then(|| message["params"]["requestId"].to_string())
}

const BLOCK: usize = 1024;
const BEGIN: &str = "{\"jsonrpc\"";
const CANCELLED: i64 = -32800;
