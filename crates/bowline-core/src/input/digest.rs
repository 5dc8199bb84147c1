//! Digests by which a server recognizes a request, or an input request, in a later round.
//!
//! A client may serialize its retry differently. The digest therefore covers a canonical form of the JSON: sorted
//! members, no white space.

use std::fmt;

use bowline_types::Json;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{InputKind, member};
use crate::json::Object;

/// The SHA-256 digest of a request or of an input request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Returns the digest of a request, which is the same in all of its rounds.
///
/// It excludes the members that differ between rounds: `inputResponses`, `requestState` and `_meta`. A server binds
/// the encrypted request state to it, so that a client cannot use the state of one request for another.
///
/// # Examples
///
/// ```
/// use bowline_core::input::request_digest;
/// use bowline_types::Json;
///
/// let first = Json::parse(r#"{"name":"pay","arguments":{"to":"x","sum":1}}"#)?;
/// let retry = Json::parse(r#"{"arguments":{"sum":1,"to":"x"},"name":"pay","requestState":"s"}"#)?;
/// let other = Json::parse(r#"{"name":"pay","arguments":{"to":"y","sum":1}}"#)?;
///
/// let digest = request_digest("tools/call", Some(&first));
/// assert_eq!(digest, request_digest("tools/call", Some(&retry)));
/// assert_ne!(digest, request_digest("tools/call", Some(&other)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn request_digest(method: &str, params: Option<&Json>) -> Digest {
    let mut text = domain_separator("request", method);
    let object = params.map(Object::read).and_then(Result::ok);
    let mut members: Vec<_> = object
        .iter()
        .flat_map(Object::iter)
        .filter(|(name, _)| !VARYING.contains(name))
        .collect();
    members.sort_by_key(|&(name, _)| name);
    for (name, value) in members {
        push_text(&mut text, name);
        push_json(&mut text, value);
    }
    Digest::of(&text)
}

impl Digest {
    /// Returns the 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn of_input_request(kind: InputKind, params: Option<&Json>) -> Self {
        let mut text = domain_separator("question", kind.method());
        if let Some(params) = params {
            push_json(&mut text, params);
        }
        Self::of(&text)
    }

    fn of(text: &[u8]) -> Self {
        Self(Sha256::digest(text).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        from_hex(&text)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("expected 64 hexadecimal digits"))
    }
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != bytes.len() || !rest.is_empty() {
        return None;
    }
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        let digit = |digit| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(high)? * 16 + digit(low)?).ok()?;
    }
    Some(bytes)
}

/// Starts the digested bytes with a domain separator, so that a request and an input request never collide.
fn domain_separator(what: &str, method: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    push_text(&mut text, what);
    push_text(&mut text, method);
    text
}

/// Appends the canonical form of `json`, or its text if it cannot be decoded, for example because of its depth.
fn push_json(out: &mut Vec<u8>, json: &Json) {
    match json.decode::<Value>() {
        Ok(value) => push_value(out, &value),
        Err(_) => {
            out.push(b'!');
            out.extend_from_slice(json.as_bytes());
        }
    }
}

/// Recursion is bounded: `serde_json` limits the depth to 127.
fn push_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|&(name, _)| name);
            out.push(b'{');
            for (name, value) in members {
                push_text(out, name);
                push_value(out, value);
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for item in items {
                push_value(out, item);
                out.push(b',');
            }
            out.push(b']');
        }
        Value::String(text) => push_text(out, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            out.extend_from_slice(value.to_string().as_bytes());
        }
    }
}

/// Appends the text after its length, so that no two lists of texts have the same bytes. The length is a `u64` on every
/// machine, because the next round may run on another.
fn push_text(out: &mut Vec<u8>, text: &str) {
    let length = text.len() as u64;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

const VARYING: [&str; 3] = [member::INPUT_RESPONSES, member::REQUEST_STATE, member::META];

#[cfg(test)]
mod tests {
    use super::*;

    fn input_request(params: &str) -> Digest {
        let params = Json::parse(params.to_owned()).unwrap();
        Digest::of_input_request(InputKind::Elicitation, Some(&params))
    }

    fn request(params: &str) -> Digest {
        request_digest("tools/call", Some(&Json::parse(params.to_owned()).unwrap()))
    }

    #[test]
    fn spelling_does_not_matter() {
        let plain = r#"{"a":[1,{"x":null,"y":"é"}],"b":true}"#;
        let odd = r#"{ "b" : true, "\u0061": [ 1, {"y":"\u00e9", "x":null} ] }"#;

        assert_eq!(input_request(plain), input_request(odd));
        assert_eq!(request(plain), request(odd));
    }

    #[test]
    fn the_text_of_a_digest_is_its_bytes_in_hex() {
        let digest = request("{}");

        let hex: String = digest.as_bytes().map(|byte| format!("{byte:02x}")).concat();

        assert_eq!(digest.to_string(), hex);
        assert_ne!(request(r#"{"name":"t"}"#).as_bytes(), digest.as_bytes());
    }

    #[test]
    fn members_that_vary_between_rounds_are_excluded_only_at_the_top_level() {
        let first = request(r#"{"name":"t","arguments":{}}"#);
        let retry =
            r#"{"_meta":{"p":1},"name":"t","arguments":{},"inputResponses":{},"requestState":""}"#;
        let deep = r#"{"name":"t","arguments":{"requestState":""}}"#;

        assert_eq!(request(retry), first);
        assert_ne!(request(deep), first);
    }

    #[test]
    fn different_things_have_different_digests() {
        let texts = [
            "{}",
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":[1]}"#,
            r#"{"a":[[],[1]]}"#,
            r#"{"a":[[[],1]]}"#,
            r#"{"a":{"b":1},"c":2}"#,
            r#"{"a":{"b":1,"c":2}}"#,
            r#"{"a":null}"#,
        ];
        let mut digests: Vec<Digest> = texts.iter().map(|text| input_request(text)).collect();
        digests.extend(texts.iter().map(|text| request(text)));
        digests.push(request_digest("prompts/get", None));
        digests.push(Digest::of_input_request(InputKind::Roots, None));
        let count = digests.len();

        digests.sort_unstable();
        digests.dedup();

        assert_eq!(digests.len(), count);
    }

    #[test]
    fn params_too_deep_to_be_read_still_have_a_digest() {
        let deep = |core| format!(r#"{{"a":{}{core}{}}}"#, "[".repeat(5000), "]".repeat(5000));

        assert_eq!(request(&deep("1")), request(&deep("1")));
        assert_ne!(request(&deep("1")), request(&deep("2")));
    }
}
