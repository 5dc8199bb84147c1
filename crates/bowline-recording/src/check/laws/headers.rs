//! Laws about HTTP: headers, status codes and content types.

use std::collections::BTreeMap;

use bowline_core::era::{Dialect, HttpTransportKind, VersionHeader};
use bowline_core::http::headers::{MirrorHeaders, ParamHeaders, name_member};
use bowline_types::Json;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::answers::describe;
use super::{Breach, Breaches, CheckContext, HTTP, LEGACY_HTTP, Law, legacy, must, should};
use crate::timeline::{member, text_member};
use crate::{EntryKind, Exchange, HttpExchange, HttpHeader, Side};

pub(super) const LAWS: &[Law] = &[
    must(
        "header-version",
        HTTP,
        "`MCP-Protocol-Version` equals the version in `_meta`",
        header_version,
    ),
    must(
        "header-method",
        HTTP,
        "`Mcp-Method` equals the method",
        header_method,
    ),
    must(
        "header-name",
        HTTP,
        "`Mcp-Name` equals the name, URI or task id in the params",
        header_name,
    ),
    must(
        "header-params",
        HTTP,
        "`Mcp-Param-*` equal the annotated arguments of a tool",
        header_params,
    ),
    legacy(must(
        "header-version-legacy",
        LEGACY_HTTP,
        "after `initialize`, requests have the negotiated version in `MCP-Protocol-Version`",
        header_version_legacy,
    )),
    legacy(must(
        "header-session",
        LEGACY_HTTP,
        "requests of a session have its `Mcp-Session-Id`",
        header_session,
    )),
    must(
        "accept-both",
        HTTP,
        "a POST accepts `application/json` and `text/event-stream`",
        accept_both,
    ),
    must(
        "response-content-type",
        HTTP,
        "a request is answered with `application/json` or `text/event-stream`",
        response_content_type,
    ),
    must(
        "accepted-202",
        HTTP,
        "an accepted notification is answered with status 202",
        accepted_202,
    ),
    must(
        "error-status",
        HTTP,
        "status 404 for an unknown method, 400 for a bad version or header",
        error_status,
    ),
    should(
        "no-modern-session",
        HTTP,
        "in the modern era, a response has no `Mcp-Session-Id`",
        no_modern_session,
    ),
];

/// Returns the modern requests of clients with the HTTP requests that carried them.
fn posts<'a>(
    context: &'a CheckContext<'_>,
) -> impl Iterator<Item = (&'a Exchange, &'a HttpExchange)> {
    let client = context.modern().filter(|it| it.from == Side::Client);
    client.filter_map(|exchange| Some((exchange, context.http_of(exchange)?)))
}

fn header_version(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (exchange, post) in posts(context) {
        let headers = header_map(&post.request_headers);
        let version = exchange.version.as_ref().map_or("", |it| it.as_str());
        if let Err(why) = MirrorHeaders::read(&headers).check_version(version) {
            breaches.push(breach(exchange, post, &why));
        }
    }
}

fn header_method(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (exchange, post) in posts(context) {
        let headers = header_map(&post.request_headers);
        if let Err(why) = MirrorHeaders::read(&headers).check_method(&exchange.method) {
            breaches.push(breach(exchange, post, &why));
        }
    }
}

fn header_name(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (exchange, post) in posts(context) {
        let Some(name) = exchange
            .name
            .as_ref()
            .filter(|_| name_member(&exchange.method).is_some())
        else {
            continue;
        };
        let headers = header_map(&post.request_headers);
        if let Err(why) = MirrorHeaders::read(&headers).check_name(name) {
            breaches.push(breach(exchange, post, &why));
        }
    }
}

