//! JSON-RPC messages, and their encoding and decoding.
//!
//! ```text
//! frame ── decode ──▶ Ok(Request | Response | Notification)     params and result are not decoded
//!               └───▶ Err(Malformed)                            the error, and the id it belongs to
//! ```
//!
//! The envelope is read in one pass that does not recurse. Params and results are slices of the frame.

use std::borrow::Cow;
use std::ops::Range;

use bowline_types::{ErrorCode, Json, RequestId, RpcError};
use bytes::Bytes;
use memchr::memchr2_iter;

use crate::json::check::{self, NotJson};
use crate::json::{MemberIndex, Params};

/// The result or error that ends an exchange.
pub type Outcome = Result<Json, RpcError>;

/// One JSON-RPC message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "JSON-RPC defines exactly these three"
)]
pub enum Message {
    /// A message that expects a response.
    Request(RawRequest),
    /// The response to a request.
    Response(Response),
    /// A message that expects no response.
    Notification(Notification),
}

/// A request in its wire form: received but not yet admitted, or stamped and ready to send.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "these are the members of a JSON-RPC request"
)]
pub struct RawRequest {
    /// The id that the response repeats.
    pub id: RequestId,
    /// The method name.
    pub method: Cow<'static, str>,
    /// An object, if present.
    pub params: Option<Params>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "these are the members of a JSON-RPC response"
)]
pub struct Response {
    /// The id of the request; absent on an error if the peer could not read that id.
    pub id: Option<RequestId>,
    /// The result or the error.
    pub outcome: Outcome,
}

/// A message without a response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "these are the members of a JSON-RPC notification"
)]
pub struct Notification {
    /// The method name.
    pub method: Cow<'static, str>,
    /// An object, if present.
    pub params: Option<Json>,
}

/// Why a frame is not a valid message: it was meant as a request or notification, or as a response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a malformed frame is either answered or settles a call"
)]
pub enum Malformed {
    /// A malformed request or notification, or a frame that is not JSON. It is answered with `error`.
    #[error("malformed request: {error}")]
    Request {
        /// The request's id, if it could be read.
        id: Option<RequestId>,
        /// The error to send to the peer.
        error: RpcError,
    },
    /// A malformed response. It is never answered: two peers could otherwise answer each other's errors for ever.
    #[error("malformed response: {why}")]
    Response {
        /// The id of the call that it settles, if it could be read.
        id: Option<RequestId>,
        /// The reason.
        why: &'static str,
    },
}

