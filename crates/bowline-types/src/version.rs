//! The protocol version.

use std::borrow::Cow;

use crate::open_string_enum::open_string_enum;

/// A protocol version: the date of a revision, or any other text that a peer sends.
///
/// Ordered as text, which for dates is chronological.
///
/// # Examples
///
/// ```
/// use bowline_types::ProtocolVersion;
///
/// let version = ProtocolVersion::from("2025-11-25");
/// assert!(version.is_known());
/// assert!(version < ProtocolVersion::LATEST);
/// assert!(!ProtocolVersion::from("next").is_known());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion(Cow<'static, str>);

impl ProtocolVersion {
    /// The first public revision.
    pub const V2024_11_05: Self = Self(Cow::Borrowed("2024-11-05"));
    /// The revision that introduced Streamable HTTP, and the only one with batches.
    pub const V2025_03_26: Self = Self(Cow::Borrowed("2025-03-26"));
    /// The revision that introduced elicitation and structured tool output.
    pub const V2025_06_18: Self = Self(Cow::Borrowed("2025-06-18"));
    /// The last revision with `initialize`.
    pub const V2025_11_25: Self = Self(Cow::Borrowed("2025-11-25"));
    /// The first stateless revision: every request contains its version and capabilities.
    pub const V2026_07_28: Self = Self(Cow::Borrowed("2026-07-28"));

    /// The latest known revision.
    pub const LATEST: Self = Self::V2026_07_28;

    /// All known revisions, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// Returns whether this is one of [`ALL`](Self::ALL).
    #[must_use]
    pub fn is_known(&self) -> bool {
        Self::ALL.contains(self)
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

open_string_enum!(
    ProtocolVersion,
    "a protocol version",
    [
        V2024_11_05,
        V2025_03_26,
        V2025_06_18,
        V2025_11_25,
        V2026_07_28
    ]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_in_chronological_order() {
        assert!(ProtocolVersion::ALL.is_sorted());
    }

    #[test]
    fn an_unknown_revision_survives() {
        let version: ProtocolVersion = serde_json::from_str("\"DRAFT-2027\"").unwrap();

        assert!(!version.is_known());
        assert_eq!(serde_json::to_string(&version).unwrap(), "\"DRAFT-2027\"");
    }
}
