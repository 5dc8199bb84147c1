//! [`TaskId`] and [`ReplicaId`]: random ids that cannot be guessed.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::store::StoreError;

/// The id of a task: 143 random bits, as 24 characters of base64url.
///
/// For a task of an anonymous caller the id is the only credential, so it must not appear in logs of other parties.
///
/// # Examples
///
/// ```
/// use bowline_tasks::TaskId;
///
/// let id = TaskId::random()?;
/// assert_eq!(id.to_string().parse(), Ok(id));
/// assert!("x".parse::<TaskId>().is_err());
/// # Ok::<(), bowline_tasks::store::StoreError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId([u8; TASK_ID_LEN]);

impl TaskId {
    /// Creates a random id.
    ///
    /// # Errors
    ///
    /// [`StoreError::Randomness`] if the operating system provides no randomness.
    pub fn random() -> Result<Self, StoreError> {
        let mut bytes = random_bytes::<TASK_ID_LEN>()?;
        // The text then begins with a letter: a hyphen would make it an option in a shell.
        bytes[0] &= 0x7f;
        Ok(Self(bytes))
    }

    /// Creates an id from bytes that a store has saved.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; TASK_ID_LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for a store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; TASK_ID_LEN] {
        &self.0
    }

    /// Returns the text, which is ASCII.
    pub(crate) fn to_text(self) -> [u8; TASK_ID_CHARS] {
        let mut text = [0; TASK_ID_CHARS];
        let written = BASE64_URL_SAFE_NO_PAD.encode_slice(self.0, &mut text);
        // Cannot fail: three bytes are four characters.
        debug_assert_eq!(written, Ok(TASK_ID_CHARS));
        text
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_text()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

impl FromStr for TaskId {
    type Err = InvalidTaskId;

    fn from_str(text: &str) -> Result<Self, InvalidTaskId> {
        // 18 bytes fill 24 characters completely, so that each id has exactly one spelling.
        let mut bytes = [0; TASK_ID_LEN];
        match BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(TASK_ID_LEN) => Ok(Self(bytes)),
            _ => Err(InvalidTaskId),
        }
    }
}

/// The error for a text that is not a [`TaskId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a task id of 24 base64url characters")]
#[non_exhaustive]
pub struct InvalidTaskId;

/// The id of a process that runs tasks, random for each start.
///
/// A process that starts again has another id, so it never owns the tasks of its predecessor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId([u8; REPLICA_ID_LEN]);

impl ReplicaId {
    /// Creates a random id. Call this once per process.
    ///
    /// # Errors
    ///
    /// [`StoreError::Randomness`] if the operating system provides no randomness.
    pub fn random() -> Result<Self, StoreError> {
        random_bytes().map(Self)
    }

    /// Creates an id from bytes that a store has saved.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; REPLICA_ID_LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for a store.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; REPLICA_ID_LEN] {
        &self.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplicaId({self})")
    }
}

fn random_bytes<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Randomness {
        source: std::sync::Arc::new(error),
    })?;
    Ok(bytes)
}

const TASK_ID_LEN: usize = 18;
const TASK_ID_CHARS: usize = TASK_ID_LEN / 3 * 4;
const REPLICA_ID_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = TaskId::random().unwrap();
        let text = id.to_string();

        assert_eq!(text.len(), 24);
        assert_eq!(text.parse(), Ok(id));
        for other in [
            "",
            &text[1..],
            &format!("{text}="),
            &format!("{text}A"),
            &format!(" {}", &text[1..]),
            "AAAAAAAAAAAAAAAAAAAAAAA+",
            "ÄAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert_eq!(other.parse::<TaskId>(), Err(InvalidTaskId), "{other}");
        }
    }

    #[test]
    fn a_random_id_begins_with_a_letter() {
        for _ in 0..1000 {
            let text = TaskId::random().unwrap().to_string();
            assert!(
                text.starts_with(|c: char| c.is_ascii_alphabetic()),
                "{text}"
            );
        }
    }

    #[test]
    fn ids_differ() {
        assert_ne!(TaskId::random().unwrap(), TaskId::random().unwrap());
        assert_ne!(ReplicaId::random().unwrap(), ReplicaId::random().unwrap());
    }
}
