//! [`to_otlp`]: traces in the JSON encoding of the OpenTelemetry protocol.

use std::time::Duration;

use bowline_types::meta_key;
use serde_json::{Value, json};

use crate::timeline::text_member;
use crate::{Cancel, Exchange, ExchangeState, Recording, Timeline, Transport};

/// Returns the recording as OpenTelemetry traces: a span per exchange.
///
/// A span is part of the trace that the request's `traceparent` names, or else of a trace of its own. All legs of a
/// multi-round-trip call are in one trace, and questions are children of the request that they are about.
#[must_use]
pub fn to_otlp(recording: &Recording) -> Value {
    let timeline = Timeline::of(recording);
    let exporter = Exporter {
        recording,
        timeline: &timeline,
        seed: seed(recording),
    };
    let spans: Vec<Value> = timeline.exchanges().map(|it| exporter.span(it)).collect();
    let target = recording.header.target.as_deref().unwrap_or("mcp");
    json!({"resourceSpans": [{
        "resource": {"attributes": [
            text("service.name", "bowline-tap"),
            text("mcp.target", target),
        ]},
        "scopeSpans": [{
            "scope": {"name": "bowline-recording", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]})
}

struct Exporter<'a> {
    recording: &'a Recording,
    timeline: &'a Timeline,
    seed: u64,
}

impl Exporter<'_> {
    fn span(&self, exchange: &Exchange) -> Value {
        let duration = exchange.duration().unwrap_or_default();
        let (trace, parent) = self.trace_and_parent(exchange);
        let name = match &exchange.name {
            Some(name) => format!("{} {name}", exchange.method),
            None => exchange.method.clone(),
        };
        let mut span = json!({
            "traceId": trace,
            "spanId": self.span_id(exchange.number),
            "name": name,
            "kind": CLIENT,
            "startTimeUnixNano": self.nanos(exchange.at),
            "endTimeUnixNano": self.nanos(exchange.at.saturating_add(duration)),
            "attributes": self.attributes(exchange),
            "events": self.events(exchange),
            "status": status(exchange),
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = parent.into();
        }
        if let Some(before) = exchange.previous_leg {
            let first = self
                .timeline
                .legs(before)
                .first()
                .map_or(before, |it| it.number);
            let link = json!({
                "traceId": self.own_trace_id(first),
                "spanId": self.span_id(before),
                "attributes": [text("mcp.link", "previous leg")],
            });
            span["links"] = json!([link]);
        }
        span
    }

    /// Returns the trace and the parent of a span.
    fn trace_and_parent(&self, exchange: &Exchange) -> (String, Option<String>) {
        if let Some(parent) = exchange.question_of {
            let trace = match self.timeline.exchange(parent) {
                // Questions are one level deep, as clients ask and servers are asked.
                Some(parent) if parent.question_of.is_none() => self.trace_and_parent(parent).0,
                _ => self.own_trace_id(parent),
            };
            return (trace, Some(self.span_id(parent)));
        }
        let path = ["_meta", meta_key::TRACEPARENT];
        let given = exchange
            .params
            .as_ref()
            .and_then(|it| text_member(it, &path));
        if let Some((trace, parent)) = given.as_deref().and_then(parse_traceparent) {
            return (trace, Some(parent));
        }
        let legs = self.timeline.legs(exchange.number);
        let first = legs.first().map_or(exchange.number, |it| it.number);
        (self.own_trace_id(first), None)
    }

    fn own_trace_id(&self, number: usize) -> String {
        let low = number as u64;
        format!(
            "{:016x}{:016x}",
            mix(self.seed),
            mix(self.seed ^ low).max(1)
        )
    }

    fn span_id(&self, number: usize) -> String {
        let number = number as u64;
        format!(
            "{:016x}",
            mix(self.seed.wrapping_add(number).rotate_left(17)).max(1)
        )
    }

    fn nanos(&self, at: Duration) -> String {
        let started = self.recording.header.started;
        started
            .saturating_add(at)
            .since_unix()
            .as_nanos()
            .to_string()
    }

    fn attributes(&self, exchange: &Exchange) -> Vec<Value> {
        let transport = match self.recording.header.transport {
            Transport::Stdio => "pipe",
            Transport::Http => "tcp",
        };
        let mut attributes = vec![
            text("mcp.method.name", &exchange.method),
            text("rpc.system", "jsonrpc"),
            text("jsonrpc.request.id", &exchange.id.to_string()),
            text("network.transport", transport),
            int("mcp.exchange", exchange.number as i64),
        ];
        if let Some(version) = &exchange.version {
            attributes.push(text("mcp.protocol.version", version.as_str()));
        }
        if let Some(session) = &exchange.session {
            attributes.push(text("mcp.session.id", session));
        }
        if let Some(name) = &exchange.name {
            let key = match exchange.method.as_str() {
                "tools/call" => "gen_ai.tool.name",
                "prompts/get" => "gen_ai.prompt.name",
                "resources/read" => "mcp.resource.uri",
                _ => "mcp.name",
            };
            attributes.push(text(key, name));
        }
        match exchange.state {
            ExchangeState::Failed(code) => attributes.push(int("rpc.jsonrpc.error_code", code)),
            ExchangeState::ToolError => attributes.push(text("error.type", "tool_error")),
            ExchangeState::Cancelled => attributes.push(text("error.type", "cancelled")),
            ExchangeState::Refused(status) => {
                attributes.push(int("http.response.status_code", i64::from(status)));
            }
            _ => {}
        }
        attributes
    }

    fn events(&self, exchange: &Exchange) -> Vec<Value> {
        let notifications = exchange
            .notifications
            .iter()
            .map(|it| json!({"timeUnixNano": self.nanos(it.at), "name": it.method}));
        let cancel = exchange.cancel.iter().map(|cancel| self.cancel(cancel));
        let late = exchange
            .late_answers
            .iter()
            .map(|it| json!({"timeUnixNano": self.nanos(it.at), "name": "late answer"}));
        notifications.chain(cancel).chain(late).collect()
    }

    fn cancel(&self, cancel: &Cancel) -> Value {
        let mut attributes = vec![
            text("mcp.cancel.by", cancel.by.as_str()),
            text("mcp.cancel.form", cancel.form.as_str()),
        ];
        if let Some(reason) = &cancel.reason {
            attributes.push(text("mcp.cancel.reason", reason));
        }
        if let Some(latency) = cancel.latency() {
            let micros = i64::try_from(latency.as_micros()).unwrap_or(i64::MAX);
            attributes.push(int("mcp.cancel.latency_us", micros));
        }
        json!({"timeUnixNano": self.nanos(cancel.at), "name": "cancelled", "attributes": attributes})
    }
}

fn status(exchange: &Exchange) -> Value {
    let message = match exchange.state {
        ExchangeState::Answered | ExchangeState::InputRequired => return json!({"code": OK}),
        ExchangeState::InFlight => return json!({}),
        ExchangeState::ToolError => "the tool reported an error".to_owned(),
        ExchangeState::Failed(code) => format!("JSON-RPC error {code}"),
        ExchangeState::Refused(status) => format!("HTTP status {status}"),
        ExchangeState::Cancelled => "cancelled".to_owned(),
        ExchangeState::Hung => "not answered".to_owned(),
    };
    json!({"code": ERROR, "message": message})
}

/// Reads the trace and the parent of a `traceparent` header.
fn parse_traceparent(text: &str) -> Option<(String, String)> {
    let mut parts = text.split('-');
    let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |part: &str, length: usize| {
        part.len() == length
            && part
                .bytes()
                .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_valid = is_hex(version, 2) && is_hex(trace, 32) && is_hex(parent, 16);
    let is_zero = |part: &str| part.bytes().all(|it| it == b'0');
    let is_set = !is_zero(trace) && !is_zero(parent);
    (is_valid && is_set).then(|| (trace.to_owned(), parent.to_owned()))
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// OTLP has 64-bit integers as strings in JSON.
fn int(key: &str, value: i64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// Returns a number that differs between recordings, and is the same for each export of one.
fn seed(recording: &Recording) -> u64 {
    let started = recording.header.started.since_unix().as_micros() as u64;
    let target = recording.header.target.as_deref().unwrap_or_default();
    target
        .bytes()
        .fold(mix(started), |seed, byte| mix(seed ^ u64::from(byte)))
}

/// The finalizer of SplitMix64, which spreads every bit.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// `SPAN_KIND_CLIENT`: every span is a request as its sender sees it.
const CLIENT: u8 = 3;
/// `STATUS_CODE_OK`.
const OK: u8 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
