//! Sealed session ids: what the handshake fixed, encrypted into the id itself, so that any process that has the keys
//! can serve the session.
//!
//! ```text
//! id      = sealed text of the purpose `SessionId`, bound to the principal, at most 1,024 characters
//! content = format ‖ owner ‖ creation time ‖ features ‖ capability bits
//!           ‖ text(version) ‖ text(client name) ‖ text(client version)
//!           ‖ text(other capabilities) ‖ text(other members of the client)
//! text    = length in 2 bytes ‖ UTF-8
//! ```
//!
//! What changes after the handshake (log level, subscriptions, requests in flight) is not in it.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::{Caller, Dialect, LegacyFeatures};
use bowline_types::{ClientCapabilities, Implementation};
use serde_json::{Map, Value};

use crate::exchange::Principal;
use crate::seal::{Binding, Purpose, SealError, Sealer};

/// What the handshake of a session fixed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HandshakeFacts {
    /// The process that answered `initialize`.
    pub(super) owner: [u8; OWNER_BYTES],
    /// When it did, in seconds since 1970.
    pub(super) created: u64,
    /// What the server declared.
    pub(super) features: LegacyFeatures,
    /// The version and the client.
    pub(super) caller: Caller,
}

/// Seals the facts of a handshake as a session id. Returns `None` if they do not fit, even without the optional members
/// of the client's description.
///
/// # Errors
///
/// If the operating system provides no randomness.
pub(super) fn seal_session_id(
    keys: &Sealer,
    principal: &Principal,
    facts: &HandshakeFacts,
    lifetime: Duration,
) -> Result<Option<Arc<str>>, SealError> {
    let Some(content) = encode_within(facts, MAX_CONTENT_BYTES) else {
        return Ok(None);
    };
    let bound = Binding::new().principal(principal);
    let text = keys.seal(Purpose::SessionId, bound, &content, lifetime)?;
    Ok(Some(text.into()))
}

/// Opens a session id. Fails if it was not sealed with these keys for this principal, or has expired.
pub(super) fn open_session_id(
    keys: &Sealer,
    principal: &Principal,
    id: &str,
) -> Result<HandshakeFacts, SealError> {
    if id.len() > MAX_ID_CHARS {
        return Err(SealError::Foreign);
    }
    let bound = Binding::new().principal(principal);
    let content = keys.open(Purpose::SessionId, bound, id)?;
    decode(&content).ok_or(SealError::Foreign)
}

/// Encodes the facts with as much of the client's description as fits.
fn encode_within(facts: &HandshakeFacts, max: usize) -> Option<Vec<u8>> {
    let capabilities = split_capabilities(&facts.caller.capabilities)?;
    let client = facts.caller.implementation.as_ref();
    let descriptions = client.map_or(Vec::new(), shortened_descriptions);
    let none = Map::new();
    // Without a client there is one encoding, of an empty name.
    let empty = Description {
        name: "",
        version: "",
        other: none,
    };
    let descriptions = match descriptions.is_empty() {
        true => vec![empty],
        false => descriptions,
    };
    let mut encoded = descriptions
        .iter()
        .filter_map(|description| encode(facts, &capabilities, client.is_some(), description));
    encoded.find(|content| content.len() <= max)
}

/// A description of a client, of which the optional members may be missing.
struct Description<'a> {
    name: &'a str,
    version: &'a str,
    other: Map<String, Value>,
}

/// Returns descriptions of a client, each shorter than the one before.
fn shortened_descriptions(client: &Implementation) -> Vec<Description<'_>> {
    let (name, version) = (&*client.name, &*client.version);
    let mut other = match serde_json::to_value(client) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    };
    other.remove("name");
    other.remove("version");
    let mut without_icons = other.clone();
    without_icons.remove("icons");
    vec![
        Description {
            name,
            version,
            other,
        },
        Description {
            name,
            version,
            other: without_icons,
        },
        Description {
            name,
            version,
            other: Map::new(),
        },
        Description {
            name: truncate(name, MAX_SHORT_TEXT),
            version: truncate(version, MAX_SHORT_TEXT),
            other: Map::new(),
        },
    ]
}

fn truncate(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn encode(
    facts: &HandshakeFacts,
    (bits, rest): &(u16, Map<String, Value>),
    has_client: bool,
    client: &Description<'_>,
) -> Option<Vec<u8>> {
    let flags = (u8::from(facts.features.logging) * LOGGING)
        | (u8::from(facts.features.subscriptions) * SUBSCRIPTIONS)
        | (u8::from(has_client) * HAS_CLIENT);
    let mut out = vec![FORMAT];
    out.extend_from_slice(&facts.owner);
    out.extend_from_slice(&facts.created.to_be_bytes());
    out.push(flags);
    out.extend_from_slice(&bits.to_be_bytes());
    push_text(&mut out, facts.caller.dialect.version)?;
    push_text(&mut out, client.name)?;
    push_text(&mut out, client.version)?;
    push_members(&mut out, rest)?;
    push_members(&mut out, &client.other)?;
    Some(out)
}

fn push_text(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let length = u16::try_from(text.len()).ok()?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    Some(())
}

/// An empty object is an empty text.
fn push_members(out: &mut Vec<u8>, members: &Map<String, Value>) -> Option<()> {
    match members.is_empty() {
        true => push_text(out, ""),
        false => push_text(out, &serde_json::to_string(members).ok()?),
    }
}

fn decode(content: &[u8]) -> Option<HandshakeFacts> {
    let mut input = content;
    let [FORMAT] = *take_array(&mut input)? else {
        return None;
    };
    let owner = *take_array(&mut input)?;
    let created = u64::from_be_bytes(*take_array(&mut input)?);
    let [flags] = *take_array(&mut input)?;
    let bits = u16::from_be_bytes(*take_array(&mut input)?);
    let dialect = Dialect::of(take_text(&mut input)?).filter(|dialect| !dialect.is_modern())?;
    let (name, version) = (take_text(&mut input)?, take_text(&mut input)?);
    let capabilities = join_capabilities(bits, take_members(&mut input)?)?;
    let mut client = take_members(&mut input)?;
    if !input.is_empty() {
        return None;
    }
    client.insert("name".to_owned(), name.into());
    client.insert("version".to_owned(), version.into());
    let client =
        (flags & HAS_CLIENT != 0).then(|| serde_json::from_value(Value::Object(client)).ok());
    let mut features = LegacyFeatures::default();
    features.logging = flags & LOGGING != 0;
    features.subscriptions = flags & SUBSCRIPTIONS != 0;
    let mut caller = Caller::new(dialect);
    caller.implementation = match client {
        Some(client) => Some(client?),
        None => None,
    };
    caller.capabilities = capabilities;
    Some(HandshakeFacts {
        owner,
        created,
        features,
        caller,
    })
}

fn take_array<'a, const N: usize>(input: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(taken)
}

