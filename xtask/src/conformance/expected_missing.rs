//! `ExpectedMissing`: the scenarios that are known to fail, from `leg revision scenario` lines and comments.

use std::collections::BTreeSet;

use super::Leg;

/// The scenarios that are known to fail.
#[derive(Debug, Default)]
pub(crate) struct ExpectedMissing(BTreeSet<(Leg, String, String)>);

impl ExpectedMissing {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut missing = BTreeSet::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let (leg, revision, scenario) = match words[..] {
                [] => continue,
                [leg, revision, scenario] => (Leg::named(leg), revision, scenario),
                _ => (None, "", ""),
            };
            let leg = leg.ok_or_else(|| format!("`{line}` is not `leg revision scenario`"))?;
            missing.insert((leg, revision.to_owned(), scenario.to_owned()));
        }
        Ok(Self(missing))
    }

    pub(crate) fn names(&self, leg: Leg, revision: &str, scenario: &str) -> bool {
        let line = (leg, revision.to_owned(), scenario.to_owned());
        self.0.contains(&line)
    }

    /// Returns the lines about scenarios for which `exists` is false.
    pub(crate) fn unknown(&self, exists: impl Fn(Leg, &str, &str) -> bool) -> Vec<String> {
        let lines = self.0.iter();
        let unknown = lines.filter(|(leg, version, scenario)| !exists(*leg, version, scenario));
        unknown
            .map(|(leg, version, scenario)| format!("{} {version} {scenario}", leg.name()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_one_scenario_of_one_leg_in_one_revision() {
        let expected =
            ExpectedMissing::parse("# why\n\nclient 2025-11-25 auth/x # because\n").unwrap();

        assert!(expected.names(Leg::Client, "2025-11-25", "auth/x"));
        assert!(!expected.names(Leg::Server, "2025-11-25", "auth/x"));
        assert!(!expected.names(Leg::Client, "2026-07-28", "auth/x"));
    }

    #[test]
    fn a_line_about_an_unknown_scenario_is_found() {
        let expected = ExpectedMissing::parse("client 1 a\nserver 1 b\n").unwrap();

        let unknown = expected.unknown(|leg, _, scenario| leg == Leg::Client && scenario == "a");

        assert_eq!(unknown, ["server 1 b"]);
    }

    #[test]
    fn a_malformed_line_is_refused() {
        assert!(
            ExpectedMissing::parse("auth/x")
                .unwrap_err()
                .contains("auth/x")
        );
        assert!(ExpectedMissing::parse("both 2025-11-25 auth/x").is_err());
    }
}
