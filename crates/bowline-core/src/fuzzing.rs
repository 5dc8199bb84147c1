//! What must hold for every input, as functions that panic when it does not.
//!
//! The fuzz targets call them with whatever a fuzzer finds; the tests below call them with the seeds in
//! `fuzz/corpus` and with random mutations of these.

mod json;
pub use json::json;

mod script;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use ::http::request::Parts;
use ::http::{Method, Uri};
use bowline_types::{Json, RequestId};
use bytes::Bytes;
use std::sync::Arc;

use crate::era::{Callers, Dialect, Dialects};
use crate::http::admission::{Admitted, Catalog, Rejection, admit, admit_head};
use crate::http::challenge::Challenge;
use crate::http::headers::{self, Mirrored, ParamHeaders};
use crate::http::paths::Paths;
use crate::http::source::SourcePolicy;
use crate::sse::{self, Decoder, Event, Limits, TooLarge};
use crate::{Message, decode_batch, is_batch};

/// Reads the input as a frame: what decodes can be written and read again without loss.
pub fn message(input: &[u8]) {
    let frame = Bytes::copy_from_slice(input);
    if is_batch(&frame) {
        let _ = decode_batch(&frame, 100);
    }
    let message = match Message::decode(&frame) {
        Ok(message) => message,
        Err(malformed) => match malformed.answer() {
            Some(answer) => answer.into(),
            None => return,
        },
    };

    let written = message.to_frame();

    assert!(!written.contains(&b'\n') && !written.contains(&b'\r'));
    let again = Message::decode(&written).expect("what was written can be read");
    assert_eq!(again.to_frame(), written);
    if !input.contains(&b'\n') && !input.contains(&b'\r') {
        assert_eq!(again, message);
    }
}

/// Reads the input as an event stream: how it is cut does not matter, limits hold, and what was read can be
/// written and read again.
pub fn sse(input: &[u8]) {
    let small = Limits {
        line: 24,
        event: 40,
    };
    for limits in [small, Limits::default()] {
        let whole = Stream::read(input, usize::MAX, limits);
        for size in [1, 2, 3, 7, 64] {
            assert_eq!(
                Stream::read(input, size, limits),
                whole,
                "in chunks of {size}"
            );
        }
        for event in &whole.events {
            assert!(event.data.len() <= limits.event);
        }
        let mut written = Vec::new();
        for event in &whole.events {
            sse::encode_comment("between", &mut written);
            sse::encode(event, &mut written);
        }
        let again = Stream::read(&written, 5, Limits::default());
        assert_eq!(again.events, whole.events);
    }
    let mut written = Vec::new();
    sse::encode_frame(input, &mut written);
    let events = Stream::read(&written, usize::MAX, Limits::default()).events;
    assert_eq!(events.len(), 1, "whatever is in a frame, it is one event");
}

/// Reads the input as a header value, and its first two lines as a tool's schema and its arguments.
pub fn headers(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let encoded = headers::encode_value(&text);
    assert_eq!(
        headers::decode_value(encoded.as_bytes()).as_deref(),
        Ok(&*text)
    );
    if let Ok(decoded) = headers::decode_value(input) {
        let encoded = headers::encode_value(&decoded);
        assert_eq!(headers::decode_value(encoded.as_bytes()), Ok(decoded));
    }
    let challenges = Challenge::parse_all([&*text]);
    let written: Vec<_> = challenges.iter().map(Challenge::to_string).collect();
    assert_eq!(Challenge::parse_all([&*written.join(", ")]), challenges);

    let mut lines = input.splitn(2, |byte| *byte == b'\n');
    let mut json = || Json::parse(Bytes::copy_from_slice(lines.next()?)).ok();
    let Some(Ok(plan)) = json().map(|schema| ParamHeaders::read(&schema)) else {
        return;
    };
    let arguments = json();
    let mut mirrored = HeaderMap::new();
    if plan.mirror(arguments.as_ref(), &mut mirrored).is_ok() {
        assert_eq!(plan.check(arguments.as_ref(), &mirrored), Ok(()));
        for name in plan.names().filter(|name| mirrored.contains_key(*name)) {
            let mut without = mirrored.clone();
            without.remove(name);
            assert!(plan.check(arguments.as_ref(), &without).is_err());
        }
    }
}

