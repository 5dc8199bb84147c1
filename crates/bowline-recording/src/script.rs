//! Recordings as short text, for tests.
//!
//! ```text
//! 0 > {"id":1,"method":"ping"}           the client sends, 0 ms after the start
//! 5 < {"id":1,"result":{}}               the server sends
//! 6 #1 POST /mcp mcp-method=tools/list   HTTP request 1, with a header
//! 7 #1 200 content-type=text/event-stream
//! 8 #1 end client                        complete; `cut client` is not
//! 9 open | close client | stderr text | lost 3 | bad > text
//! ```
//!
//! `$M` is the `_meta` of a modern request, `$S` the members of a modern result.

use std::time::Duration;

use bowline_types::Json;

use crate::{EndedBy, Event, EventKind, Header, HttpHeader, Recording, Side, Timestamp, Transport};

pub(crate) fn stdio(script: &str) -> Recording {
    recording(Transport::Stdio, script)
}

pub(crate) fn http(script: &str) -> Recording {
    recording(Transport::Http, script)
}

fn recording(transport: Transport, script: &str) -> Recording {
    let header =
        Header::new(transport).started(Timestamp::from_unix(Duration::from_secs(1_785_240_000)));
    let lines = script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let mut events: Vec<Event> = lines.map(event).collect();
    for (at, event) in events.iter_mut().enumerate() {
        event.line = at + 2;
    }
    Recording::new(header, events)
}

fn event(line: &str) -> Event {
    let (at, mut rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
    let at = Duration::from_millis(at.parse().unwrap_or_else(|_| panic!("{line}")));
    let mut connection = 1;
    let mut exchange = None;
    if let Some((number, after)) = rest.strip_prefix('c').and_then(|it| it.split_once(' '))
        && let Ok(number) = number.parse()
    {
        (connection, rest) = (number, after);
    }
    if let Some((number, after)) = rest.strip_prefix('#').and_then(|it| it.split_once(' ')) {
        (exchange, rest) = (number.parse().ok(), after);
    }
    let mut event = Event::new(at, connection, kind(rest));
    event.exchange = exchange;
    event
}

fn kind(text: &str) -> EventKind {
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    match first {
        ">" => message(Side::Client, rest),
        "<" => message(Side::Server, rest),
        "open" => EventKind::Open,
        "close" => EventKind::Close {
            by: ended_by(rest),
            exit: None,
        },
        "stderr" => EventKind::Stderr { text: rest.into() },
        "lost" => EventKind::Lost {
            count: rest.parse().unwrap(),
            why: "test".into(),
        },
        "bad" => EventKind::Malformed {
            from: if rest.starts_with('>') {
                Side::Client
            } else {
                Side::Server
            },
            text: rest[1..].trim().into(),
            why: "not JSON".into(),
        },
        "end" | "cut" => EventKind::End {
            by: ended_by(rest),
            complete: first == "end",
        },
        "GET" | "POST" | "DELETE" => {
            let (path, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            EventKind::Request {
                method: first.into(),
                path: path.into(),
                headers: headers(rest),
            }
        }
        status => EventKind::Response {
            status: status.parse().unwrap_or_else(|_| panic!("{text}")),
            headers: headers(rest),
        },
    }
}

fn message(from: Side, text: &str) -> EventKind {
    let text = text
        .replace("$M", MODERN_META)
        .replace("$S", r#""resultType":"complete""#);
    let envelope = r#"{"jsonrpc":"2.0","#;
    let text = match text.strip_prefix("[{") {
        Some(rest) => format!("[{envelope}{}", rest.replace(",{", &format!(",{envelope}"))),
        None => text.replacen('{', envelope, 1),
    };
    EventKind::Message {
        from,
        message: Json::parse(text.clone()).unwrap_or_else(|error| panic!("{error}: {text}")),
    }
}

fn ended_by(text: &str) -> EndedBy {
    match text {
        "client" => EndedBy::Client,
        "server" => EndedBy::Server,
        "tap" => EndedBy::Tap,
        other => panic!("{other}"),
    }
}

/// Headers are separated by `; ` in the script, because values contain spaces.
fn headers(text: &str) -> Vec<HttpHeader> {
    let pairs = text.split("; ").filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| HttpHeader(name.into(), value.into()))
        .collect()
}

const MODERN_META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}"#;
