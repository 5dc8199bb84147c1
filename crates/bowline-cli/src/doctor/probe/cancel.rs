//! Cancels a call of a tool, and observes whether the server stops.
//!
//! ```text
//! call ── runs for a moment ── cancel ── another request ── is its answer there? ── what still comes for the call?
//! ```
//!
//! The other request is a fence: a server that has answered it has read the cancel, so that what it sends later for the
//! call shows that the work goes on.

use std::time::Duration;

use bowline::exchange::Dialect;
use bowline::types::Json;
use bowline_core::http::headers::ParamHeaders;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::channel::{Channel, ChannelFailure};
use super::half_close::{AfterClose, cancel_by_closing};
use super::http::{HttpLink, Outgoing};
use super::message::notification;
use super::{Link, Patience, Reply, Request, Way, legacy};

/// A call to cancel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CancelCall {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// The input schema of the tool.
    pub(crate) schema: Value,
}

/// What was observed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CancelFacts {
    pub(crate) tool: String,
    /// How the server was told.
    pub(crate) how: &'static str,
    pub(crate) outcome: CancelOutcome,
    /// Why the next request failed.
    pub(crate) next_request: Option<String>,
}

/// What became of a cancelled call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CancelOutcome {
    /// Its result arrived.
    Answered,
    /// Its progress went on.
    ProgressWentOn,
    /// The server ended it.
    Stopped,
    /// Its progress stopped.
    ProgressStopped,
    /// Nothing more arrived, and nothing had arrived before: the server may work on unheard.
    Silent,
    /// The response was not ended.
    Hung,
    /// It was over before it was cancelled.
    TooFast,
    /// It could not be started.
    Failed(String),
    /// The server has no state to match a cancel in.
    NotApplicable(&'static str),
}

/// Calls the tool, and cancels the call.
pub(crate) async fn cancel(
    link: &mut Link<'_>,
    call: &CancelCall,
    patience: Patience,
) -> CancelFacts {
    let (how, outcome, next_request) = match &mut link.way {
        Way::Stdio(process, dialect) => {
            let (outcome, next) = cancel_over_channel(*process, dialect, call, patience).await;
            ("`notifications/cancelled`", outcome, next)
        }
        Way::HttpSse(channel, dialect) => {
            let (outcome, next) = cancel_over_channel(*channel, dialect, call, patience).await;
            ("`notifications/cancelled`", outcome, next)
        }
        Way::Http(link) if link.dialect.is_modern() => {
            let outcome = cancel_over_modern_http(link, call).await;
            let next = link.request("server/discover", json!({})).await.err();
            ("closing the request", outcome, next)
        }
        Way::Http(link) => {
            let outcome = legacy::cancel_over_http(link, call, START).await;
            let next = link.request("ping", json!({})).await.err();
            ("`notifications/cancelled`", outcome, next)
        }
    };
    CancelFacts {
        tool: call.tool.clone(),
        how,
        outcome,
        next_request,
    }
}

async fn cancel_over_channel(
    channel: &mut impl Channel,
    dialect: &'static Dialect,
    call: &CancelCall,
    patience: Patience,
) -> (CancelOutcome, Option<String>) {
    let request = Request::new(channel.next_id(), dialect, "tools/call", params(call));
    if let Err(failure) = channel.write(&request.to_json(), patience.answer).await {
        return (CancelOutcome::Failed(failure.to_string()), None);
    }
    let mut call = Watch::new(request.id);
    let started = watch(channel, &mut call, Instant::now() + START).await;
    if let Some(outcome) = call.early_outcome() {
        return (outcome, None);
    }
    if let Err(failure) = started {
        return (CancelOutcome::Failed(failure.to_string()), None);
    }

    let cancelled = json!({"requestId": request.id, "reason": "the doctor checks cancellation"});
    let cancelled = notification("notifications/cancelled", &cancelled);
    let cancelled_at = Instant::now();
    if let Err(failure) = channel.write(&cancelled, patience.answer).await {
        return (
            CancelOutcome::Failed(failure.to_string()),
            Some(failure.to_string()),
        );
    }
    call.had_progress_before_cancel = call.progress > 0;
    let fence = if dialect.is_modern() {
        "server/discover"
    } else {
        "ping"
    };
    channel.state().others.clear();
    let fenced = channel
        .request(dialect, fence, json!({}), patience.answer)
        .await;
    let crossed: Vec<_> = channel.state().others.drain(..).collect();
    for (at, message) in &crossed {
        call.see(*at, message);
    }
    if let Err(failure) = fenced {
        return (
            CancelOutcome::Failed(failure.to_string()),
            Some(failure.to_string()),
        );
    }
    match &call.answer {
        // It may have crossed the cancel, unless the server took longer than that.
        Some((at, Reply::Result(_))) if at.saturating_duration_since(cancelled_at) < CROSSING => {
            return (CancelOutcome::TooFast, None);
        }
        Some((_, Reply::Result(_))) => return (CancelOutcome::Answered, None),
        Some((_, Reply::Error { .. })) => return (CancelOutcome::Stopped, None),
        None => call.progress = 0,
    }
    let ended = watch(channel, &mut call, Instant::now() + patience.cancel).await;
    let next = ended.err().map(|failure| failure.to_string());
    (call.late_outcome(), next)
}