/// Reads the input as method and path, headers, an empty line and a body, sent to a server of all eras, to a
/// modern one and to a legacy one.
pub fn admission(input: &[u8]) {
    let (head, body) = sent(input);
    let headers = head.headers.clone();
    let shop = Shop::new();
    // Known again or not, a caller is the same.
    let callers = Callers::default();
    let admitted =
        |headers: &HeaderMap, served: Dialects| admit(headers, &body, &served, &callers, &shop);
    let (source, paths) = (SourcePolicy::loopback(), Paths::only(["/mcp"]));
    if let Err(rejection) = admit_head(&head, &source, &paths, &Dialects::all()) {
        assert!(rejection.status().is_client_error());
    }
    let by_all = admitted(&headers, Dialects::all());
    let by_modern = admitted(&headers, Dialects::modern());
    let by_legacy = admitted(&headers, Dialects::legacy());

    assert!(
        !matches!(by_legacy, Ok(Admitted::Modern { .. })),
        "a server without a modern era admits none of its requests"
    );
    for rejection in [&by_all, &by_modern, &by_legacy]
        .into_iter()
        .filter_map(|it| it.as_ref().err())
    {
        check_rejection(rejection, &body);
    }
    if matches!(by_all, Ok(Admitted::Legacy(_))) {
        assert!(
            by_modern.is_err(),
            "a server without a legacy era admits none of it"
        );
        return;
    }
    assert_eq!(
        by_all.is_ok(),
        by_modern.is_ok(),
        "modern is the same everywhere"
    );
    if let Ok(Admitted::Modern { request, .. }) = &by_all {
        let mut mirrored = HeaderMap::new();
        let message = Mirrored {
            version: request.caller.dialect.version,
            method: &request.method,
            params: Some(&request.params),
            name_member: headers::name_member(&request.method),
        };
        let plan = message.name().and_then(|name| shop.param_headers(&name));
        let plan = plan.filter(|_| request.method == "tools/call");
        headers::mirror(message, plan.as_deref(), &mut mirrored)
            .expect("what was admitted has headers");
        assert_eq!(admitted(&mirrored, Dialects::all()), by_all);
        for name in mirrored.keys() {
            let mut without = mirrored.clone();
            without.remove(name);
            assert!(
                admitted(&without, Dialects::all()).is_err(),
                "without {name}"
            );
        }
    }
}

/// Reads the input as a schedule of two muxes back to back, and checks their laws.
pub fn mux(input: &[u8]) {
    crate::mux::model::play(input);
}

/// All that a decoder says about a stream.
#[derive(Debug, PartialEq)]
struct Stream {
    events: Vec<Event>,
    error: Option<TooLarge>,
    last_event_id: Option<String>,
    retry: Option<u64>,
}

impl Stream {
    fn read(stream: &[u8], chunk_size: usize, limits: Limits) -> Self {
        let mut decoder = Decoder::new(limits);
        let mut events = Vec::new();
        let mut error = None;
        for chunk in stream.chunks(chunk_size) {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(next) = decoder.next() {
                assert_eq!(error, None, "an error is final");
                match next {
                    Ok(event) => events.push(event),
                    Err(too_large) => error = Some(too_large),
                }
            }
        }
        Self {
            events,
            error,
            last_event_id: decoder.last_event_id().map(str::to_owned),
            retry: decoder.retry(),
        }
    }
}

/// A server whose tool `sql` mirrors two arguments.
struct Shop {
    sql: Arc<ParamHeaders>,
}

impl Shop {
    fn new() -> Self {
        let schema = Json::from_valid(Bytes::from_static(
            br#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},
                "page":{"properties":{"size":{"type":"integer","x-mcp-header":"Size"}}}}}"#,
        ));
        Self {
            sql: Arc::new(ParamHeaders::read(&schema).expect("its annotations are good")),
        }
    }
}

impl Catalog for Shop {
    fn answers(&self, method: &str) -> bool {
        Dialect::LATEST.knows_request(method)
    }

    fn param_headers(&self, tool: &str) -> Option<Arc<ParamHeaders>> {
        (tool == "sql").then(|| self.sql.clone())
    }
}

fn sent(input: &[u8]) -> (Parts, Bytes) {
    let end = input.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = match end {
        Some(end) => (&input[..end], &input[end + 2..]),
        None => (&[][..], input),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut words = lines
        .next()
        .unwrap_or_default()
        .splitn(2, |byte| *byte == b' ');
    let (mut parts, ()) = ::http::Request::new(()).into_parts();
    let mut word = || words.next().unwrap_or_default();
    parts.method = Method::from_bytes(word()).unwrap_or(Method::POST);
    parts.uri = Uri::try_from(word()).unwrap_or_default();
    for line in lines.take(64) {
        let mut sides = line.splitn(2, |byte| *byte == b':');
        let mut side = || sides.next().unwrap_or_default();
        let name = HeaderName::from_bytes(side());
        let value = HeaderValue::from_bytes(side());
        if let (Ok(name), Ok(value)) = (name, value) {
            parts.headers.append(name, value);
        }
    }
    (parts, Bytes::copy_from_slice(body))
}

fn check_rejection(rejection: &Rejection, body: &Bytes) {
    assert!(rejection.status().is_client_error());
    let id: Option<RequestId> = match Message::decode(body) {
        Ok(Message::Request(request)) => Some(request.id),
        _ => return,
    };
    assert_eq!(
        rejection.id(),
        id.as_ref(),
        "an error names the request it is about"
    );
}

#[cfg(test)]
mod tests;
