//! Reads the messages on all pipes and checks the invariants that are visible there.
//!
//! Messages are recognized by their first bytes, inside lines, HTTP chunks or HTTP/2 frames.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use crate::network::FlowDirection;
use crate::scene::{BATCH_PARTY, Fault, ScheduleConfig, TransportKind};
use crate::schedule_log::{AllowedFailure, ScheduleLog};

/// Finds messages in a stream of bytes.
#[derive(Debug)]
pub(crate) struct MessageScanner {
    bytes: Vec<u8>,
    /// The number of bytes that must follow a message before its reader decodes it.
    terminator: usize,
}

impl MessageScanner {
    pub(crate) fn new(config: ScheduleConfig) -> Self {
        Self {
            bytes: Vec::new(),
            terminator: usize::from(config.transport == TransportKind::Lines),
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
                Some(Ok(value)) if length + self.terminator <= rest.len() => found.push(value),
                // A frame header splits the message, which is skipped. Only bursts fill frames, so this is rare.
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
        // These bytes may end with the first ones of a message.
        let over = self.bytes.len().saturating_sub(BEGIN.len());
        self.bytes.drain(..over.max(done));
        found
    }
}

/// Monitors all pipes of one schedule.
pub(crate) struct TrafficMonitor {
    config: ScheduleConfig,
    log: ScheduleLog,
    /// The requests by party and id.
    requests: BTreeMap<(char, String), RequestCounts>,
    /// The request id of each progress token.
    tokens: BTreeMap<(char, String), String>,
    /// The update notifications by party and subscription id, or resource URI in the legacy era.
    updates: BTreeMap<(char, String), UpdateCounts>,
}

/// The update notifications that the server has written for one subscription.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UpdateCounts {
    pub(crate) count: usize,
    /// The number of the last change that was announced before the last notification was written.
    pub(crate) last_change: u64,
}

/// All requests of one party with one id.
#[derive(Debug, Default)]
struct RequestCounts {
    /// The number of requests that the client has written, and of those it cancelled.
    sent: usize,
    cancelled: usize,
    /// The number of requests that the server has read and not answered.
    unanswered: usize,
    was_read: bool,
    /// When the server read the cancel of the last one.
    cancelled_at: Option<Instant>,
}

impl TrafficMonitor {
    pub(crate) fn new(config: ScheduleConfig, log: &ScheduleLog) -> Self {
        Self {
            config,
            log: log.clone(),
            requests: BTreeMap::new(),
            tokens: BTreeMap::new(),
            updates: BTreeMap::new(),
        }
    }

    pub(crate) fn message_written(
        &mut self,
        party: char,
        direction: FlowDirection,
        message: &Value,
    ) {
        if self.log.has_trace() {
            self.log
                .note(format_args!("{party} {direction:?} {}", summary(message)));
        }
        match direction {
            FlowDirection::ToServer => self.client_wrote(party, message),
            FlowDirection::ToClient => self.server_wrote(party, message),
        }
    }

    pub(crate) fn message_read_by_server(&mut self, party: char, message: &Value) {
        if let Some(id) = cancelled_id(message) {
            if let Some(request) = self.requests.get_mut(&(party, id)) {
                request.cancelled_at = Some(Instant::now());
            }
        } else if is_request(message) {
            let id = message["id"].to_string();
            let request = self.requests.entry((party, id.clone())).or_default();
            request.unanswered += 1;
            request.was_read = true;
            request.cancelled_at = None;
            let token = &message["params"]["_meta"]["progressToken"];
            if !token.is_null() {
                self.tokens.insert((party, token.to_string()), id);
            }
        }
    }

    /// Returns whether the server has read a request of this party with this id, given as JSON.
    pub(crate) fn has_arrived(&self, party: char, id: &str) -> bool {
        let request = self.requests.get(&(party, id.to_owned()));
        request.is_some_and(|request| request.was_read)
    }

    /// Returns the notifications for a party's subscription, by its id, or by its URI in the legacy era.
    pub(crate) fn updates(&self, party: char, key: &str) -> UpdateCounts {
        let updates = self.updates.get(&(party, key.to_owned()));
        updates.copied().unwrap_or_default()
    }

    fn client_wrote(&mut self, party: char, message: &Value) {
        if let Some(id) = cancelled_id(message) {
            if self.config.cancels_by_closing() {
                let invariant = "no cancel is posted where closing the POST cancels";
                self.log.violation(invariant, message);
            }
            let request = self.requests.entry((party, id)).or_default();
            request.cancelled += 1;
            // Over HTTP the client counts a request as sent once hyper has it, even if the connection is cut before the
            // write.
            let is_http = self.config.transport != TransportKind::Lines;
            let is_excused = match is_http {
                true => self.log.allows(AllowedFailure::Replay),
                false => self.log.allows_any_failure(),
            };
            if request.cancelled > request.sent && !is_excused && party != BATCH_PARTY {
                let invariant = "only a request that was sent is cancelled, and only once";
                self.log.violation(invariant, message);
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
                    None => {
                        let invariant = "a progress notification belongs to a request";
                        return self.log.violation(invariant, message);
                    }
                }
            }
            Some("notifications/resources/updated") => return self.record_update(party, message),
            Some(_) => return,
        };
        // A client that lost a stream may have it replayed, whatever it cancelled in the meantime.
        if self.config.ends_cancelled_posts() && self.log.allows(AllowedFailure::Replay) {
            return;
        }
        let request = self.requests.entry((party, id)).or_default();
        if message["method"].is_null() {
            let Some(unanswered) = request.unanswered.checked_sub(1) else {
                let invariant = "a request gets at most one answer";
                return self.log.violation(invariant, message);
            };
            request.unanswered = unanswered;
        }
        // A server that shuts down refuses requests before it registers them, so a cancel cannot find them.
        let is_refusal = !message["error"].is_null() && self.log.allows_any_failure();
        let is_terminator =
            message["error"]["code"] == CANCELLED && self.config.ends_cancelled_posts();
        // The driver of a wire handles a cancel as soon as it has read it. The POST of a cancel passes through several
        // tasks, but all of them finish before the paused clock advances.
        let is_late = match (self.config.transport, request.cancelled_at) {
            (_, None) => false,
            (TransportKind::Lines, Some(_)) => true,
            // A server that shuts down reads the POST of a cancel and refuses it.
            (_, Some(at)) => Instant::now() > at && !self.log.allows_any_failure(),
        };
        // The answer to one request of a batch may be ready and wait for the others. The batch client checks its
        // answers itself.
        let may_have_waited = party == BATCH_PARTY && message["method"].is_null();
        // A message that the server started to write before the cancel is completed after it.
        let is_never_partial =
            self.config.has_full_capacity() && self.config.fault != Fault::StalledReader;
        if is_late && !is_terminator && !is_refusal && !may_have_waited && is_never_partial {
            let invariant = "no message about a request is written after its cancel";
            self.log.violation(invariant, message);
        }
    }

    fn record_update(&mut self, party: char, message: &Value) {
        let params = &message["params"];
        let key = match &params["_meta"]["io.modelcontextprotocol/subscriptionId"] {
            Value::String(id) => id,
            _ => params["uri"].as_str().unwrap_or_default(),
        };
        let updates = self.updates.entry((party, key.to_owned())).or_default();
        updates.count += 1;
        updates.last_change = self.log.change_count();
    }
}

/// Abbreviates a message to the parts that are the same in every run.
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

/// Returns the position of `text` in `bytes`. `str::find` is fast even in unoptimized code, but validating UTF-8 is
/// not, so it goes block by block.
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
        // A match may start in this block and end in the next.
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