/// What arrived for one call.
#[derive(Debug)]
struct Watch {
    id: u64,
    progress: usize,
    had_progress_before_cancel: bool,
    /// With the time at which it arrived.
    answer: Option<(Instant, Reply)>,
}

impl Watch {
    fn new(id: u64) -> Self {
        Self {
            id,
            progress: 0,
            had_progress_before_cancel: false,
            answer: None,
        }
    }

    fn see(&mut self, at: Instant, message: &Value) {
        let is_progress = message["method"] == "notifications/progress";
        if is_progress && message["params"]["progressToken"] == PROGRESS_TOKEN {
            self.progress += 1;
        } else if let Some(reply) = Reply::of(message, self.id) {
            self.answer = Some((at, reply));
        }
    }

    /// The outcome of a call that was over before it was cancelled.
    fn early_outcome(&self) -> Option<CancelOutcome> {
        Some(match &self.answer.as_ref()?.1 {
            Reply::Result(result) if result["isError"] == true => {
                let text = result["content"][0]["text"].as_str().unwrap_or_default();
                CancelOutcome::Failed(format!("the tool reported an error: {text}"))
            }
            Reply::Result(_) => CancelOutcome::TooFast,
            error @ Reply::Error { .. } => CancelOutcome::Failed(error.describe()),
        })
    }

    /// The outcome of a call that was cancelled.
    fn late_outcome(&self) -> CancelOutcome {
        match (&self.answer, self.progress) {
            (Some((_, Reply::Result(_))), _) => CancelOutcome::Answered,
            (Some((_, Reply::Error { .. })), _) => CancelOutcome::Stopped,
            (None, 1..) => CancelOutcome::ProgressWentOn,
            (None, 0) if self.had_progress_before_cancel => CancelOutcome::ProgressStopped,
            (None, 0) => CancelOutcome::Silent,
        }
    }
}

