//! Lines of text for the entries and exchanges of a timeline, for `tap` and `show`.
//!
//! ```text
//!    0.000 →  #1  tools/call slow                              id 7  2026-07-28
//!    1.020 ✗→ #1  cancel: closed stream, after 1.02 s
//! ```

use std::time::Duration;

use bowline::types::Json;
use bowline_recording::{
    Entry, EntryKind, Event, EventKind, Exchange, ExchangeState, Side, Timeline,
};
use serde_json::{Map, Value, json};

use crate::latency::time_text;
use crate::output::{Style, display_width, fit, visible_line};

/// A line of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) at: Duration,
    pub(crate) arrow: &'static str,
    pub(crate) number: Option<usize>,
    pub(crate) text: String,
    /// At the right margin.
    pub(crate) note: String,
    pub(crate) style: Option<Style>,
}

/// Returns the line of an entry. `None` for the HTTP events that messages show already.
pub(crate) fn row(timeline: &Timeline, event: &Event, entry: &Entry) -> Option<Row> {
    let exchange = entry.exchange.and_then(|number| timeline.exchange(number));
    let arrow = match (&entry.kind, entry.from) {
        (EntryKind::Cancel | EntryKind::LateCancel, Some(Side::Client)) => "✗→",
        (EntryKind::Cancel | EntryKind::LateCancel, Some(Side::Server)) => "←✗",
        (EntryKind::Stderr, _) | (_, None) => "",
        (_, Some(Side::Client)) => "→",
        (_, Some(Side::Server)) => "←",
    };
    let (text, note, style) = match &entry.kind {
        EntryKind::Request => request(timeline, exchange?),
        EntryKind::Answer => answer(exchange?),
        EntryKind::LateAnswer => late_answer(exchange?, entry.at),
        EntryKind::UnmatchedAnswer => {
            let text = "‼ answer to a request that was not seen".to_owned();
            (text, String::new(), Some(Style::Red))
        }
        EntryKind::Notification { method } => notification(event, method),
        EntryKind::Cancel => cancel(event, exchange),
        EntryKind::LateCancel => {
            let text = "cancel of a request that had ended".to_owned();
            (text, String::new(), Some(Style::Dim))
        }
        EntryKind::Malformed => malformed(event),
        EntryKind::HttpRequest | EntryKind::HttpResponse | EntryKind::HttpEnd => {
            http(timeline, event, entry)?
        }
        _ => connection(event)?,
    };
    Some(Row {
        at: entry.at,
        arrow,
        number: entry.exchange,
        text,
        note,
        style,
    })
}

type Parts = (String, String, Option<Style>);

fn request(timeline: &Timeline, exchange: &Exchange) -> Parts {
    let mut text = title(exchange);
    if let Some(before) = exchange.previous_leg {
        let leg = timeline
            .legs(exchange.number)
            .iter()
            .position(|it| it.number == exchange.number);
        let leg = leg.map_or(2, |at| at + 1);
        text = format!("{text} ↳ leg {leg}, after #{before}");
    }
    if let Some(about) = exchange.question_of {
        text = format!("{text} ? about #{about}");
    }
    let version = exchange
        .version
        .as_ref()
        .map_or("", |version| version.as_str());
    let id = visible_line(&exchange.id.to_string()).into_owned();
    (
        text,
        format!("id {}  {}", fit(&id, 12), visible_line(version))
            .trim_end()
            .to_owned(),
        None,
    )
}

/// Returns the method of an exchange with the name that it has.
pub(crate) fn title(exchange: &Exchange) -> String {
    let method = visible_line(&exchange.method);
    match &exchange.name {
        Some(name) => format!("{method} {}", visible_line(name)),
        None => method.into_owned(),
    }
}

fn answer(exchange: &Exchange) -> Parts {
    let took = exchange.duration().map(time_text).unwrap_or_default();
    let (text, style) = outcome(exchange);
    (text, took, style)
}

