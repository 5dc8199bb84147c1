//! The headers that mirror the body of a POST, so that intermediaries can route it without parsing JSON.
//!
//! ```text
//! client: body ── mirror ──▶ MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Param-*
//! server: headers and body ── check ──▶ they agree, or a HeaderMismatch
//! ```
//!
//! The body is authoritative; a header that differs from it is rejected.

mod param;
pub use param::{
    AnnotationDefect, InvalidAnnotation, MAX_ANNOTATED_SCHEMA, MAX_PARAM_HEADERS, ParamHeaders,
};

mod value;
pub use value::{UndecodableHeader, decode_value, encode_value};

use std::borrow::Cow;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use bowline_types::{ErrorCode, Json, RpcError};

use crate::era::Dialect;
use crate::json::Params;
use crate::message::FREQUENT_METHODS;
use crate::shortened;

/// The `MCP-Protocol-Version` header: the protocol version of the message.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The `Mcp-Method` header: the method of the message.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// The `Mcp-Name` header: the target of the method, such as a tool name.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The prefix `Mcp-Param-` of the headers that mirror tool arguments.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// Returns the member of a method's params that `Mcp-Name` mirrors.
#[must_use]
pub fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// Adds the headers that mirror a message to `out`.
///
/// `plan` is the plan of the called tool, if its schema is known.
///
/// # Errors
///
/// If a value cannot be encoded as a header. The message must not be sent then.
pub fn mirror(
    message: MirroredMessage<'_>,
    plan: Option<&ParamHeaders>,
    out: &mut HeaderMap,
) -> Result<(), UnencodableHeader> {
    // Known values are static, and need neither a check nor a copy.
    let version = match Dialect::of(message.version) {
        Some(dialect) => HeaderValue::from_static(dialect.version),
        None => literal(PROTOCOL_VERSION, message.version)?,
    };
    out.insert(PROTOCOL_VERSION, version);
    let mut frequent = FREQUENT_METHODS.iter();
    let method = match frequent.find(|name| **name == message.method) {
        Some(name) => HeaderValue::from_static(name),
        None => literal(METHOD, message.method)?,
    };
    out.insert(METHOD, method);
    if let Some(name) = message.name() {
        out.insert(NAME, encode_value(&name));
    }
    if let Some(plan) = plan {
        plan.mirror(message.arguments().as_ref(), out)?;
    }
    Ok(())
}

/// The parts of a message that headers mirror.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "callers build it field by field, and must handle every new field"
)]
pub struct MirroredMessage<'a> {
    /// The protocol version in `_meta`.
    pub version: &'a str,
    /// The method.
    pub method: &'a str,
    /// The params.
    pub params: Option<&'a Params>,
    /// The member of `params` that `Mcp-Name` mirrors: [`name_member`], unless a vendor's method declares its own.
    pub name_member: Option<&'a str>,
}

impl MirroredMessage<'_> {
    /// Returns the text that `Mcp-Name` mirrors. Returns `None` if the params lack it; the handler reports that.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        let member = self.member(self.name_member?)?;
        member.text().ok().map(Cow::into_owned)
    }

    fn arguments(&self) -> Option<Json> {
        self.member("arguments")
    }

    fn member(&self, name: &str) -> Option<Json> {
        self.params?.member(name).ok()?
    }
}

/// The mirror headers of a received message, collected in one pass, which is faster than a lookup of each name.
///
/// # Examples
///
/// ```
/// use bowline_core::http::headers::{METHOD, MirrorHeaders};
/// use http::{HeaderMap, HeaderValue};
///
/// let headers = HeaderMap::from_iter([(METHOD, HeaderValue::from_static("tools/list"))]);
/// let mirror = MirrorHeaders::read(&headers);
/// assert!(mirror.check_method("tools/list").is_ok());
/// assert!(mirror.check_name("add").is_err());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MirrorHeaders<'a> {
    version: MirrorValue<'a>,
    method: MirrorValue<'a>,
    name: MirrorValue<'a>,
}

/// The trimmed value of a header.
#[derive(Clone, Copy, Debug, Default)]
enum MirrorValue<'a> {
    #[default]
    Missing,
    Once(&'a [u8]),
    /// Rejected: an intermediary and the server could each pick a different value.
    Repeated,
}

impl<'a> MirrorHeaders<'a> {
    /// Collects the mirror headers.
    #[must_use]
    pub fn read(headers: &'a HeaderMap) -> Self {
        let mut mirror = Self::default();
        for (name, value) in headers {
            let own = match name.as_str() {
                "mcp-protocol-version" => &mut mirror.version,
                "mcp-method" => &mut mirror.method,
                "mcp-name" => &mut mirror.name,
                _ => continue,
            };
            *own = match own {
                MirrorValue::Missing => MirrorValue::Once(value::trim(value.as_bytes())),
                MirrorValue::Once(_) | MirrorValue::Repeated => MirrorValue::Repeated,
            };
        }
        mirror
    }