/// Reads messages until the call is answered or the deadline has passed.
async fn watch(
    channel: &mut impl Channel,
    call: &mut Watch,
    deadline: Instant,
) -> Result<(), ChannelFailure> {
    while call.answer.is_none() {
        match channel.next_message(deadline, Duration::ZERO).await {
            Ok((at, message)) => call.see(at, &message),
            Err(ChannelFailure::TimedOut(_)) => return Ok(()),
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

async fn cancel_over_modern_http(link: &mut HttpLink<'_>, call: &CancelCall) -> CancelOutcome {
    // An id that occurs in no other message.
    link.last_id += CALL_ID;
    let (request, mut outgoing) = link.prepare("tools/call", params(call));
    mirror_arguments(call, &mut outgoing);
    let after =
        cancel_by_closing(link.endpoint, &outgoing, request.id, PROGRESS_TOKEN, START).await;
    match after {
        AfterClose::Answered => CancelOutcome::Answered,
        AfterClose::ProgressWentOn => CancelOutcome::ProgressWentOn,
        AfterClose::Closed => CancelOutcome::Stopped,
        AfterClose::Silent => CancelOutcome::Hung,
        AfterClose::TooFast => CancelOutcome::TooFast,
        AfterClose::Failed(why) => CancelOutcome::Failed(why),
    }
}

/// Sets the headers of arguments with `x-mcp-header`.
fn mirror_arguments(call: &CancelCall, outgoing: &mut Outgoing) {
    let schema = Json::from(call.schema.clone());
    if let Ok(headers) = ParamHeaders::read(&schema) {
        let arguments = Json::from(call.arguments.clone());
        // Fails if a value fits no header; the server then refuses the call.
        let _ = headers.mirror(Some(&arguments), &mut outgoing.headers);
    }
}

pub(crate) fn params(call: &CancelCall) -> Value {
    json!({
        "name": call.tool,
        "arguments": call.arguments,
        "_meta": {"progressToken": PROGRESS_TOKEN},
    })
}

/// Chooses a tool that is safe to call and slow: it is read-only, its name says that it takes time, and its only
/// required arguments are durations.
pub(crate) fn choose_tool(tools: &[Value]) -> Option<CancelCall> {
    tools.iter().find_map(|tool| {
        let name = tool["name"].as_str()?;
        let is_read_only = tool["annotations"]["readOnlyHint"] == true;
        let lower = name.to_ascii_lowercase();
        let is_slow = SLOW_NAMES.iter().any(|slow| lower.contains(slow));
        (is_read_only && is_slow).then_some(())?;
        let schema = &tool["inputSchema"];
        let arguments = duration_arguments(schema)?;
        Some(CancelCall {
            tool: name.to_owned(),
            arguments: Value::Object(arguments),
            schema: schema.clone(),
        })
    })
}

/// Returns the arguments of a tool whose required arguments are all durations; there is at least one duration.
fn duration_arguments(schema: &Value) -> Option<serde_json::Map<String, Value>> {
    let properties = schema["properties"].as_object()?;
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut arguments = serde_json::Map::new();
    for (name, property) in properties {
        let lower = name.to_ascii_lowercase();
        let is_number = matches!(property["type"].as_str(), Some("number" | "integer"));
        let is_duration = is_number && DURATION_NAMES.iter().any(|it| lower.contains(it));
        let is_required = required.iter().any(|it| it == name);
        match (is_duration, is_required) {
            (true, _) => {
                let is_milliseconds = lower.contains("ms") || lower.contains("milli");
                let value = if is_milliseconds { 30_000 } else { 30 };
                arguments.insert(name.clone(), json!(value));
            }
            (false, true) => return None,
            (false, false) => {}
        }
    }
    (!arguments.is_empty()).then_some(arguments)
}

const SLOW_NAMES: [&str; 6] = [
    "slow",
    "sleep",
    "wait",
    "delay",
    "long-running",
    "longrunning",
];
const DURATION_NAMES: [&str; 7] = [
    "second", "duration", "delay", "milli", "ms", "sleep", "wait",
];

/// Over which progress is recognized. No other message contains it.
pub(crate) const PROGRESS_TOKEN: &str = "bowline-doctor-progress";
/// Added to the id of a call over modern HTTP.
const CALL_ID: u64 = 770_000;
/// How long a call runs before it is cancelled.
pub(crate) const START: Duration = Duration::from_millis(300);
/// How long an answer takes at most to cross a cancel.
const CROSSING: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, read_only: bool, schema: &Value) -> Value {
        json!({"name": name, "annotations": {"readOnlyHint": read_only}, "inputSchema": schema})
    }

    #[test]
    fn a_slow_read_only_tool_is_chosen_with_a_duration() {
        let schema = json!({"type": "object", "properties": {"seconds": {"type": "number"}}, "required": ["seconds"]});
        let tools = [
            tool("echo", true, &schema),
            tool("slow_delete", false, &schema),
            tool("slow", true, &schema),
        ];

        let call = choose_tool(&tools).unwrap();

        assert_eq!(
            (call.tool.as_str(), call.arguments),
            ("slow", json!({"seconds": 30}))
        );
    }

    #[test]
    fn a_tool_that_needs_anything_else_is_not_chosen() {
        let schema = json!({
            "type": "object",
            "properties": {"delay_ms": {"type": "integer"}, "path": {"type": "string"}},
            "required": ["path"],
        });

        assert_eq!(choose_tool(&[tool("wait", true, &schema)]), None);
        assert_eq!(
            choose_tool(&[tool("wait", true, &json!({"type": "object"}))]),
            None
        );
        let mut optional = schema;
        optional["required"] = json!([]);
        let call = choose_tool(&[tool("wait", true, &optional)]).unwrap();
        assert_eq!(call.arguments, json!({"delay_ms": 30_000}));
    }

    #[test]
    fn a_result_after_the_cancel_means_that_it_was_ignored() {
        let mut call = Watch::new(7);
        call.see(
            Instant::now(),
            &json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
        );
        assert_eq!(call.late_outcome(), CancelOutcome::Answered);

        let mut call = Watch::new(7);
        call.see(
            Instant::now(),
            &json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32800, "message": ""}}),
        );
        assert_eq!(call.late_outcome(), CancelOutcome::Stopped);

        let mut call = Watch::new(7);
        call.had_progress_before_cancel = true;
        assert_eq!(call.late_outcome(), CancelOutcome::ProgressStopped);
        let progress = json!({"method": "notifications/progress", "params": {"progressToken": PROGRESS_TOKEN}});
        call.see(Instant::now(), &progress);
        assert_eq!(call.late_outcome(), CancelOutcome::ProgressWentOn);
    }
}