fn header_params(context: &CheckContext<'_>, breaches: &mut Breaches) {
    let mut plans: BTreeMap<String, ParamHeaders> = BTreeMap::new();
    for exchange in context.modern() {
        if exchange.method == "tools/list" {
            plans.extend(annotated_tools(exchange));
        }
        let plan = exchange.name.as_ref().and_then(|name| plans.get(name));
        let (Some(plan), Some(post)) = (plan, context.http_of(exchange)) else {
            continue;
        };
        if exchange.method != "tools/call" {
            continue;
        }
        let arguments = exchange
            .params
            .as_ref()
            .and_then(|it| member(it, &["arguments"]));
        let headers = header_map(&post.request_headers);
        if let Err(why) = plan.check(arguments.as_ref(), &headers) {
            breaches.push(breach(exchange, post, &why));
        }
    }
}

/// Returns the tools of a list that have annotated parameters.
fn annotated_tools(exchange: &Exchange) -> Vec<(String, ParamHeaders)> {
    let result = exchange
        .answer
        .as_ref()
        .and_then(|it| it.outcome.as_ref().ok());
    let tools = result.and_then(|result| member(result, &["tools"]));
    let tools: Vec<Json> = tools.and_then(|it| it.decode().ok()).unwrap_or_default();
    let annotated = |tool: &Json| {
        let plan = ParamHeaders::read(&member(tool, &["inputSchema"])?).ok()?;
        Some((text_member(tool, &["name"])?, plan))
    };
    tools
        .iter()
        .filter_map(annotated)
        .filter(|(_, plan)| !plan.is_empty())
        .collect()
}

fn header_version_legacy(context: &CheckContext<'_>, breaches: &mut Breaches) {
    let mut sessions: BTreeMap<&str, String> = BTreeMap::new();
    for exchange in context
        .exchanges()
        .filter(|it| it.from == Side::Client && !it.is_modern())
    {
        let (Some(session), Some(post)) = (exchange.session.as_deref(), context.http_of(exchange))
        else {
            continue;
        };
        if exchange.method == "initialize" {
            let version = exchange.version.as_ref().map(|it| it.as_str().to_owned());
            sessions.extend(version.map(|version| (session, version)));
            continue;
        }
        let Some(version) = sessions.get(session).filter(|it| has_version_header(it)) else {
            continue;
        };
        let header = post.request_header("mcp-protocol-version").map(str::trim);
        if header != Some(version) {
            let header = header.unwrap_or("missing");
            let what = format!("`MCP-Protocol-Version` is {header}, and {version} was negotiated");
            breaches.push(Breach::new(what, [post.line, exchange.line]).of(exchange.number));
        }
    }
}

fn has_version_header(version: &str) -> bool {
    let dialect = Dialect::of(version);
    dialect.is_some_and(|dialect| dialect.http.version_header == VersionHeader::AfterInitialize)
}

fn header_session(context: &CheckContext<'_>, breaches: &mut Breaches) {
    let mut assigned: BTreeMap<u64, &str> = BTreeMap::new();
    for exchange in context
        .exchanges()
        .filter(|it| it.from == Side::Client && !it.is_modern())
    {
        let Some(post) = context.http_of(exchange) else {
            continue;
        };
        if exchange.method == "initialize" {
            let session = post.response_header("mcp-session-id");
            assigned.extend(session.map(|session| (exchange.connection, session)));
            continue;
        }
        let has_session = post.request_header("mcp-session-id").is_some();
        if !has_session && assigned.contains_key(&exchange.connection) {
            let what = format!("{} has no `Mcp-Session-Id`", describe(exchange));
            breaches.push(Breach::new(what, [post.line, exchange.line]).of(exchange.number));
        }
    }
}

fn accept_both(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges().filter(|it| it.from == Side::Client) {
        let Some(post) = context.http_of(exchange) else {
            continue;
        };
        let dialect = exchange
            .version
            .as_ref()
            .and_then(|it| Dialect::of(it.as_str()));
        let is_http_sse = dialect.is_some_and(|it| it.http.transport == HttpTransportKind::HttpSse);
        let accepted: Vec<&str> = values(&post.request_headers, "accept").collect();
        let accepts = |wanted: &str| {
            let group = wanted.split('/').next().unwrap_or_default();
            let is_it = |part: &str| {
                let part = part.split(';').next().unwrap_or_default().trim();
                part.eq_ignore_ascii_case(wanted) || part == "*/*" || part == format!("{group}/*")
            };
            accepted.iter().any(|value| value.split(',').any(is_it))
        };
        let accepts_both = accepts("application/json") && accepts("text/event-stream");
        if !is_http_sse && !accepts_both {
            let what = format!(
                "`Accept` is {:?}",
                bowline_core::shortened(accepted.join(", "))
            );
            breaches.push(Breach::new(what, [post.line]).of(exchange.number));
        }
    }
}

