//! One JSON-RPC message: its parts, and its way from and to text.
//!
//! ```text
//! frame ── decode ──▶ Ok(Request | Response | Notification)     params and result stay unread
//!               └───▶ Err(Malformed)                            which error, and for which id
//! ```
//!
//! The envelope is read in one flat pass. Params and results are slices of the frame.

use std::borrow::Cow;
use std::ops::Range;

use bowline_types::{ErrorCode, Json, RequestId, RpcError};
use bytes::Bytes;
use memchr::memchr2;
use serde::Deserialize;

use crate::json::check::{self, NotJson};
use crate::json::{Known, Params};

/// What an exchange ends with.
pub type Outcome = Result<Json, RpcError>;

/// One JSON-RPC message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "JSON-RPC has these three and no other"
)]
pub enum Message {
    /// Asks for an answer.
    Request(RawRequest),
    /// Answers a request.
    Response(Response),
    /// Expects no answer.
    Notification(Notification),
}

/// A request as it travels, before it was admitted or after it was stamped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "these are the members of a JSON-RPC request"
)]
pub struct RawRequest {
    /// Names the request in its answer.
    pub id: RequestId,
    /// What is asked for.
    pub method: Cow<'static, str>,
    /// An object, if present.
    pub params: Option<Params>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "these are the members of a JSON-RPC response"
)]
pub struct Response {
    /// The id of the request it answers; absent on an error whose request could not be read.
    pub id: Option<RequestId>,
    /// The result or the error.
    pub outcome: Outcome,
}

/// A message that nobody answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "these are the members of a JSON-RPC notification"
)]
pub struct Notification {
    /// What happened.
    pub method: Cow<'static, str>,
    /// An object, if present.
    pub params: Option<Json>,
}

/// A frame that is no message, told apart by whom it concerns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a frame is meant as a question or as an answer"
)]
pub enum Malformed {
    /// Meant as a request or notification, or unreadable: the sender is owed `error`.
    #[error("malformed request: {error}")]
    Request {
        /// The request's id, if that much could be read.
        id: Option<RequestId>,
        /// What the sender is told.
        error: RpcError,
    },
    /// Meant as a response. It is never answered, for that could go on for ever.
    #[error("malformed response: {why}")]
    Response {
        /// The call it settles, if that much could be read.
        id: Option<RequestId>,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    ///
    /// If `frame` is not exactly one JSON-RPC message. A batch is not: see [`decode_batch`].
    pub fn decode(frame: &Bytes) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(frame)
            .map_err(|_| Malformed::unreadable(ErrorCode::PARSE_ERROR, "the frame is not UTF-8"))?;
        let envelope = Envelope::read(text).map_err(|NotJson| {
            if check::is_json(text) {
                Malformed::unreadable(ErrorCode::INVALID_REQUEST, "a message is one JSON object")
            } else {
                Malformed::unreadable(ErrorCode::PARSE_ERROR, "the frame is not JSON")
            }
        })?;
        envelope.classify(frame)
    }

    /// Appends the message to `out` as one line without its end.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.room());
        out.extend_from_slice(OPENING);
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

    /// The message as one line without its end.
    #[must_use]
    pub fn to_frame(&self) -> Bytes {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.into()
    }

    /// How many bytes it takes, unless something in it has to be escaped.
    ///
    /// It is worth being exact: a `Vec` that is full becomes `Bytes` without another allocation.
    pub(crate) fn room(&self) -> usize {
        let members = match self {
            Self::Request(request) => {
                id_room(&request.id) + method_room(&request.method, request.params.as_deref())
            }
            Self::Notification(notification) => return notification.size(),
            Self::Response(response) => {
                let id = response.id.as_ref().map_or(0, id_room);
                id + match &response.outcome {
                    Ok(result) => RESULT.len() + result.as_bytes().len(),
                    Err(error) => error_room(error),
                }
            }
        };
        OPENING.len() + members + b"}".len()
    }

    /// How many bytes of it are not the same in every message.
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
            Self::Notification(told) => told.method.len() + params_len(told.params.as_ref()),
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
    /// The response with this result in pieces, for a wire that takes several at once and cares for no line
    /// breaks: a long result is then not copied.
    #[must_use]
    pub fn in_pieces(id: &RequestId, result: Json) -> [Bytes; 3] {
        let mut head = Vec::with_capacity(OPENING.len() + id_room(id) + RESULT.len());
        head.extend_from_slice(OPENING);
        push_id(&mut head, Some(id));
        head.extend_from_slice(RESULT.as_bytes());
        [head.into(), result.into_bytes(), Bytes::from_static(b"}")]
    }
}

/// Whether `frame` is a batch, which only revision 2025-03-26 knows.
#[must_use]
pub fn is_batch(frame: &[u8]) -> bool {
    frame.trim_ascii_start().first() == Some(&b'[')
}