/// Returns how an exchange ended, in few words.
pub(crate) fn outcome(exchange: &Exchange) -> (String, Option<Style>) {
    match exchange.state {
        ExchangeState::InFlight => ("in flight".to_owned(), None),
        ExchangeState::Answered if exchange.is_subscription() => ("ended".to_owned(), None),
        ExchangeState::Answered => ("result".to_owned(), Some(Style::Green)),
        ExchangeState::ToolError => ("tool error".to_owned(), Some(Style::Yellow)),
        ExchangeState::InputRequired => ("input required".to_owned(), Some(Style::Cyan)),
        ExchangeState::Failed(code) => {
            let answer = exchange.answer.as_ref().map(|answer| &answer.outcome);
            let message = match answer {
                Some(Err(error)) => visible_line(&error.message).into_owned(),
                _ => String::new(),
            };
            (format!("error {code}: {message}"), Some(Style::Red))
        }
        ExchangeState::Refused(status) => (format!("HTTP status {status}"), Some(Style::Red)),
        ExchangeState::Cancelled => ("✗ cancelled".to_owned(), Some(Style::Yellow)),
        ExchangeState::Hung if exchange.is_subscription() => ("open".to_owned(), None),
        ExchangeState::Hung => ("‼ hung: no answer".to_owned(), Some(Style::Red)),
        _ => (String::new(), None),
    }
}

fn late_answer(exchange: &Exchange, at: Duration) -> Parts {
    let text = match &exchange.cancel {
        Some(cancel) => {
            let after = time_text(at.saturating_sub(cancel.at));
            format!("‼ answer {after} after the cancel")
        }
        None => "‼ second answer".to_owned(),
    };
    (text, String::new(), Some(Style::Red))
}

fn notification(event: &Event, method: &str) -> Parts {
    let params = message_of(event)
        .map(|message| message["params"].clone())
        .unwrap_or_default();
    let text = match method {
        "notifications/progress" => progress(&params),
        "notifications/message" => {
            let level = params["level"].as_str().unwrap_or("log");
            let data = match &params["data"] {
                Value::String(text) => text.clone(),
                data => data.to_string(),
            };
            format!("{level}: {data}")
        }
        other => other
            .strip_prefix("notifications/")
            .unwrap_or(other)
            .to_owned(),
    };
    (
        visible_line(&text).into_owned(),
        String::new(),
        Some(Style::Dim),
    )
}

fn progress(params: &Value) -> String {
    let total = match params.get("total") {
        Some(total) => format!("/{total}"),
        None => String::new(),
    };
    let message = params["message"].as_str().map(|it| format!(" {it}"));
    format!(
        "progress {}{total}{}",
        params["progress"],
        message.unwrap_or_default()
    )
}

fn cancel(event: &Event, exchange: Option<&Exchange>) -> Parts {
    let Some((exchange, cancel)) = exchange.and_then(|it| Some((it, it.cancel.as_ref()?))) else {
        let id = message_of(event).map(|message| message["params"]["requestId"].to_string());
        let id = visible_line(&id.unwrap_or_default()).into_owned();
        let text = format!("‼ cancel of id {id}, which was not seen");
        return (text, String::new(), Some(Style::Red));
    };
    let after = exchange.duration().map(time_text).unwrap_or_default();
    let reason = match &cancel.reason {
        Some(reason) => format!(": {}", visible_line(reason)),
        None => String::new(),
    };
    let text = format!("cancel by {}{reason}", cancel.form.as_str());
    (text, format!("after {after}"), Some(Style::Yellow))
}

fn malformed(event: &Event) -> Parts {
    let text = match &event.kind {
        EventKind::Malformed { text, why, .. } => format!("{why}: {text}"),
        EventKind::Message { message, .. } => message.as_str().to_owned(),
        _ => String::new(),
    };
    let text = format!("‼ malformed: {}", visible_line(&text));
    (text, String::new(), Some(Style::Red))
}

