//! The headers that mirror a message's body, so that intermediaries need not read it.
//!
//! ```text
//! client: body ── mirror ──▶ MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Param-*
//! server: headers and body ── check ──▶ they agree, or a Mismatch
//! ```
//!
//! The body decides what a message means; a header that says something else is refused.

mod param;
pub use param::{BadAnnotation, MAX_ANNOTATED_SCHEMA, MAX_PARAM_HEADERS, ParamHeaders, WhyBad};

mod value;
pub use value::{Undecodable, decode_value, encode_value};

use std::borrow::Cow;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use bowline_types::{ErrorCode, Json, RpcError};

use crate::json::pick;
use crate::shortened;

/// The protocol version of the message: `MCP-Protocol-Version`.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The method of the message: `Mcp-Method`.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// What the method is applied to, such as a tool's name: `Mcp-Name`.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What the names of headers that mirror a tool's arguments begin with: `Mcp-Param-`.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// The member of a method's params that `Mcp-Name` mirrors, if there is one.
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
/// `plan` is that of the tool that is called, if its schema is known.
///
/// # Errors
///
/// If the message has no faithful form as headers; nothing should be sent then.
pub fn mirror(
    message: Mirrored<'_>,
    plan: Option<&ParamHeaders>,
    out: &mut HeaderMap,
) -> Result<(), Unmirrorable> {
    out.insert(
        PROTOCOL_VERSION,
        literal(PROTOCOL_VERSION, message.version)?,
    );
    out.insert(METHOD, literal(METHOD, message.method)?);
    if let Some(name) = message.name() {
        out.insert(NAME, encode_value(&name));
    }
    if let Some(plan) = plan {
        plan.mirror(message.arguments().as_ref(), out)?;
    }
    Ok(())
}

/// The parts of a message that have headers.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_structs,
    reason = "made by callers, field by field, and a new field must be thought of by each"
)]
pub struct Mirrored<'a> {
    /// The protocol version in its `_meta`.
    pub version: &'a str,
    /// The method.
    pub method: &'a str,
    /// The params.
    pub params: Option<&'a Json>,
    /// The member of `params` that `Mcp-Name` mirrors: what [`name_member`] says, unless a vendor's method
    /// declares its own.
    pub name_member: Option<&'a str>,
}

impl Mirrored<'_> {
    /// The text that `Mcp-Name` mirrors. Params that lack it are wrong, which is not for a header to say.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        let member = self.member(self.name_member?)?;
        member.decode().ok()
    }

    fn arguments(&self) -> Option<Json> {
        self.member("arguments")
    }

    fn member(&self, name: &str) -> Option<Json> {
        let [member] = pick(self.params?, [name]).ok()?;
        member
    }
}

/// The headers of a received message that mirror its body, found in one pass: to look up each by its name takes longer.
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
    version: Value<'a>,
    method: Value<'a>,
    name: Value<'a>,
}

/// The value of a header, without the blanks around it.
#[derive(Clone, Copy, Debug, Default)]
enum Value<'a> {
    #[default]
    Missing,
    Once(&'a [u8]),
    /// Each reader could pick another one.
    Repeated,
}

impl<'a> MirrorHeaders<'a> {
    /// Finds the headers that mirror a message.
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
                Value::Missing => Value::Once(value::trim(value.as_bytes())),
                Value::Once(_) | Value::Repeated => Value::Repeated,
            };
        }
        mirror
    }

    /// The value of `MCP-Protocol-Version`, if there is one.
    ///
    /// # Errors
    ///
    /// If it is repeated.
    pub fn version(&self) -> Result<Option<&'a [u8]>, Mismatch> {
        self.version.single(&PROTOCOL_VERSION)
    }

    /// Checks that `MCP-Protocol-Version` is there and says `version`.
    ///
    /// # Errors
    ///
    /// If it is missing, repeated, or says something else.
    pub fn check_version(&self, version: &str) -> Result<(), Mismatch> {
        self.version.check_literal(&PROTOCOL_VERSION, version)
    }

    /// Checks that `Mcp-Method` is there and says `method`, in the same case.
    ///
    /// # Errors
    ///
    /// If it is missing, repeated, or says something else.
    pub fn check_method(&self, method: &str) -> Result<(), Mismatch> {
        self.method.check_literal(&METHOD, method)
    }

    /// Checks that `Mcp-Name` is there and, decoded, says `name`, byte for byte.
    ///
    /// # Errors
    ///
    /// If it is missing, repeated, undecodable, or says something else.
    pub fn check_name(&self, name: &str) -> Result<(), Mismatch> {
        let value = self.name.required(&NAME)?;
        let seen = decoded(&NAME, value)?;
        if seen != name {
            return Err(Mismatch::differs(&NAME, &seen, name));
        }
        Ok(())
    }
}

impl<'a> Value<'a> {
    fn single(self, name: &HeaderName) -> Result<Option<&'a [u8]>, Mismatch> {
        match self {
            Self::Missing => Ok(None),
            Self::Once(value) => Ok(Some(value)),
            Self::Repeated => Err(Mismatch::repeated(name)),
        }
    }

    fn required(self, name: &HeaderName) -> Result<&'a [u8], Mismatch> {
        self.single(name)?.ok_or_else(|| Mismatch::missing(name))
    }

    fn check_literal(self, name: &HeaderName, body: &str) -> Result<(), Mismatch> {
        let seen = self.required(name)?;
        if seen != body.as_bytes() {
            let seen = String::from_utf8_lossy(seen);
            return Err(Mismatch::differs(name, &seen, body));
        }
        Ok(())
    }
}

/// The value of a header that may stand at most once, without the blanks around it.
///
/// # Errors
///
/// If it stands twice: each reader could pick another one.
pub fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Mismatch> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value::trim(value.as_bytes()));
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Mismatch::repeated(name)),
    }
}

/// A header that is missing, unreadable, or contradicts the body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{header}` {why}")]
#[non_exhaustive]
pub struct Mismatch {
    /// The header.
    pub header: HeaderName,
    /// What is wrong with it.
    pub why: Cow<'static, str>,
}

impl Mismatch {
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
        Self::new(header, "stands more than once")
    }

    fn differs(header: &HeaderName, seen: &str, body: &str) -> Self {
        let (seen, body) = (shortened(seen), shortened(body));
        Self::new(header, format!("says {seen:?}, the body {body:?}"))
    }
}

impl From<Mismatch> for RpcError {
    fn from(mismatch: Mismatch) -> Self {
        Self::new(ErrorCode::HEADER_MISMATCH, mismatch.to_string())
    }
}

/// A message that cannot be sent because a header could not say what its body says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{header}` cannot say {value}")]
#[non_exhaustive]
pub struct Unmirrorable {
    /// The header.
    pub header: HeaderName,
    /// What it would have to say.
    pub value: String,
}

/// A value without an encoded form: it is plain, or it cannot be sent.
fn literal(header: HeaderName, text: &str) -> Result<HeaderValue, Unmirrorable> {
    value::plain(text).ok_or_else(|| Unmirrorable {
        header,
        value: format!("{text:?}"),
    })
}

fn required<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], Mismatch> {
    single(headers, name)?.ok_or_else(|| Mismatch::missing(name))
}

fn decoded<'a>(name: &HeaderName, value: &'a [u8]) -> Result<Cow<'a, str>, Mismatch> {
    decode_value(value).map_err(|why| Mismatch::new(name, why.to_string()))
}

#[cfg(test)]
mod tests;