/// Decodes a batch of at most `max` messages. A malformed message costs only itself.
///
/// The elements are counted while they are told apart, before any of them is decoded.
///
/// # Errors
///
/// If `frame` is not a JSON array of at least one element, or has more than `max`.
pub fn decode_batch(
    frame: &Bytes,
    max: usize,
) -> Result<Vec<Result<Message, Malformed>>, BatchError> {
    let not_json = "the frame is not JSON";
    let unreadable = |code, why| BatchError::Malformed(Malformed::unreadable(code, why));
    let text = std::str::from_utf8(frame)
        .map_err(|_| unreadable(ErrorCode::PARSE_ERROR, "the frame is not UTF-8"))?;
    let elements = check::elements(text, max)
        .map_err(|NotJson| unreadable(ErrorCode::PARSE_ERROR, not_json))?
        .ok_or(BatchError::TooLong { max })?;
    if elements.is_empty() {
        return Err(unreadable(
            ErrorCode::INVALID_REQUEST,
            "a batch must not be empty",
        ));
    }
    // Each message stands for itself: a short one must not keep the whole batch alive.
    let message = |element: Range<usize>| match frame.len() > 2 * element.len() + SMALL_FRAME {
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
    /// It is not a batch.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It has more messages than the limit allows.
    #[error("batch exceeds the limit of {max} messages (`batch_messages`)")]
    TooLong {
        /// The limit.
        max: usize,
    },
}

/// What the sender of a batch is told.
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
    /// What the sender should be told, if anything.
    #[must_use]
    pub fn answer(self) -> Option<Response> {
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
    /// How many bytes it takes on the wire, unless something in it has to be escaped.
    #[must_use]
    pub fn size(&self) -> usize {
        let members = method_room(&self.method, self.params.as_ref());
        OPENING.len() + members + b"}".len()
    }

    /// A notification with params that are already JSON.
    #[must_use]
    pub fn new(method: impl Into<Cow<'static, str>>, params: Option<Json>) -> Self {
        Self {
            method: method.into(),
            params,
        }
    }
}

/// The members of a JSON-RPC object, not yet judged. `None` is absent; the text `null` is present.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    /// What was found in the params.
    known: Known,
    /// A member that stands twice; which of the two counts, nobody can say.
    repeated: Option<Member>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Id,
    Params,
    Other,
}

impl<'a> Envelope<'a> {
    fn read(text: &'a str) -> Result<Self, NotJson> {
        let mut envelope = Self::default();
        let bytes = text.as_bytes();
        check::object(text, |name, at| {
            let known = &mut envelope.known;
            let (member, which) = if name.is("jsonrpc") {
                (&mut envelope.jsonrpc, Member::Other)
            } else if name.is("id") {
                (&mut envelope.id, Member::Id)
            } else if name.is("method") {
                (&mut envelope.method, Member::Other)
            } else if name.is("params") {
                (&mut envelope.params, Member::Params)
            } else if name.is("result") {
                (&mut envelope.result, Member::Other)
            } else if name.is("error") {
                (&mut envelope.error, Member::Other)
            } else {
                return check::value_end(bytes, at);
            };
            let end = if which == Member::Params && bytes.get(at) == Some(&b'{') {
                params_end(bytes, at, known)?
            } else {
                check::value_end(bytes, at)?
            };
            if member.replace(&text[at..end]).is_some() && envelope.repeated != Some(Member::Id) {
                envelope.repeated = Some(which);
            }
            Some(end)
        })?;
        Ok(envelope)
    }

    fn classify(self, frame: &Bytes) -> Result<Message, Malformed> {
        let is_answer = self.method.is_none() && (self.result.is_some() || self.error.is_some());
        if is_answer {
            self.response(frame)
        } else {
            self.question(frame)
        }
    }

    /// Reads a request or a notification.
    fn question(self, frame: &Bytes) -> Result<Message, Malformed> {
        let id = self.readable_id();
        let refuse = |message| Malformed::Request {
            id: id.clone(),
            error: RpcError::new(ErrorCode::INVALID_REQUEST, message),
        };
        if self.repeated.is_some() {
            return Err(refuse("a member stands twice"));
        }
        if !self.speaks_2_0() {
            return Err(refuse("`jsonrpc` must be \"2.0\""));
        }
        if self.id.is_some() && id.is_none() {
            return Err(refuse("`id` must be a string or a whole number"));
        }
        let method: Cow<'_, str> = match self.method.map(serde_json::from_str) {
            Some(Ok(Name(name))) => name,
            _ => return Err(refuse("`method` must be a string")),
        };
        let params = self.params.map(|raw| part(frame, raw));
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err(refuse("`params` must be an object"));
        }
        let frequent = FREQUENT.iter().find(|name| **name == method);
        let method = match frequent {
            Some(name) => Cow::Borrowed(*name),
            None => Cow::Owned(method.into_owned()),
        };
        Ok(match id {
            Some(id) => RawRequest {
                id,
                method,
                params: params.map(|params| Params::split(params, self.known)),
            }
            .into(),
            None => Notification { method, params }.into(),
        })
    }

    fn response(&self, frame: &Bytes) -> Result<Message, Malformed> {
        let id = self.readable_id();
        let refuse = |why| Malformed::Response {
            id: id.clone(),
            why,
        };
        if self.repeated.is_some() {
            return Err(refuse("a member stands twice"));
        }
        if !self.speaks_2_0() {
            return Err(refuse("`jsonrpc` is not \"2.0\""));
        }
        let outcome =
            match (self.result, self.error) {
                (Some(result), None) => Ok(part(frame, result)),
                (None, Some(error)) => Err(serde_json::from_str(error)
                    .map_err(|_| refuse("`error` has the wrong shape"))?),
                _ => return Err(refuse("it has both a result and an error")),
            };
        match (&id, self.id, &outcome) {
            (Some(_), ..) => {}
            // An error about a request whose id the peer could not read has none, or (older peers) null.
            (None, None, Err(_)) => {}
            (None, Some("null"), Err(_)) => {}
            _ => return Err(refuse("`id` is not a string or a whole number")),
        }
        Ok(Response { id, outcome }.into())
    }

    fn readable_id(&self) -> Option<RequestId> {
        if self.repeated == Some(Member::Id) {
            return None;
        }
        self.id.and_then(|raw| serde_json::from_str(raw).ok())
    }

    fn speaks_2_0(&self) -> bool {
        self.jsonrpc.is_some_and(|raw| raw == r#""2.0""#)
    }
}

