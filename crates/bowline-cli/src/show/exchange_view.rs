//! One exchange in full.

use bowline_recording::{Event, EventKind, Exchange, HttpHeader, Recording, Timeline};
use serde_json::{Value, json};

use super::header_json;
use crate::failure::Failure;
use crate::latency::time_text;
use crate::ordered_json::OrderedJson;
use crate::output::{Output, Style, visible, wrap};
use crate::timeline_view::{entry_json, exchange_json, format_row, outcome, row, title};

/// Prints every event of an exchange, with messages and headers.
pub(super) fn print(
    output: Output,
    recording: &Recording,
    timeline: &Timeline,
    exchange: &Exchange,
) -> Result<(), Failure> {
    let entries = timeline.entries().iter().filter(|entry| {
        let is_http =
            entry.http_exchange.is_some() && entry.http_exchange == exchange.http_exchange;
        entry.exchange == Some(exchange.number) || is_http
    });
    let entries = entries.filter_map(|it| Some((it, recording.events.get(it.event)?)));
    if output.is_json() {
        let mut value = exchange_json(exchange);
        value["recording"] = header_json(recording);
        let events: Vec<Value> = entries
            .map(|(entry, event)| {
                let mut value = entry_json(timeline, event, entry);
                if let Some(headers) = headers_of(event) {
                    value["headers"] = json!(headers);
                }
                value
            })
            .collect();
        value["events"] = events.into();
        output.json(&value)?;
        return Ok(());
    }
    print_head(output, timeline, exchange)?;
    for (entry, event) in entries {
        let style = |style, text: &str| output.style(style, text);
        match row(timeline, event, entry) {
            Some(row) => output.line(format_row(&row, output.width, style))?,
            None => print_http(output, event)?,
        }
        for HttpHeader(name, value) in headers_of(event).unwrap_or_default() {
            let line = format!("{name}: {value}");
            for line in wrap(&visible(&line), output.width.saturating_sub(INDENT)) {
                output.line(format!("{:INDENT$}{}", "", output.style(Style::Dim, line)))?;
            }
        }
        if let EventKind::Message { message, .. } = &event.kind {
            let pretty = match OrderedJson::parse(message.as_str()) {
                // Nested too deeply to be read.
                OrderedJson::Null => message.as_str().to_owned(),
                json => json.pretty(),
            };
            for line in wrap_json(&visible(&pretty), output.width.saturating_sub(INDENT)) {
                output.line(format!("{:INDENT$}{line}", ""))?;
            }
        }
    }
    Ok(())
}

fn print_head(output: Output, timeline: &Timeline, exchange: &Exchange) -> Result<(), Failure> {
    let (ended, _) = outcome(exchange);
    let took = exchange
        .duration()
        .map(|it| format!(" after {}", time_text(it)));
    let head = format!("#{} {}", exchange.number, title(exchange));
    for line in wrap(&head, output.width) {
        output.line(output.style(Style::Bold, line))?;
    }
    for line in wrap(
        &format!("{ended}{}", took.unwrap_or_default()),
        output.width,
    ) {
        output.line(line)?;
    }
    let legs = timeline.legs(exchange.number);
    if legs.len() > 1 {
        let legs: Vec<String> = legs.iter().map(|it| format!("#{}", it.number)).collect();
        output.line(format!("legs: {}", legs.join(" → ")))?;
    }
    if let Some(cancel) = &exchange.cancel {
        let after = match cancel.latency() {
            Some(latency) => format!("last seen {} after it", time_text(latency)),
            None => "nothing was seen after it".to_owned(),
        };
        let by = cancel.by.as_str();
        output.line(format!(
            "cancelled by the {by} ({}); {after}",
            cancel.form.as_str()
        ))?;
    }
    output.line("")?;
    Ok(())
}

/// Prints the HTTP events that a timeline leaves out.
fn print_http(output: Output, event: &Event) -> Result<(), Failure> {
    let text = match &event.kind {
        EventKind::Request { method, path, .. } => format!("→      {method} {path}"),
        EventKind::Response { status, .. } => format!("←      HTTP status {status}"),
        EventKind::End { .. } => "       complete".to_owned(),
        _ => return Ok(()),
    };
    let line = format!("{:>9.3} {text}", event.at.as_secs_f64());
    output.line(output.style(Style::Dim, visible(&line)))?;
    Ok(())
}

fn headers_of(event: &Event) -> Option<&[HttpHeader]> {
    match &event.kind {
        EventKind::Request { headers, .. } | EventKind::Response { headers, .. } => Some(headers),
        _ => None,
    }
}

/// Wraps lines of JSON, and indents what continues a line.
fn wrap_json(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let indent = indent.min(width / 2);
        let wrapped = wrap(line.trim_start(), width.saturating_sub(indent + 2).max(20));
        for (at, part) in wrapped.into_iter().enumerate() {
            let extra = if at == 0 { 0 } else { 2 };
            lines.push(format!("{}{part}", " ".repeat(indent + extra)));
        }
    }
    lines
}

const INDENT: usize = 18;
