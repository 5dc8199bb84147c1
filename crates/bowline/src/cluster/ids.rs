//! [`ReplicaId`] and [`GroupId`]: the addresses of messages between replicas.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::Unavailable;
use crate::random;

/// The id of a replica, random for each start of its process. Displays as 16 hexadecimal digits.
///
/// A process that starts again has another id: what its predecessor kept in memory is gone.
///
/// # Examples
///
/// ```
/// use bowline::cluster::ReplicaId;
///
/// let id = ReplicaId::random()?;
/// assert_eq!(id.to_string().parse(), Ok(id));
/// assert!("replica 1".parse::<ReplicaId>().is_err());
/// # Ok::<(), bowline::cluster::Unavailable>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId([u8; Self::LEN]);

impl ReplicaId {
    /// The number of bytes.
    pub const LEN: usize = 8;

    /// Creates a random id.
    ///
    /// # Errors
    ///
    /// If the operating system provides no randomness.
    pub fn random() -> Result<Self, Unavailable> {
        let bytes = random::bytes().map_err(|why| Unavailable::new("randomness", why))?;
        Ok(Self(bytes))
    }

    /// Creates an id from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplicaId({self})")
    }
}

impl FromStr for ReplicaId {
    type Err = InvalidReplicaId;

    fn from_str(text: &str) -> Result<Self, InvalidReplicaId> {
        // `from_str_radix` also accepts a sign and upper case; each id has one spelling.
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 2 * Self::LEN || !text.bytes().all(is_digit) {
            return Err(InvalidReplicaId);
        }
        let number = u64::from_str_radix(text, 16).map_err(|_| InvalidReplicaId)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// The error for a text that is not a [`ReplicaId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a replica id of 16 hexadecimal digits")]
#[non_exhaustive]
pub struct InvalidReplicaId;

/// The name of a group of replicas that receive the same messages, such as those that serve one client.
///
/// A kind and a name: groups of different kinds never have the same id. Both are visible to the operators of the
/// engine, so a secret, such as an id that grants access, must be hashed first.
///
/// # Examples
///
/// ```
/// use bowline::cluster::GroupId;
///
/// assert_ne!(GroupId::new("changes", "calculator"), GroupId::new("clients", "calculator"));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(Arc<str>);

impl GroupId {
    /// Creates an id. `kind` should be a word of the code; `name` may be any text.
    #[must_use]
    pub fn new(kind: &str, name: &str) -> Self {
        Self(format!("{kind} {name}").into())
    }

    /// Returns the text: the kind, a space and the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupId({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_id_has_one_spelling() {
        let id = ReplicaId::from_bytes([0, 0, 0, 0, 0, 0, 0xAB, 7]);

        assert_eq!(id.to_string(), "000000000000ab07");
        assert_eq!("000000000000ab07".parse(), Ok(id));
        for other in [
            "",
            "ab07",
            "000000000000AB07",
            "+00000000000ab07",
            "0000000000000ab07",
        ] {
            assert_eq!(other.parse::<ReplicaId>(), Err(InvalidReplicaId), "{other}");
        }
    }
}