fn response_content_type(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges().filter(|it| it.from == Side::Client) {
        let Some(post) = context.http_of(exchange) else {
            continue;
        };
        // Other statuses may have no body: 202 is how HTTP+SSE answers.
        let (Some(200), Some(line)) = (post.status, post.response_line) else {
            continue;
        };
        let content_type = post.response_header("content-type").unwrap_or("missing");
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let is_allowed = ["application/json", "text/event-stream"];
        if !is_allowed.iter().any(|it| essence.eq_ignore_ascii_case(it)) {
            let what = format!(
                "`Content-Type` is {:?}",
                bowline_core::shortened(content_type)
            );
            breaches.push(Breach::new(what, [line]).of(exchange.number));
        }
    }
}

fn accepted_202(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for entry in context.timeline.entries() {
        let is_notification = matches!(
            entry.kind,
            EntryKind::Notification { .. } | EntryKind::Cancel | EntryKind::LateCancel
        );
        let from_client = entry.from == Some(Side::Client);
        let Some(post) = entry
            .http_exchange
            .and_then(|it| context.timeline.http_exchange(it))
        else {
            continue;
        };
        // The cancel by closing a response is an end, not a notification.
        let is_posted = post.requests.is_empty();
        if let (true, true, true, Some(status @ 200..=299), Some(line)) = (
            is_notification,
            from_client,
            is_posted,
            post.status,
            post.response_line,
        ) && status != 202
        {
            let what = format!("a notification was answered with status {status}");
            breaches.push(Breach::new(what, [entry.line, line]));
        }
    }
}

fn error_status(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (exchange, post) in posts(context) {
        let answer = exchange.answer.as_ref();
        let Some(Err(error)) = answer.map(|it| &it.outcome) else {
            continue;
        };
        let expected = match error.code.0 {
            -32601 => 404,
            -32022..=-32020 => 400,
            _ => continue,
        };
        let (Some(status), Some(line)) = (post.status, post.response_line) else {
            continue;
        };
        // An error on a stream comes after the status was sent.
        if status != expected && !post.is_event_stream() {
            let what = format!(
                "error {} came with status {status}, not {expected}",
                error.code.0
            );
            breaches.push(Breach::new(what, [line]).of(exchange.number));
        }
    }
}

fn no_modern_session(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (exchange, post) in posts(context) {
        let line = post.response_line;
        if let (Some(line), Some(_)) = (line, post.response_header("mcp-session-id")) {
            let what = "the response to a modern request has `Mcp-Session-Id`";
            breaches.push(Breach::new(what, [line]).of(exchange.number));
        }
    }
}

fn breach(exchange: &Exchange, post: &HttpExchange, why: &dyn std::fmt::Display) -> Breach {
    let what = format!("{}: {why}", describe(exchange));
    Breach::new(what, [post.line, exchange.line]).of(exchange.number)
}

fn values<'a>(headers: &'a [HttpHeader], name: &'a str) -> impl Iterator<Item = &'a str> {
    let is_it = move |header: &&HttpHeader| header.0.eq_ignore_ascii_case(name);
    headers.iter().filter(is_it).map(|header| header.1.as_str())
}

/// Returns the headers that HTTP allows.
fn header_map(headers: &[HttpHeader]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for HttpHeader(name, value) in headers.iter().take(MAX_HEADERS) {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    map
}

/// The number of headers that are looked at: a map has a limit, beyond which it panics.
const MAX_HEADERS: usize = 1000;
