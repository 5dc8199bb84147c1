//! The mode argument, which selects the protocol version.

use bowline::exchange::Dialect;

/// The protocol versions that the client offers.
#[derive(Debug, PartialEq)]
pub(crate) enum Mode {
    /// Version negotiation.
    Auto,
    /// Only this version.
    Only(String),
}

impl Mode {
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        let modern = Dialect::LATEST.version;
        match word {
            "auto" => Ok(Self::Auto),
            "legacy" => Ok(Self::Only(Dialect::LATEST_LEGACY.version.to_owned())),
            // A prefix, such as the year, is enough.
            _ if !word.is_empty() && modern.starts_with(word) => Ok(Self::Only(modern.to_owned())),
            _ => match word.strip_prefix("legacy:").and_then(Dialect::of) {
                Some(dialect) => Ok(Self::Only(dialect.version.to_owned())),
                None => Err(format!("unknown mode `{word}`")),
            },
        }
    }

    pub(crate) fn version(&self) -> Option<&str> {
        match self {
            Self::Auto => None,
            Self::Only(version) => Some(version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_selects_an_era_or_a_legacy_version() {
        let only = |version: &str| Ok(Mode::Only(version.to_owned()));

        assert_eq!(Mode::parse("auto"), Ok(Mode::Auto));
        assert_eq!(Mode::parse("2026"), only("2026-07-28"));
        assert_eq!(Mode::parse("legacy"), only("2025-11-25"));
        assert_eq!(Mode::parse("legacy:2024-11-05"), only("2024-11-05"));
    }

    #[test]
    fn an_unknown_version_is_rejected() {
        assert!(Mode::parse("legacy:2023-01-01").is_err());
        assert!(Mode::parse("").is_err());
    }
}
