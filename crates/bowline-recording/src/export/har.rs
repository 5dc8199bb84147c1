//! [`to_har`]: HTTP Archive 1.2, which browsers and proxies display.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{EventKind, Exchange, HttpExchange, HttpHeader, Recording, Side, Timeline, Transport};

/// Returns the recording in the format HAR 1.2.
///
/// Over HTTP, an entry is an HTTP request. Over stdio, which has none, an entry is an exchange, with its request as the
/// body of a POST to `stdio:///METHOD`.
#[must_use]
pub fn to_har(recording: &Recording) -> Value {
    let timeline = Timeline::of(recording);
    let entries = match recording.header.transport {
        Transport::Http => http_entries(recording, &timeline),
        Transport::Stdio => stdio_entries(recording, &timeline),
    };
    json!({"log": {
        "version": "1.2",
        "creator": {"name": "bowline", "version": env!("CARGO_PKG_VERSION")},
        "comment": recording.header.target,
        "entries": entries,
    }})
}

/// The bodies of an HTTP request and its response.
#[derive(Default)]
struct Bodies {
    request: Vec<String>,
    response: Vec<String>,
}

fn http_entries(recording: &Recording, timeline: &Timeline) -> Vec<Value> {
    let mut bodies: BTreeMap<u64, Bodies> = BTreeMap::new();
    for event in &recording.events {
        let (from, text) = match &event.kind {
            EventKind::Message { from, message } => (*from, message.as_str()),
            EventKind::Malformed { from, text, .. } => (*from, text.as_str()),
            _ => continue,
        };
        if let Some(number) = event.exchange {
            let bodies = bodies.entry(number).or_default();
            match from {
                Side::Client => bodies.request.push(text.to_owned()),
                Side::Server => bodies.response.push(text.to_owned()),
            }
        }
    }
    let entry = |(number, http): (u64, &HttpExchange)| {
        let bodies = bodies.remove(&number).unwrap_or_default();
        http_entry(recording, number, http, &bodies)
    };
    timeline.http_exchanges().map(entry).collect()
}

fn http_entry(recording: &Recording, number: u64, http: &HttpExchange, bodies: &Bodies) -> Value {
    let end = http.end.map(|end| end.at).or(http.responded);
    let total = end.map_or(Duration::ZERO, |end| end.saturating_sub(http.at));
    let wait = http
        .responded
        .map_or(total, |at| at.saturating_sub(http.at));
    let content_type = http.response_header("content-type").unwrap_or_default();
    let response_text = match http.is_event_stream() {
        true => bodies
            .response
            .iter()
            .map(|it| format!("data: {it}\n\n"))
            .collect(),
        false => bodies.response.join("\n"),
    };
    let request_text = bodies.request.join("\n");
    let mut request = json!({
        "method": http.method,
        "url": url(recording, &http.path),
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": headers(&http.request_headers),
        "queryString": query(&http.path),
        "headersSize": -1,
        "bodySize": request_text.len(),
    });
    if !bodies.request.is_empty() {
        let mime_type = http
            .request_header("content-type")
            .unwrap_or("application/json");
        request["postData"] = json!({"mimeType": mime_type, "params": [], "text": request_text});
    }
    let is_cut = http.end.is_some_and(|end| !end.is_complete);
    let comment = match http.end {
        Some(end) if is_cut => format!("ended by the {} before it was complete", end.by.as_str()),
        Some(_) => String::new(),
        None => "not ended".to_owned(),
    };
    json!({
        "startedDateTime": started(recording, http.at),
        "time": millis(total),
        "request": request,
        "response": {
            "status": http.status.unwrap_or(0),
            "statusText": "",
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": headers(&http.response_headers),
            "content": {"size": response_text.len(), "mimeType": content_type, "text": response_text},
            "redirectURL": http.response_header("location").unwrap_or_default(),
            "headersSize": -1,
            "bodySize": -1,
        },
        "cache": {},
        "timings": timings(wait, total),
        "connection": http.connection.to_string(),
        "comment": comment,
        "_exchange": number,
    })
}

fn stdio_entries(recording: &Recording, timeline: &Timeline) -> Vec<Value> {
    timeline
        .exchanges()
        .map(|it| stdio_entry(recording, it))
        .collect()
}

fn stdio_entry(recording: &Recording, exchange: &Exchange) -> Value {
    let total = exchange.duration().unwrap_or_default();
    let params = exchange
        .params
        .as_ref()
        .map_or("{}", |params| params.as_str());
    let (status, text) = match exchange.answer.as_ref().map(|answer| &answer.outcome) {
        Some(Ok(result)) => (200, result.as_str().to_owned()),
        Some(Err(error)) => {
            let error = json!({"code": error.code.0, "message": error.message});
            (500, error.to_string())
        }
        // Browsers show a request without a response as cancelled.
        None => (0, String::new()),
    };
    let comment = match &exchange.cancel {
        Some(cancel) => format!("cancelled by the {}", cancel.by.as_str()),
        None if exchange.answer.is_none() => "not answered".to_owned(),
        None => String::new(),
    };
    json!({
        "startedDateTime": started(recording, exchange.at),
        "time": millis(total),
        "request": {
            "method": "POST",
            "url": format!("stdio:///{}", exchange.method),
            "httpVersion": "",
            "cookies": [],
            "headers": [],
            "queryString": [],
            "postData": {"mimeType": "application/json", "params": [], "text": params},
            "headersSize": -1,
            "bodySize": params.len(),
        },
        "response": {
            "status": status,
            "statusText": "",
            "httpVersion": "",
            "cookies": [],
            "headers": [],
            "content": {"size": text.len(), "mimeType": "application/json", "text": text},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": -1,
        },
        "cache": {},
        "timings": timings(total, total),
        "connection": exchange.connection.to_string(),
        "comment": comment,
        "_exchange": exchange.number,
        "_from": exchange.from.as_str(),
    })
}

fn timings(wait: Duration, total: Duration) -> Value {
    let receive = total.saturating_sub(wait);
    json!({"send": 0, "wait": millis(wait), "receive": millis(receive)})
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn started(recording: &Recording, at: Duration) -> String {
    recording.header.started.saturating_add(at).to_string()
}

fn headers(headers: &[HttpHeader]) -> Value {
    let headers = headers
        .iter()
        .map(|HttpHeader(name, value)| json!({"name": name, "value": value}));
    headers.collect()
}

/// Returns the URL of a request to the target.
fn url(recording: &Recording, path: &str) -> String {
    let target = recording
        .header
        .target
        .as_deref()
        .unwrap_or("http://localhost/");
    let Some((scheme, rest)) = target.split_once("://") else {
        return format!("http://localhost{path}");
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    format!("{scheme}://{}{path}", &rest[..end])
}

fn query(path: &str) -> Value {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        json!({"name": name, "value": value})
    });
    pairs.collect()
}
