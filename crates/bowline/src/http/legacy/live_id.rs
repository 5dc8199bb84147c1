//! [`LiveId`]: names one live state of a session in the ids of server requests and of events.
//!
//! ```text
//! live id          = owner (16 hexadecimal digits) ‖ number (hexadecimal digits)
//! server request   = live id . n
//! event            = live id - stream - position
//! ```
//!
//! Several processes may serve one session, and one process may serve it again after it freed the first state. Without
//! the name, two of them would send the client requests under one id, and an answer or a `Last-Event-ID` would be taken
//! for that of another.

use std::fmt;

use bowline_types::RequestId;

use super::session_id::OWNER_BYTES;

/// The id of a process, random for each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnerId(pub(super) [u8; OWNER_BYTES]);

/// The live state of a session: the process that has it, and a number that the process uses once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LiveId {
    pub(super) owner: OwnerId,
    pub(super) number: u64,
}

/// The id of an event: a position on a stream of a live state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventId {
    /// `None` if its session does not name its live states: a session of one process, which was never revived.
    pub(super) live: Option<LiveId>,
    pub(super) key: u64,
    pub(super) position: u64,
}

impl LiveId {
    /// Returns the live state that sent a server request with this id, if its id names one.
    pub(super) fn of_request(id: &RequestId) -> Option<Self> {
        let RequestId::Text(text) = id else {
            return None;
        };
        let (live, number) = text.rsplit_once('.')?;
        decimal(number)?;
        Self::parse(live)
    }

    fn parse(text: &str) -> Option<Self> {
        let (owner, number) = text.split_at_checked(2 * OWNER_BYTES)?;
        Some(Self {
            owner: OwnerId::parse(owner)?,
            number: hexadecimal(number)?,
        })
    }
}

impl OwnerId {
    /// Parses 16 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let has_length = text.len() == 2 * OWNER_BYTES;
        let number = has_length.then(|| hexadecimal(text))??;
        Some(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for LiveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:x}", self.owner, self.number)
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl EventId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (before, position) = text.rsplit_once('-')?;
        let (live, key) = match before.rsplit_once('-') {
            Some((live, key)) => (Some(LiveId::parse(live)?), key),
            None => (None, before),
        };
        Some(Self {
            live,
            key: decimal(key)?,
            position: decimal(position)?,
        })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(live) = self.live {
            write!(f, "{live}-")?;
        }
        write!(f, "{}-{}", self.key, self.position)
    }
}

/// Parses digits only: `parse` also accepts a sign.
fn decimal(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok())?
}

fn hexadecimal(text: &str) -> Option<u64> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_digits = text.bytes().all(is_digit);
    is_digits.then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: LiveId = LiveId {
        owner: OwnerId([0, 0, 0, 0, 0, 0, 0xab, 7]),
        number: 42,
    };

    #[test]
    fn a_request_id_names_the_live_state_that_sent_it() {
        let id = RequestId::from(format!("{LIVE}.7"));

        assert_eq!(id, "000000000000ab072a.7".into());
        assert_eq!(LiveId::of_request(&id), Some(LIVE));
        for other in [
            "7",
            "a.7",
            "000000000000ab07.7",
            "000000000000ab072a.",
            "+000000000000ab072.7",
        ] {
            assert_eq!(LiveId::of_request(&other.into()), None, "{other}");
        }
        assert_eq!(LiveId::of_request(&7.into()), None);
    }

    #[test]
    fn an_event_id_has_a_live_state_or_none() {
        for live in [None, Some(LIVE)] {
            let id = EventId {
                live,
                key: 3,
                position: 17,
            };
            assert_eq!(EventId::parse(&id.to_string()), Some(id));
        }
        for other in ["", "3", "3-", "-3", "a-3", "3-+1", "1-2-3", "ab07-1-2"] {
            assert_eq!(EventId::parse(other), None, "{other}");
        }
    }
}
