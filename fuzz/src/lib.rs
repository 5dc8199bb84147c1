//! Properties that hold for every input, as functions that panic on a violation.
//!
//! The fuzz targets call them with the fuzzer's input; the tests call them with the seeds in `corpus/` and with random
//! mutations of these ([`check_seeds`]).

mod json;
pub use json::json;

mod json_generator;

mod mux;
pub use mux::mux;

mod recording;
pub use recording::recording;

mod seeds;
pub use seeds::check_seeds;

use std::sync::Arc;

use bowline_core::era::{Caller, CallerCache, Dialect, Dialects};
use bowline_core::http::admission::{
    AdmittedPost, HttpRejection, MethodCatalog, admit, admit_head,
};
use bowline_core::http::challenge::Challenge;
use bowline_core::http::headers::{self, MirroredMessage, ParamHeaders};
use bowline_core::http::paths::EndpointPaths;
use bowline_core::http::source_policy::SourcePolicy;
use bowline_core::sse::{self, Decoder, DecoderLimits, SseEvent, SseLimitExceeded};
use bowline_core::{Message, decode_batch, is_batch};
use bowline_types::{Json, RequestId};
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Uri};

/// Defines the program of a fuzz target. Without cargo-fuzz, which sets `cfg(fuzzing)`, it is empty, so that it
/// compiles without libFuzzer.
#[macro_export]
macro_rules! target {
    ($property:path) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|input: &[u8]| $property(input));
        #[cfg(not(fuzzing))]
        fn main() {}
    };
}

/// Decodes the input as a frame, and checks that the message survives encoding and decoding.
pub fn message(input: &[u8]) {
    let frame = Bytes::copy_from_slice(input);
    if is_batch(&frame) {
        let _ = decode_batch(&frame, 100);
    }
    let message = match Message::decode(&frame) {
        Ok(message) => message,
        Err(malformed) => match malformed.error_response() {
            Some(response) => response.into(),
            None => return,
        },
    };

    let written = message.to_frame();

    assert!(!written.contains(&b'\n') && !written.contains(&b'\r'));
    let again = Message::decode(&written).expect("an encoded message decodes");
    assert_eq!(again.to_frame(), written);
    if !input.contains(&b'\n') && !input.contains(&b'\r') {
        assert_eq!(again, message);
    }
}

/// Decodes the input as an event stream, and checks that chunk boundaries do not matter, that limits hold and that
/// the events survive encoding and decoding.
pub fn sse(input: &[u8]) {
    let small = DecoderLimits {
        line: 24,
        event: 40,
    };
    for limits in [small, DecoderLimits::default()] {
        let whole = DecodedStream::read(input, usize::MAX, limits);
        for size in [1, 2, 3, 7, 64] {
            assert_eq!(
                DecodedStream::read(input, size, limits),
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
        let again = DecodedStream::read(&written, 5, DecoderLimits::default());
        assert_eq!(again.events, whole.events);
    }
    let mut written = Vec::new();
    sse::encode_frame(input, &mut written);
    let events = DecodedStream::read(&written, usize::MAX, DecoderLimits::default()).events;
    assert_eq!(events.len(), 1, "a frame is encoded as one event");
}

/// Decodes the input as a header value, and its first two lines as a tool's schema and arguments.
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

/// Parses the input as method and path, headers, an empty line and a body, and sends this request to servers of both
/// eras, of the modern one and of the legacy one.
pub fn admission(input: &[u8]) {
    let (head, body) = parse_request(input);
    let headers = head.headers.clone();
    let catalog = SqlCatalog::new();
    // Shared by all requests: a cached caller must equal a decoded one.
    let caller_cache = CallerCache::default();
    let admitted = |headers: &HeaderMap, served: Dialects| {
        admit(headers, &body, &served, &caller_cache, &catalog)
    };
    let (source, paths) = (SourcePolicy::loopback(), EndpointPaths::only(["/mcp"]));
    if let Err(rejection) = admit_head(&head, &source, &paths, &Dialects::all()) {
        assert!(rejection.status().is_client_error());
    }
    let by_all = admitted(&headers, Dialects::all());
    let by_modern = admitted(&headers, Dialects::modern());
    let by_legacy = admitted(&headers, Dialects::legacy());

    assert!(
        !matches!(by_legacy, Ok(AdmittedPost::Modern { .. })),
        "a legacy-only server admitted a modern request"
    );
    for rejection in [&by_all, &by_modern, &by_legacy]
        .into_iter()
        .filter_map(|it| it.as_ref().err())
    {
        check_rejection(rejection, &body);
    }
    if matches!(by_all, Ok(AdmittedPost::Legacy(_))) {
        assert!(
            by_modern.is_err(),
            "a modern-only server admitted a legacy request"
        );
        return;
    }
    assert_eq!(
        by_all.is_ok(),
        by_modern.is_ok(),
        "serving legacy versions changed the admission of a modern request"
    );
    if let Ok(AdmittedPost::Modern { request, .. }) = &by_all {
        let mut mirrored = HeaderMap::new();
        let message = MirroredMessage {
            version: request.caller.dialect.version,
            method: &request.method,
            params: Some(&request.params),
            name_member: headers::name_member(&request.method),
        };
        let plan = message
            .name()
            .and_then(|name| catalog.param_headers(&name, &request.caller));
        let plan = plan.filter(|_| request.method == "tools/call");
        headers::mirror(message, plan.as_deref(), &mut mirrored)
            .expect("an admitted request can be mirrored in headers");
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

/// The complete output of a decoder for a stream.
#[derive(Debug, PartialEq)]
struct DecodedStream {
    events: Vec<SseEvent>,
    error: Option<SseLimitExceeded>,
    last_event_id: Option<String>,
    retry: Option<u64>,
}

impl DecodedStream {
    fn read(stream: &[u8], chunk_size: usize, limits: DecoderLimits) -> Self {
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

/// A catalog with a tool `sql` that mirrors two arguments in headers.
struct SqlCatalog {
    sql: Arc<ParamHeaders>,
}

impl SqlCatalog {
    fn new() -> Self {
        let schema = Json::from_valid(Bytes::from_static(
            br#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},
                "page":{"properties":{"size":{"type":"integer","x-mcp-header":"Size"}}}}}"#,
        ));
        Self {
            sql: Arc::new(ParamHeaders::read(&schema).expect("the annotations are valid")),
        }
    }
}

impl MethodCatalog for SqlCatalog {
    fn has_method(&self, method: &str) -> bool {
        Dialect::LATEST.knows_request(method)
    }

    fn param_headers(&self, tool: &str, _: &Caller) -> Option<Arc<ParamHeaders>> {
        (tool == "sql").then(|| self.sql.clone())
    }
}

fn parse_request(input: &[u8]) -> (Parts, Bytes) {
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
    let (mut parts, ()) = http::Request::new(()).into_parts();
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

fn check_rejection(rejection: &HttpRejection, body: &Bytes) {
    assert!(rejection.status().is_client_error());
    let id: Option<RequestId> = match Message::decode(body) {
        Ok(Message::Request(request)) => Some(request.id),
        _ => return,
    };
    assert_eq!(
        rejection.id(),
        id.as_ref(),
        "a rejection has the id of its request"
    );
}
