//! [`Binding`], bound bytes made of several parts.

use crate::exchange::Principal;

/// The bytes that a sealed text is bound to, made of several parts, so that two lists of parts never have the same bytes.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::exchange::Principal;
/// use bowline::seal::{Binding, Purpose, SealError, Sealer};
///
/// let ada = Binding::new().principal(&Principal::named("ada")).bytes(b"generation 7");
/// let bob = Binding::new().principal(&Principal::named("bob")).bytes(b"generation 7");
///
/// let sealer = Sealer::random();
/// let cursor = sealer.seal(Purpose::Cursor, &ada, b"page 2", Duration::from_secs(60))?;
/// assert_eq!(sealer.open(Purpose::Cursor, &ada, &cursor)?, b"page 2");
/// assert_eq!(sealer.open(Purpose::Cursor, &bob, &cursor), Err(SealError::Foreign));
/// # Ok::<(), SealError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a binding does nothing until it is passed to a `Sealer`"]
pub struct Binding(Vec<u8>);

impl Binding {
    /// Creates a binding without parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a principal, by its name. An anonymous principal differs from one with an empty name.
    pub fn principal(mut self, principal: &Principal) -> Self {
        match principal.name() {
            Some(name) => self.push(NAMED, name.as_bytes()),
            None => self.push(ANONYMOUS, b""),
        }
        self
    }

    /// Adds bytes.
    pub fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.push(BYTES, bytes.as_ref());
        self
    }

    /// The length is a `u64` on every machine, because another replica may open the text.
    fn push(&mut self, kind: u8, bytes: &[u8]) {
        self.0.push(kind);
        let length = bytes.len() as u64;
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(bytes);
    }
}

impl AsRef<[u8]> for Binding {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

const ANONYMOUS: u8 = 0;
const NAMED: u8 = 1;
const BYTES: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_lists_of_parts_have_different_bytes() {
        let (anonymous, empty) = (Principal::anonymous(), Principal::named(""));
        let mut bindings = [
            Binding::new(),
            Binding::new().bytes(b""),
            Binding::new().bytes(b"ab"),
            Binding::new().bytes(b"a").bytes(b"b"),
            Binding::new().bytes(b"").bytes(b"ab"),
            Binding::new().principal(&anonymous),
            Binding::new().principal(&empty),
            Binding::new().principal(&Principal::named("ab")),
        ]
        .map(|binding| binding.as_ref().to_vec())
        .to_vec();
        let count = bindings.len();

        bindings.sort();
        bindings.dedup();

        assert_eq!(bindings.len(), count);
    }
}