impl Message {
    /// Decodes one message.
    ///
    /// # Errors
    ///
    /// If `frame` is not exactly one JSON-RPC message. For a batch, use [`decode_batch`].
    pub fn decode(frame: &Bytes) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(frame)
            .map_err(|_| Malformed::unreadable(ErrorCode::PARSE_ERROR, "message is not UTF-8"))?;
        let object = RpcObject::read(text).map_err(|NotJson| {
            if check::is_json(text) {
                Malformed::unreadable(
                    ErrorCode::INVALID_REQUEST,
                    "expected one JSON-RPC object, not a batch",
                )
            } else {
                Malformed::unreadable(ErrorCode::PARSE_ERROR, "message is not JSON")
            }
        })?;
        object.classify(frame)
    }

    /// Appends the message to `out` as one line, without a line terminator.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        out.extend_from_slice(ENVELOPE_START);
        match self {
            Self::Request(request) => {
                push_id(out, Some(&request.id));
                push_method(out, &request.method, request.params.as_deref());
            }
            Self::Notification(notification) => {
                push_method(out, &notification.method, notification.params.as_ref());
            }
            Self::Response(response) => {
                push_id(out, response.id.as_ref());
                match &response.outcome {
                    Ok(result) => push_json(out, RESULT, result),
                    Err(error) => push_error(out, error),
                }
            }
        }
        out.push(b'}');
    }

    /// Returns the message as one line, without a line terminator.
    #[must_use]
    pub fn to_frame(&self) -> Bytes {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.into()
    }

    /// Returns the encoded length in bytes; a lower bound if strings need escapes.
    ///
    /// It is exact because a `Vec` whose length equals its capacity becomes `Bytes` without another allocation.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let members = match self {
            Self::Request(request) => {
                encoded_id_len(&request.id)
                    + encoded_method_len(&request.method, request.params.as_deref())
            }
            Self::Notification(notification) => return notification.encoded_len(),
            Self::Response(response) => {
                let id = response.id.as_ref().map_or(0, encoded_id_len);
                id + match &response.outcome {
                    Ok(result) => RESULT.len() + result.as_bytes().len(),
                    Err(error) => encoded_error_len(error),
                }
            }
        };
        ENVELOPE_START.len() + members + b"}".len()
    }

    /// Returns the number of bytes whose count the sender decides: text ids, method, params, result and error.
    pub(crate) fn variable_len(&self) -> usize {
        let id_len = |id: &RequestId| match id {
            RequestId::Number(_) => 0,
            RequestId::Text(text) => text.len(),
        };
        let params_len = |params: Option<&Json>| params.map_or(0, |params| params.as_bytes().len());
        match self {
            Self::Request(request) => {
                let params = params_len(request.params.as_deref());
                id_len(&request.id) + request.method.len() + params
            }
            Self::Notification(notification) => {
                notification.method.len() + params_len(notification.params.as_ref())
            }
            Self::Response(response) => {
                let id = response.id.as_ref().map_or(0, id_len);
                id + match &response.outcome {
                    Ok(result) => result.as_bytes().len(),
                    Err(error) => error.message.len() + params_len(error.data.as_ref()),
                }
            }
        }
    }
}

impl Response {
    /// Encodes a response with this result as three buffers, so that a long result is not copied.
    ///
    /// For transports with vectored writes. Line breaks in the result are kept, so the response may span lines.
    #[must_use]
    pub fn encode_vectored(id: &RequestId, result: Json) -> [Bytes; 3] {
        let mut head = Vec::with_capacity(ENVELOPE_START.len() + encoded_id_len(id) + RESULT.len());
        head.extend_from_slice(ENVELOPE_START);
        push_id(&mut head, Some(id));
        head.extend_from_slice(RESULT.as_bytes());
        [head.into(), result.into_bytes(), Bytes::from_static(b"}")]
    }
}

/// Returns whether `frame` is a batch, which only protocol version 2025-03-26 allows.
#[must_use]
pub fn is_batch(frame: &[u8]) -> bool {
    frame.trim_ascii_start().first() == Some(&b'[')
}

/// Decodes a batch of at most `max` messages. A malformed message does not affect the others.
///
/// The elements are counted before any of them is decoded.
///
/// # Errors
///
/// If `frame` is not a JSON array of at least one element, or has more than `max`.
pub fn decode_batch(
    frame: &Bytes,
    max: usize,
) -> Result<Vec<Result<Message, Malformed>>, BatchError> {
    let not_json = "message is not JSON";
    let unreadable = |code, why| BatchError::Malformed(Malformed::unreadable(code, why));
    let text = std::str::from_utf8(frame)
        .map_err(|_| unreadable(ErrorCode::PARSE_ERROR, "message is not UTF-8"))?;
    let elements = check::elements(text, max)
        .map_err(|NotJson| unreadable(ErrorCode::PARSE_ERROR, not_json))?
        .ok_or(BatchError::TooLong { max })?;
    if elements.is_empty() {
        return Err(unreadable(
            ErrorCode::INVALID_REQUEST,
            "batch must not be empty",
        ));
    }
    let message = |element: Range<usize>| match is_worth_copying(element.len(), frame.len()) {
        true => Message::decode(&Bytes::copy_from_slice(&frame[element])),
        false => Message::decode(&frame.slice(element)),
    };
    Ok(elements.into_iter().map(message).collect())
}