/// HTTP requests that carry a message are shown by it; others, and what goes wrong, on lines of their own.
fn http(timeline: &Timeline, event: &Event, entry: &Entry) -> Option<Parts> {
    let http = entry
        .http_exchange
        .and_then(|number| timeline.http_exchange(number));
    let is_post = http.is_some_and(|http| http.method == "POST");
    let (text, style) = match &event.kind {
        EventKind::Request { method, path, .. } if method != "POST" => {
            (format!("{method} {path}"), Style::Dim)
        }
        EventKind::Response { status, .. } if !is_post || *status >= 400 => {
            let style = if *status >= 400 {
                Style::Red
            } else {
                Style::Dim
            };
            (format!("HTTP status {status}"), style)
        }
        EventKind::End {
            by,
            complete: false,
        } => {
            let style = if is_post { Style::Yellow } else { Style::Dim };
            (format!("response closed by the {}", by.as_str()), style)
        }
        _ => return None,
    };
    Some((visible_line(&text).into_owned(), String::new(), Some(style)))
}

fn connection(event: &Event) -> Option<Parts> {
    let (text, style) = match &event.kind {
        EventKind::Open => ("open".to_owned(), Style::Dim),
        EventKind::Close { by, exit } => {
            let exit = match exit {
                Some(bowline_recording::ChildExit::Code(code)) => format!(", exit code {code}"),
                Some(bowline_recording::ChildExit::Signal(signal)) => format!(", signal {signal}"),
                _ => String::new(),
            };
            (format!("closed by the {}{exit}", by.as_str()), Style::Dim)
        }
        EventKind::Stderr { text } => (format!("stderr: {text}"), Style::Dim),
        EventKind::Lost { count, why } => (
            format!("‼ {count} events were not recorded: {why}"),
            Style::Red,
        ),
        _ => return None,
    };
    Some((visible_line(&text).into_owned(), String::new(), Some(style)))
}

fn message_of(event: &Event) -> Option<Value> {
    match &event.kind {
        EventKind::Message { message, .. } => message.decode().ok(),
        _ => None,
    }
}

/// Formats a row within `width` columns. `style` adds colours.
pub(crate) fn format_row(row: &Row, width: usize, style: impl Fn(Style, &str) -> String) -> String {
    let at = format!("{:>9.3}", row.at.as_secs_f64());
    let number = row
        .number
        .map(|number| format!("#{number}"))
        .unwrap_or_default();
    let head = format!("{at} {:<2} {number:<4} ", row.arrow);
    let space = width.saturating_sub(display_width(&head)).max(10);
    let note_width = display_width(&row.note);
    // A long text displaces the note.
    let text_space = match note_width {
        0 => space,
        note if note + 12 > space => space,
        note => space - note - 1,
    };
    let text = fit(&row.text, text_space);
    let mut line = head;
    let padding = space.saturating_sub(display_width(&text) + note_width);
    line.push_str(&match row.style {
        Some(it) => style(it, &text),
        None => text,
    });
    if note_width > 0 && padding > 0 {
        line.push_str(&" ".repeat(padding));
        line.push_str(&style(Style::Dim, &row.note));
    }
    line.trim_end().to_owned()
}

/// Returns an entry as JSON, for `--json`.
pub(crate) fn entry_json(timeline: &Timeline, event: &Event, entry: &Entry) -> Value {
    let exchange = entry.exchange.and_then(|number| timeline.exchange(number));
    let mut value = Members::new();
    value.set("at", Some(micros(entry.at)));
    value.set("connection", Some(entry.connection));
    value.set("kind", Some(kind_name(&entry.kind)));
    value.set("line", Some(entry.line).filter(|line| *line > 0));
    value.set("from", entry.from.map(Side::as_str));
    value.set("exchange", entry.exchange);
    value.set("httpExchange", entry.http_exchange);
    let version = entry.version.as_ref();
    value.set("version", version.map(|version| version.as_str()));
    if let Some(exchange) = exchange {
        value.set("method", Some(exchange.method.as_str()));
        value.set("name", exchange.name.as_deref());
        value.set("previousLeg", exchange.previous_leg);
        value.set("questionOf", exchange.question_of);
        if matches!(entry.kind, EntryKind::Answer | EntryKind::Cancel) {
            value.set("duration", exchange.duration().map(micros));
        }
        let cancel = exchange.cancel.as_ref();
        let cancel = cancel.filter(|_| entry.kind != EntryKind::Request);
        value.set("cancel", cancel.map(cancel_json));
    }
    value.set_event(event);
    value.into_value()
}

/// The members of an object, of which those without a value are left out.
struct Members(Map<String, Value>);