fn take_text<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    let length = u16::from_be_bytes(*take_array(input)?);
    let (text, rest) = input.split_at_checked(length.into())?;
    *input = rest;
    std::str::from_utf8(text).ok()
}

fn take_members(input: &mut &[u8]) -> Option<Map<String, Value>> {
    match take_text(input)? {
        "" => Some(Map::new()),
        text => serde_json::from_str(text).ok(),
    }
}

/// Splits capabilities into a bit for each known one and the others.
fn split_capabilities(capabilities: &ClientCapabilities) -> Option<(u16, Map<String, Value>)> {
    let Value::Object(all) = serde_json::to_value(capabilities).ok()? else {
        return None;
    };
    let (mut bits, mut rest) = (0, all.clone());
    for (at, known) in KNOWN_CAPABILITIES.iter().enumerate().rev() {
        let members = match known.parent {
            Some(parent) => rest.get_mut(parent).and_then(Value::as_object_mut),
            None => Some(&mut rest),
        };
        if let Some(members) = members
            && members.get(known.name) == Some(&known.value())
        {
            members.remove(known.name);
            bits |= 1 << at;
        }
    }
    // A parent without other members is itself a known capability, whose bit is set after those of its members.
    let joined = join_members(bits, rest.clone())?;
    Some(match joined == all {
        true => (bits, rest),
        false => (0, all),
    })
}

fn join_capabilities(bits: u16, rest: Map<String, Value>) -> Option<ClientCapabilities> {
    let members = join_members(bits, rest)?;
    serde_json::from_value(Value::Object(members)).ok()
}

fn join_members(bits: u16, mut rest: Map<String, Value>) -> Option<Map<String, Value>> {
    for (at, known) in KNOWN_CAPABILITIES.iter().enumerate() {
        if bits & (1 << at) == 0 {
            continue;
        }
        let members = match known.parent {
            Some(parent) => rest
                .entry(parent)
                .or_insert_with(|| Value::Object(Map::new()))
                .as_object_mut()?,
            None => &mut rest,
        };
        members.insert(known.name.to_owned(), known.value());
    }
    Some(rest)
}

/// A capability that has a bit.
struct KnownCapability {
    parent: Option<&'static str>,
    name: &'static str,
    /// Whether its value is `true`, not an empty object.
    is_flag: bool,
}

impl KnownCapability {
    const fn object(name: &'static str) -> Self {
        Self {
            parent: None,
            name,
            is_flag: false,
        }
    }

    const fn within(parent: &'static str, name: &'static str) -> Self {
        Self {
            parent: Some(parent),
            name,
            is_flag: false,
        }
    }

    fn value(&self) -> Value {
        match self.is_flag {
            true => Value::Bool(true),
            false => Value::Object(Map::new()),
        }
    }
}

/// The order is part of the format: a parent comes before its members, and new ones are added at the end.
const KNOWN_CAPABILITIES: &[KnownCapability] = &[
    KnownCapability::object("roots"),
    KnownCapability {
        parent: Some("roots"),
        name: "listChanged",
        is_flag: true,
    },
    KnownCapability::object("sampling"),
    KnownCapability::within("sampling", "context"),
    KnownCapability::within("sampling", "tools"),
    KnownCapability::object("elicitation"),
    KnownCapability::within("elicitation", "form"),
    KnownCapability::within("elicitation", "url"),
];

/// The longest id: far below the 8 KiB that proxies accept as a header line.
pub(super) const MAX_ID_CHARS: usize = 1024;
/// The longest content whose text has at most [`MAX_ID_CHARS`].
const MAX_CONTENT_BYTES: usize = 719;
const _: () = assert!(Sealer::max_text_len(MAX_CONTENT_BYTES) <= MAX_ID_CHARS);
/// The length to which the name and the version of a client are shortened if they do not fit.
const MAX_SHORT_TEXT: usize = 64;
pub(super) const OWNER_BYTES: usize = 8;
const FORMAT: u8 = 1;
const LOGGING: u8 = 1;
const SUBSCRIPTIONS: u8 = 2;
const HAS_CLIENT: u8 = 4;

#[cfg(test)]
mod tests;