/// A part of a frame, which keeps the frame alive; copied if that would keep far more than the part.
fn part(frame: &Bytes, raw: &str) -> Json {
    let part = Json::from_checked(frame, raw);
    if frame.len() > 2 * raw.len() + SMALL_FRAME {
        part.to_unshared()
    } else {
        part
    }
}

/// Where the params end that begin at `at`. Whoever checks them finds their members on the way.
fn params_end(text: &[u8], start: usize, known: &mut Known) -> Option<usize> {
    check::object_end(text, start, |name, at| {
        let end = check::value_end(text, at)?;
        known.note(&name, at - start..end - start);
        Some(end)
    })
}

/// The text of a method, borrowed unless it is written with escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

fn push_id(out: &mut Vec<u8>, id: Option<&RequestId>) {
    let Some(id) = id else { return };
    out.extend_from_slice(ID.as_bytes());
    match id {
        RequestId::Number(number) => push_number(out, *number),
        RequestId::Text(text) => Json::push_text(out, text),
    }
}

fn id_room(id: &RequestId) -> usize {
    let value = match id {
        RequestId::Number(number) => number_room(*number),
        RequestId::Text(text) => text_room(text),
    };
    ID.len() + value
}

fn push_method(out: &mut Vec<u8>, method: &str, params: Option<&Json>) {
    out.extend_from_slice(METHOD.as_bytes());
    Json::push_text(out, method);
    if let Some(params) = params {
        push_json(out, PARAMS, params);
    }
}

fn method_room(method: &str, params: Option<&Json>) -> usize {
    let params = params.map_or(0, |params| PARAMS.len() + params.as_bytes().len());
    METHOD.len() + text_room(method) + params
}

fn push_error(out: &mut Vec<u8>, error: &RpcError) {
    out.extend_from_slice(ERROR.as_bytes());
    push_number(out, error.code.0);
    out.extend_from_slice(MESSAGE.as_bytes());
    Json::push_text(out, &error.message);
    if let Some(data) = &error.data {
        push_json(out, DATA, data);
    }
    out.push(b'}');
}

fn error_room(error: &RpcError) -> usize {
    let data = error.data.as_ref();
    let data = data.map_or(0, |data| DATA.len() + data.as_bytes().len());
    let code = ERROR.len() + number_room(error.code.0);
    code + MESSAGE.len() + text_room(&error.message) + data + b"}".len()
}

/// Line breaks in JSON text stand only between tokens, where a blank says the same; a frame is one line.
fn push_json(out: &mut Vec<u8>, before: &str, json: &Json) {
    out.extend_from_slice(before.as_bytes());
    let mut start = out.len();
    out.extend_from_slice(json.as_bytes());
    while let Some(at) = memchr2(b'\n', b'\r', &out[start..]) {
        out[start + at] = b' ';
        start += at + 1;
    }
}

fn push_number(out: &mut Vec<u8>, number: i64) {
    serde_json::to_writer(out, &number).expect("numbers have a JSON form, and a `Vec` takes it");
}

fn number_room(number: i64) -> usize {
    let digits = number.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
    usize::from(number < 0) + digits as usize
}

fn text_room(text: &str) -> usize {
    text.len() + "\"\"".len()
}

/// A frame that is not worth copying a part out of.
const SMALL_FRAME: usize = 4096;

const OPENING: &[u8] = br#"{"jsonrpc":"2.0""#;
const ID: &str = r#","id":"#;
const METHOD: &str = r#","method":"#;
const PARAMS: &str = r#","params":"#;
const RESULT: &str = r#","result":"#;
const ERROR: &str = r#","error":{"code":"#;
const MESSAGE: &str = r#","message":"#;
const DATA: &str = r#","data":"#;

/// Methods that are worth knowing by name, which spares them an allocation.
const FREQUENT: [&str; 6] = [
    "tools/call",
    "tools/list",
    "resources/read",
    "prompts/get",
    "notifications/progress",
    "notifications/cancelled",
];

#[cfg(test)]
mod tests;