/// Why a batch was not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a batch is malformed or has too many messages"
)]
pub enum BatchError {
    /// The frame is not a JSON array, or an empty one.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The batch has more messages than the limit.
    #[error("batch exceeds the limit of {max} messages (`batch_messages`)")]
    TooLong {
        /// The limit.
        max: usize,
    },
}

/// Converts to the error that is sent to the peer.
impl From<BatchError> for Malformed {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Malformed(malformed) => malformed,
            too_long @ BatchError::TooLong { .. } => {
                Self::unreadable(ErrorCode::INVALID_REQUEST, &too_long.to_string())
            }
        }
    }
}

impl Malformed {
    /// Returns the error response to send, if there is one.
    #[must_use]
    pub fn error_response(self) -> Option<Response> {
        match self {
            Self::Request { id, error } => Some(Response {
                id,
                outcome: Err(error),
            }),
            Self::Response { .. } => None,
        }
    }

    fn unreadable(code: ErrorCode, message: &str) -> Self {
        Self::Request {
            id: None,
            error: RpcError::new(code, message),
        }
    }
}

impl From<RawRequest> for Message {
    fn from(request: RawRequest) -> Self {
        Self::Request(request)
    }
}

impl From<Response> for Message {
    fn from(response: Response) -> Self {
        Self::Response(response)
    }
}

impl From<Notification> for Message {
    fn from(notification: Notification) -> Self {
        Self::Notification(notification)
    }
}

impl Notification {
    /// Returns the encoded length in bytes; a lower bound if strings need escapes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let members = encoded_method_len(&self.method, self.params.as_ref());
        ENVELOPE_START.len() + members + b"}".len()
    }

    /// Creates a notification from encoded params.
    #[must_use]
    pub fn new(method: impl Into<Cow<'static, str>>, params: Option<Json>) -> Self {
        Self {
            method: method.into(),
            params,
        }
    }
}

/// The members of a JSON-RPC object, not yet validated. `None` is an absent member; `null` is present.
#[derive(Default)]
struct RpcObject<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    /// The positions of indexed members in the params.
    index: MemberIndex,
    /// A duplicate member, which JSON parsers resolve differently. A duplicate `id` takes precedence over others.
    duplicate: Option<RpcMember>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RpcMember {
    Id,
    Params,
    Other,
}

impl<'a> RpcObject<'a> {
    fn read(text: &'a str) -> Result<Self, NotJson> {
        let mut object = Self::default();
        let bytes = text.as_bytes();
        check::object(text, |name, at| {
            let index = &mut object.index;
            let (member, which) = if name.is("jsonrpc") {
                (&mut object.jsonrpc, RpcMember::Other)
            } else if name.is("id") {
                (&mut object.id, RpcMember::Id)
            } else if name.is("method") {
                (&mut object.method, RpcMember::Other)
            } else if name.is("params") {
                (&mut object.params, RpcMember::Params)
            } else if name.is("result") {
                (&mut object.result, RpcMember::Other)
            } else if name.is("error") {
                (&mut object.error, RpcMember::Other)
            } else {
                return check::value_end(bytes, at);
            };
            let end = if which == RpcMember::Params && bytes.get(at) == Some(&b'{') {
                params_end(bytes, at, index)?
            } else {
                check::value_end(bytes, at)?
            };
            if member.replace(&text[at..end]).is_some() && object.duplicate != Some(RpcMember::Id) {
                object.duplicate = Some(which);
            }
            Some(end)
        })?;
        Ok(object)
    }

    fn classify(self, frame: &Bytes) -> Result<Message, Malformed> {
        let is_response = self.method.is_none() && (self.result.is_some() || self.error.is_some());
        if is_response {
            self.response(frame)
        } else {
            self.request_or_notification(frame)
        }
    }