    /// Returns the value of `MCP-Protocol-Version`.
    ///
    /// # Errors
    ///
    /// If the header is repeated.
    pub fn version(&self) -> Result<Option<&'a [u8]>, HeaderMismatch> {
        self.version.optional(&PROTOCOL_VERSION)
    }

    /// Checks that `MCP-Protocol-Version` equals `version`.
    ///
    /// # Errors
    ///
    /// If it is missing, repeated or different.
    pub fn check_version(&self, version: &str) -> Result<(), HeaderMismatch> {
        self.version.check_literal(&PROTOCOL_VERSION, version)
    }

    /// Checks that `Mcp-Method` equals `method`, case-sensitively.
    ///
    /// # Errors
    ///
    /// If it is missing, repeated or different.
    pub fn check_method(&self, method: &str) -> Result<(), HeaderMismatch> {
        self.method.check_literal(&METHOD, method)
    }

    /// Checks that the decoded `Mcp-Name` equals `name`.
    ///
    /// # Errors
    ///
    /// If it is missing, repeated, undecodable or different.
    pub fn check_name(&self, name: &str) -> Result<(), HeaderMismatch> {
        let value = self.name.required(&NAME)?;
        let seen = decoded(&NAME, value)?;
        if seen != name {
            return Err(HeaderMismatch::differs(&NAME, &seen, name));
        }
        Ok(())
    }
}

impl<'a> MirrorValue<'a> {
    fn optional(self, name: &HeaderName) -> Result<Option<&'a [u8]>, HeaderMismatch> {
        match self {
            Self::Missing => Ok(None),
            Self::Once(value) => Ok(Some(value)),
            Self::Repeated => Err(HeaderMismatch::repeated(name)),
        }
    }

    fn required(self, name: &HeaderName) -> Result<&'a [u8], HeaderMismatch> {
        self.optional(name)?
            .ok_or_else(|| HeaderMismatch::missing(name))
    }

    fn check_literal(self, name: &HeaderName, body: &str) -> Result<(), HeaderMismatch> {
        let seen = self.required(name)?;
        if seen != body.as_bytes() {
            let seen = String::from_utf8_lossy(seen);
            return Err(HeaderMismatch::differs(name, &seen, body));
        }
        Ok(())
    }
}

/// Returns the trimmed value of a header that must not be repeated.
///
/// # Errors
///
/// If it is repeated: an intermediary and the server could each pick a different value.
pub fn single_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, HeaderMismatch> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value::trim(value.as_bytes()));
    match values.next() {
        None => Ok(value),
        Some(_) => Err(HeaderMismatch::repeated(name)),
    }
}

/// A header that is missing, repeated or undecodable, or that contradicts the body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{header}` {why}")]
#[non_exhaustive]
pub struct HeaderMismatch {
    /// The header.
    pub header: HeaderName,
    /// The defect, phrased to follow the header name.
    pub why: Cow<'static, str>,
}

impl HeaderMismatch {
    fn new(header: &HeaderName, why: impl Into<Cow<'static, str>>) -> Self {
        Self {
            header: header.clone(),
            why: why.into(),
        }
    }

    fn missing(header: &HeaderName) -> Self {
        Self::new(header, "is missing")
    }

    fn repeated(header: &HeaderName) -> Self {
        Self::new(header, "is repeated")
    }

    fn differs(header: &HeaderName, seen: &str, body: &str) -> Self {
        let (seen, body) = (shortened(seen), shortened(body));
        Self::new(header, format!("is {seen:?}, the body has {body:?}"))
    }
}

impl From<HeaderMismatch> for RpcError {
    fn from(mismatch: HeaderMismatch) -> Self {
        Self::new(ErrorCode::HEADER_MISMATCH, mismatch.to_string())
    }
}

/// A message cannot be sent because a header cannot represent a value of its body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to encode {value} as a value of header `{header}`")]
#[non_exhaustive]
pub struct UnencodableHeader {
    /// The header.
    pub header: HeaderName,
    /// The value that cannot be encoded.
    pub value: String,
}

/// Encodes the value of a header that has no base64 form.
fn literal(header: HeaderName, text: &str) -> Result<HeaderValue, UnencodableHeader> {
    value::plain(text).ok_or_else(|| UnencodableHeader {
        header,
        value: format!("{text:?}"),
    })
}

fn required<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], HeaderMismatch> {
    single_value(headers, name)?.ok_or_else(|| HeaderMismatch::missing(name))
}

fn decoded<'a>(name: &HeaderName, value: &'a [u8]) -> Result<Cow<'a, str>, HeaderMismatch> {
    decode_value(value).map_err(|why| HeaderMismatch::new(name, why.to_string()))
}

#[cfg(test)]
mod tests;
