//! [`TraceContext`], the W3C trace context of a request.

use bowline_types::Meta;

use crate::{Error, Result};

/// A W3C trace context: a valid `traceparent` and an optional valid `tracestate`.
///
/// It is sent in the `_meta` of requests. Handlers read it by [`Context::trace`](super::Context::trace) and forward it
/// to other servers by [`RequestBuilder::trace`](crate::client::RequestBuilder::trace).
/// [`ClientBuilder::trace`](crate::client::ClientBuilder::trace) sets it for all requests of a client.
///
/// # Examples
///
/// ```
/// use bowline::exchange::TraceContext;
///
/// let trace = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")?
///     .with_state("congo=t61rcWkgMzE")?;
/// assert_eq!(trace.trace_id(), "0af7651916cd43dd8448eb211c80319c");
/// # Ok::<(), bowline::Error>(())
/// ```
///
/// A tool that calls another server in the same trace:
///
/// ```
/// use bowline::{Client, Context, State, ToolError};
///
/// async fn forecast(State(weather): State<Client>, cx: Context) -> Result<String, ToolError> {
///     let reply = weather.call_tool("forecast", ()).trace(cx.trace()).await?;
///     Ok(reply.text())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceContext {
    /// Creates a trace context from a `traceparent`.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if it does not have the form `00-<trace id>-<parent id>-<flags>` in lower-case
    /// hexadecimal digits, or one of the ids is all zeros.
    pub fn new(traceparent: impl Into<String>) -> Result<Self> {
        let traceparent = traceparent.into();
        if !is_traceparent(&traceparent) {
            return Err(Error::misuse(format!(
                "expected a traceparent like `00-<32 digits>-<16 digits>-<2 digits>`, got `{traceparent}`"
            )));
        }
        Ok(Self {
            traceparent,
            tracestate: None,
        })
    }

    /// Sets the vendor-specific `tracestate`.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if it is not a list of at most 32 `key=value` members in the characters that the W3C
    /// specification allows.
    pub fn with_state(mut self, tracestate: impl Into<String>) -> Result<Self> {
        let tracestate = tracestate.into();
        if !is_tracestate(&tracestate) {
            return Err(Error::misuse(format!(
                "expected a tracestate like `key=value,key=value`, got `{tracestate}`"
            )));
        }
        self.tracestate = Some(tracestate);
        Ok(self)
    }

    /// Returns the `traceparent`: version, trace id, parent id and flags.
    #[must_use]
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// Returns the vendor-specific `tracestate`.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// Returns the trace id: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.traceparent[TRACE_ID]
    }

    /// Reads the trace context of a received `_meta`. Malformed values are ignored, as the W3C specification requires,
    /// and so is a `tracestate` without a `traceparent`.
    pub(crate) fn read(meta: &Meta) -> Option<Self> {
        let trace = Self::new(meta.traceparent().ok()??).ok()?;
        let tracestate = meta.tracestate().ok().flatten();
        Some(match tracestate {
            Some(state) => trace.clone().with_state(state).unwrap_or(trace),
            None => trace,
        })
    }

    pub(crate) fn write(&self, meta: &mut Meta) {
        meta.set_traceparent(&self.traceparent);
        if let Some(tracestate) = &self.tracestate {
            meta.set_tracestate(tracestate);
        }
    }
}

/// Accepts later versions, which may append fields to those of version 00.
fn is_traceparent(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some((known, rest)) = bytes.split_at_checked(TRACEPARENT_LENGTH) else {
        return false;
    };
    let parts: Vec<&[u8]> = known.split(|byte| *byte == b'-').collect();
    let [version, trace, parent, flags] = parts[..] else {
        return false;
    };
    let lengths = [version, trace, parent, flags].map(<[u8]>::len);
    let is_hex = |part: &[u8]| {
        part.iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
    lengths == [2, 32, 16, 2]
        && [version, trace, parent, flags].into_iter().all(is_hex)
        && version != b"ff"
        && !is_zero(trace)
        && !is_zero(parent)
        && (rest.is_empty() || (version != b"00" && rest.starts_with(b"-")))
}

fn is_tracestate(text: &str) -> bool {
    // Empty members are allowed and not counted.
    let members = text
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']));
    let members: Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    (1..=MAX_STATES).contains(&members.len()) && members.into_iter().all(is_state)
}

fn is_state(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else {
        return false;
    };
    let in_key =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let in_value = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b',' && byte != b'=';
    let begins = key
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    begins
        && key.len() <= MAX_STATE_LENGTH
        && key.bytes().all(in_key)
        && (1..=MAX_STATE_LENGTH).contains(&value.len())
        && value.bytes().all(in_value)
}

const TRACEPARENT_LENGTH: usize = 55;
const TRACE_ID: std::ops::Range<usize> = 3..35;
const MAX_STATES: usize = 32;
const MAX_STATE_LENGTH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_has_the_form_of_the_w3c_specification() {
        let later = format!("cc{}-what-the-future-holds", &PARENT[2..]);
        for good in [PARENT, &later, &PARENT.replace("-01", "-ff")] {
            assert!(TraceContext::new(good).is_ok(), "{good}");
        }
        let bad = [
            "",
            "00-a-b-01",
            &PARENT[..54],
            &format!("{PARENT}0"),
            &format!("{PARENT}-more"),
            &later.replace("-what", "+what"),
            &PARENT.replace("00-", "ff-"),
            &PARENT.to_uppercase(),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT.replace('-', "_"),
            &PARENT.replace("319c-b7", "319-cb7"),
            &PARENT.replace("0af", "0äf"),
        ];
        for bad in bad {
            assert!(TraceContext::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tracestate_is_a_list_of_keys_and_values() {
        let trace = TraceContext::new(PARENT).unwrap();
        let many = vec!["a=1"; 32].join(",");
        for good in ["a=1", "congo=t61 rcWk,rojo=00f067 , ,", "1@x=~", &many] {
            assert!(trace.clone().with_state(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ",",
            "a",
            "a=",
            "=1",
            "A=1",
            "@a=1",
            "a=1=2",
            "a=ä",
            &format!("{many},b=1"),
        ] {
            assert!(trace.clone().with_state(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_invalid_tracestate_does_not_discard_the_traceparent() {
        let mut meta = Meta::default();
        meta.set_traceparent(PARENT);
        meta.set_tracestate("no list");

        let read = TraceContext::read(&meta);

        assert_eq!(read, TraceContext::new(PARENT).ok());
    }
}