    /// Validates a request or a notification.
    fn request_or_notification(self, frame: &Bytes) -> Result<Message, Malformed> {
        let id = self.readable_id();
        let malformed = |message| Malformed::Request {
            id: id.clone(),
            error: RpcError::new(ErrorCode::INVALID_REQUEST, message),
        };
        if self.duplicate.is_some() {
            return Err(malformed("duplicate member"));
        }
        if !self.is_version_2_0() {
            return Err(malformed("`jsonrpc` must be \"2.0\""));
        }
        if self.id.is_some() && id.is_none() {
            return Err(malformed("`id` must be a string or an integer"));
        }
        let Some(method) = self.method.and_then(read_method) else {
            return Err(malformed("`method` must be a string"));
        };
        let params = self.params.map(|raw| slice_or_copy(frame, raw));
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(malformed("`params` must be an object"));
        }
        Ok(match id {
            Some(id) => RawRequest {
                id,
                method,
                params: params.map(|params| Params::with_index(params, self.index)),
            }
            .into(),
            None => Notification { method, params }.into(),
        })
    }

    fn response(&self, frame: &Bytes) -> Result<Message, Malformed> {
        let id = self.readable_id();
        let malformed = |why| Malformed::Response {
            id: id.clone(),
            why,
        };
        if self.duplicate.is_some() {
            return Err(malformed("duplicate member"));
        }
        if !self.is_version_2_0() {
            return Err(malformed("`jsonrpc` is not \"2.0\""));
        }
        let outcome = match (self.result, self.error) {
            (Some(result), None) => Ok(slice_or_copy(frame, result)),
            (None, Some(error)) => {
                Err(serde_json::from_str(error).map_err(|_| malformed("`error` is malformed"))?)
            }
            _ => return Err(malformed("both `result` and `error` are present")),
        };
        match (&id, self.id, &outcome) {
            (Some(_), ..) => {}
            // A peer that could not read the request's id sends an error without an id, or (older peers) with null.
            (None, None, Err(_)) => {}
            (None, Some("null"), Err(_)) => {}
            _ => return Err(malformed("`id` is not a string or an integer")),
        }
        Ok(Response { id, outcome }.into())
    }

    fn readable_id(&self) -> Option<RequestId> {
        // With two ids, an answer to either could settle the wrong call.
        if self.duplicate == Some(RpcMember::Id) {
            return None;
        }
        self.id.and_then(read_id)
    }

    fn is_version_2_0(&self) -> bool {
        self.jsonrpc.is_some_and(|raw| raw == r#""2.0""#)
    }
}

/// Returns a slice of the frame, or a copy if the slice would keep a much larger frame in memory.
fn slice_or_copy(frame: &Bytes, raw: &str) -> Json {
    let part = Json::from_checked(frame, raw);
    if is_worth_copying(raw.len(), frame.len()) {
        part.to_unshared()
    } else {
        part
    }
}

/// Returns the end of the params object at `start`, and records the positions of its indexed members.
fn params_end(text: &[u8], start: usize, index: &mut MemberIndex) -> Option<usize> {
    check::object_end(text, start, |name, at| {
        let end = check::value_end(text, at)?;
        index.record(&name, at - start..end - start);
        Some(end)
    })
}

/// Reads an id. Most are unsigned integers, which need no deserializer.
fn read_id(raw: &str) -> Option<RequestId> {
    let number = raw.starts_with(|first: char| first.is_ascii_digit());
    let number = number.then(|| raw.parse().ok()).flatten();
    number
        .map(RequestId::Number)
        .or_else(|| serde_json::from_str(raw).ok())
}

/// Reads a method. Most are frequent ones without escapes, which are neither decoded nor allocated.
fn read_method(raw: &str) -> Option<Cow<'static, str>> {
    let quoted = raw
        .strip_prefix('"')
        .and_then(|raw| raw.strip_suffix('"'))?;
    let frequent = FREQUENT_METHODS.iter().find(|name| **name == quoted);
    match frequent {
        Some(name) => Some(Cow::Borrowed(*name)),
        None => serde_json::from_str(raw).ok().map(Cow::Owned),
    }
}