impl Members {
    fn new() -> Self {
        Self(Map::new())
    }

    fn set(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    /// Adds what the event contains.
    fn set_event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Message { message, .. } => self.set("message", Some(decoded(message))),
            EventKind::Malformed { text, why, .. } => {
                self.set("text", Some(text.as_str()));
                self.set("why", Some(why.as_str()));
            }
            EventKind::Stderr { text } => self.set("text", Some(text.as_str())),
            EventKind::Request { method, path, .. } => {
                self.set("httpMethod", Some(method.as_str()));
                self.set("path", Some(path.as_str()));
            }
            EventKind::Response { status, .. } => self.set("status", Some(*status)),
            EventKind::End { by, complete } => {
                self.set("by", Some(by.as_str()));
                self.set("complete", Some(*complete));
            }
            EventKind::Close { by, .. } => self.set("by", Some(by.as_str())),
            EventKind::Lost { count, why } => {
                self.set("count", Some(*count));
                self.set("why", Some(why.as_str()));
            }
            _ => {}
        }
    }

    fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// Returns an exchange as JSON.
pub(crate) fn exchange_json(exchange: &Exchange) -> Value {
    let (outcome, _) = outcome(exchange);
    let mut value = Members::new();
    value.set("exchange", Some(exchange.number));
    value.set("connection", Some(exchange.connection));
    value.set("line", Some(exchange.line));
    value.set("at", Some(micros(exchange.at)));
    value.set("from", Some(exchange.from.as_str()));
    value.set("id", Some(json!(exchange.id)));
    value.set("method", Some(exchange.method.as_str()));
    value.set("name", exchange.name.as_deref());
    let version = exchange.version.as_ref();
    value.set("version", version.map(|version| version.as_str()));
    value.set("state", Some(state_name(exchange)));
    value.set("outcome", Some(outcome));
    value.set("duration", exchange.duration().map(micros));
    value.set("notifications", Some(exchange.notification_count));
    value.set("httpExchange", exchange.http_exchange);
    value.set("previousLeg", exchange.previous_leg);
    value.set("nextLeg", exchange.next_leg);
    value.set("questionOf", exchange.question_of);
    value.set("cancel", exchange.cancel.as_ref().map(cancel_json));
    value.into_value()
}

fn cancel_json(cancel: &bowline_recording::Cancel) -> Value {
    json!({
        "at": micros(cancel.at),
        "by": cancel.by.as_str(),
        "form": cancel.form.as_str(),
        "reason": cancel.reason,
        "latency": cancel.latency().map(micros),
    })
}

pub(crate) fn state_name(exchange: &Exchange) -> &'static str {
    match exchange.state {
        ExchangeState::InFlight => "in flight",
        ExchangeState::Answered => "answered",
        ExchangeState::ToolError => "tool error",
        ExchangeState::InputRequired => "input required",
        ExchangeState::Failed(_) => "failed",
        ExchangeState::Refused(_) => "refused",
        ExchangeState::Cancelled => "cancelled",
        ExchangeState::Hung if exchange.is_subscription() => "open",
        ExchangeState::Hung => "hung",
        _ => "unknown",
    }
}

fn kind_name(kind: &EntryKind) -> &'static str {
    match kind {
        EntryKind::Opened => "open",
        EntryKind::Closed(_) => "close",
        EntryKind::Stderr => "stderr",
        EntryKind::Request => "request",
        EntryKind::Answer => "answer",
        EntryKind::LateAnswer => "late answer",
        EntryKind::UnmatchedAnswer => "unmatched answer",
        EntryKind::Notification { .. } => "notification",
        EntryKind::Cancel => "cancel",
        EntryKind::LateCancel => "late cancel",
        EntryKind::Malformed => "malformed",
        EntryKind::HttpRequest => "http request",
        EntryKind::HttpResponse => "http response",
        EntryKind::HttpEnd => "http end",
        EntryKind::Lost => "lost",
        _ => "unknown",
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Decodes JSON; what is nested too deeply is text.
pub(crate) fn decoded(json: &Json) -> Value {
    json.decode().unwrap_or_else(|_| json.as_str().into())
}
