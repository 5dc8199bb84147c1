//! [`Channel`], a connection whose messages do not belong to HTTP requests: the pipes of a process, or HTTP+SSE.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bowline::exchange::Dialect;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::message::notification;
use super::{Reply, Request};

/// A connection on which answers are found by their ids.
pub(crate) trait Channel {
    /// Writes a message.
    async fn write(&mut self, message: &Value, limit: Duration) -> Result<(), ChannelFailure>;

    /// Returns the next message, with the time at which it arrived. `limit` is what the failure names.
    async fn next_message(
        &mut self,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(Instant, Value), ChannelFailure>;

    fn state(&mut self) -> &mut ChannelState;

    fn next_id(&mut self) -> u64 {
        let state = self.state();
        state.last_id += 1;
        state.last_id
    }

    /// Sends a request, and waits for its answer.
    async fn request(
        &mut self,
        dialect: &'static Dialect,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Reply, ChannelFailure> {
        let request = Request::new(self.next_id(), dialect, method, params);
        self.answer(&request, limit).await
    }

    /// Sends the handshake, and `notifications/initialized` if it succeeds.
    async fn initialize(
        &mut self,
        dialect: &'static Dialect,
        limit: Duration,
    ) -> Result<Reply, ChannelFailure> {
        let request = Request::initialize(self.next_id(), dialect);
        let reply = self.answer(&request, limit).await?;
        if reply.result().is_some() {
            let done = notification("notifications/initialized", &Value::Null);
            self.write(&done, limit).await?;
        }
        Ok(reply)
    }

    /// Sends a request, and waits for its answer. Other messages are kept.
    async fn answer(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> Result<Reply, ChannelFailure> {
        let deadline = Instant::now() + limit;
        self.write(&request.to_json(), limit).await?;
        loop {
            let (at, message) = self.next_message(deadline, limit).await?;
            if let Some(reply) = Reply::of(&message, request.id) {
                return Ok(reply);
            }
            if let Some(refusal) = refusal(&message) {
                self.write(&refusal, limit).await?;
            }
            self.state().keep(at, message);
        }
    }
}

/// What every channel keeps.
#[derive(Debug, Default)]
pub(crate) struct ChannelState {
    last_id: u64,
    /// Messages that were received while the server was asked for something else.
    pub(crate) others: VecDeque<(Instant, Value)>,
    /// Their size.
    other_bytes: usize,
}

impl ChannelState {
    fn keep(&mut self, at: Instant, message: Value) {
        self.other_bytes += message.to_string().len();
        if self.others.len() < MAX_OTHERS && self.other_bytes < MAX_OTHER_BYTES {
            self.others.push_back((at, message));
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChannelFailure {
    TimedOut(Duration),
    /// The channel ended: the process exited, or the stream did.
    Ended(String),
}

impl fmt::Display for ChannelFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(after) => write!(f, "no answer after {after:?}"),
            Self::Ended(how) => f.write_str(how),
        }
    }
}

/// Returns the answer to a request of the server, which is an error: the doctor declares no capabilities.
fn refusal(message: &Value) -> Option<Value> {
    let (id, method) = (message.get("id")?, message["method"].as_str()?);
    Some(match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => json!({
            "jsonrpc": "2.0",
            "id": id,
            "error": {"code": -32601, "message": "the doctor answers no requests"},
        }),
    })
}

const MAX_OTHERS: usize = 1_000;
const MAX_OTHER_BYTES: usize = 16 << 20;