fn push_id(out: &mut Vec<u8>, id: Option<&RequestId>) {
    let Some(id) = id else { return };
    out.extend_from_slice(ID.as_bytes());
    match id {
        RequestId::Number(number) => push_number(out, *number),
        RequestId::Text(text) => Json::push_string(out, text),
    }
}

fn encoded_id_len(id: &RequestId) -> usize {
    let value = match id {
        RequestId::Number(number) => encoded_number_len(*number),
        RequestId::Text(text) => encoded_text_len(text),
    };
    ID.len() + value
}

fn push_method(out: &mut Vec<u8>, method: &str, params: Option<&Json>) {
    out.extend_from_slice(METHOD.as_bytes());
    Json::push_string(out, method);
    if let Some(params) = params {
        push_json(out, PARAMS, params);
    }
}

fn encoded_method_len(method: &str, params: Option<&Json>) -> usize {
    let params = params.map_or(0, |params| PARAMS.len() + params.as_bytes().len());
    METHOD.len() + encoded_text_len(method) + params
}

fn push_error(out: &mut Vec<u8>, error: &RpcError) {
    out.extend_from_slice(ERROR.as_bytes());
    push_number(out, error.code.0);
    out.extend_from_slice(MESSAGE.as_bytes());
    Json::push_string(out, &error.message);
    if let Some(data) = &error.data {
        push_json(out, DATA, data);
    }
    out.push(b'}');
}

fn encoded_error_len(error: &RpcError) -> usize {
    let data = error.data.as_ref();
    let data = data.map_or(0, |data| DATA.len() + data.as_bytes().len());
    let code = ERROR.len() + encoded_number_len(error.code.0);
    code + MESSAGE.len() + encoded_text_len(&error.message) + data + b"}".len()
}

/// Appends JSON with its line breaks replaced by spaces, because a frame is one line. In valid JSON, line breaks occur
/// only between tokens.
fn push_json(out: &mut Vec<u8>, before: &str, json: &Json) {
    out.extend_from_slice(before.as_bytes());
    let start = out.len();
    out.extend_from_slice(json.as_bytes());
    for at in memchr2_iter(b'\n', b'\r', json.as_bytes()) {
        out[start + at] = b' ';
    }
}

fn push_number(out: &mut Vec<u8>, number: i64) {
    serde_json::to_writer(out, &number).expect("writing an integer to a `Vec` does not fail");
}

fn encoded_number_len(number: i64) -> usize {
    let digits = number.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
    usize::from(number < 0) + digits as usize
}

fn encoded_text_len(text: &str) -> usize {
    text.len() + "\"\"".len()
}

/// Returns whether a part is copied: it is short compared to its frame, which a slice would keep in memory.
fn is_worth_copying(part: usize, frame: usize) -> bool {
    frame > 2 * part + SMALL_FRAME
}

/// Parts of frames up to about this size are not copied.
const SMALL_FRAME: usize = 4096;

const ENVELOPE_START: &[u8] = br#"{"jsonrpc":"2.0""#;
const ID: &str = r#","id":"#;
const METHOD: &str = r#","method":"#;
const PARAMS: &str = r#","params":"#;
const RESULT: &str = r#","result":"#;
const ERROR: &str = r#","error":{"code":"#;
const MESSAGE: &str = r#","message":"#;
const DATA: &str = r#","data":"#;

/// Frequent methods, whose names are decoded without an allocation.
pub(crate) const FREQUENT_METHODS: [&str; 6] = [
    "tools/call",
    "tools/list",
    "resources/read",
    "prompts/get",
    "notifications/progress",
    "notifications/cancelled",
];

#[cfg(test)]
mod tests;
