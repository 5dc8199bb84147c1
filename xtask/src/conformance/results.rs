//! What the suite writes: the scenarios of a requirement set, and the checks of each scenario.
//!
//! A scenario passes here if it has checks, none of them failed, and at least one succeeded. The suite itself
//! lets one pass in which nothing was checked, because the client crashed before.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::Leg;

/// The scenarios that a revision requires.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Required {
    server: Vec<String>,
    client: Vec<String>,
}

impl Required {
    /// Reads what `list --requirements` prints.
    pub(crate) fn parse(listing: &str) -> Self {
        let mut required = Self::default();
        let mut section = None;
        for line in listing.lines() {
            if let Some(scenario) = line.strip_prefix("  - ") {
                match section {
                    Some(Leg::Server) => required.server.push(scenario.to_owned()),
                    Some(Leg::Client) => required.client.push(scenario.to_owned()),
                    None => {}
                }
            } else if line.starts_with("Server scenarios") {
                section = Some(Leg::Server);
            } else if line.starts_with("Client scenarios") {
                section = Some(Leg::Client);
            } else if !line.is_empty() {
                section = None;
            }
        }
        required
    }

    pub(crate) fn of(&self, leg: Leg) -> &[String] {
        match leg {
            Leg::Server => &self.server,
            Leg::Client => &self.client,
        }
    }
}

/// The checks of every scenario that was run.
#[derive(Debug)]
pub(crate) struct Results(BTreeMap<String, String>);

impl Results {
    /// Reads every `checks.json` in `folder`; the folder of each is named by its scenario and the time.
    pub(crate) fn read(folder: &Path, leg: Leg) -> io::Result<Self> {
        let mut results = BTreeMap::new();
        collect(folder, &mut String::new(), &mut |path, text| {
            let name = match leg {
                Leg::Server => path.strip_prefix("server-").unwrap_or(path),
                Leg::Client => path,
            };
            results.insert(without_time(name).to_owned(), text);
        })?;
        Ok(Self(results))
    }

    pub(crate) fn judge(&self, scenario: &str) -> Judged {
        let checks = self.0.get(scenario).map_or("", String::as_str);
        let count = |status: &str| checks.matches(&format!("\"status\": \"{status}\"")).count();
        Judged {
            succeeded: count("SUCCESS"),
            failed: count("FAILURE"),
            warned: count("WARNING"),
        }
    }
}

/// How the checks of a scenario went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    succeeded: usize,
    failed: usize,
    warned: usize,
}

impl Judged {
    pub(crate) fn passed(self) -> bool {
        self.failed == 0 && self.succeeded > 0
    }

    pub(crate) fn has_warnings(self) -> bool {
        self.warned > 0
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            succeeded,
            failed,
            warned,
        } = self;
        write!(f, "{succeeded} succeeded, {failed} failed, {warned} warned")
    }
}

/// Calls `found` with the path below `folder` and the text of every `checks.json`; scenarios may be nested.
fn collect(
    folder: &Path,
    path: &mut String,
    found: &mut impl FnMut(&str, String),
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            let length = path.len();
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(&name);
            collect(&entry.path(), path, found)?;
            path.truncate(length);
        } else if name == "checks.json" {
            found(path, fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

/// A name such as `ping-2026-01-31T12-00-00-000Z`, without its end.
fn without_time(name: &str) -> &str {
    let cut = name.len().saturating_sub("-2026-01-31T12-00-00-000Z".len());
    let is_time = name
        .get(cut..)
        .is_some_and(|end| end.starts_with("-2") && end.ends_with('Z'));
    if is_time { &name[..cut] } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_run_and_never_scored_is_not_required() {
        let listing = "\
Required for 2026-07-28 (2 scenarios, frozen):

Server scenarios (test against a server):
  - ping

Client scenarios (test against a client):
  - auth/metadata-default

Run and reported, but never scored:
  pending (1):
    - json-schema-2020-12 [server]
  - odd
";

        let required = Required::parse(listing);

        assert_eq!(required.of(Leg::Server), ["ping"]);
        assert_eq!(required.of(Leg::Client), ["auth/metadata-default"]);
    }

    #[test]
    fn a_folder_is_named_by_its_scenario_and_the_time() {
        let name = "auth/metadata-default-2026-11-15T10-05-03-201Z";

        assert_eq!(without_time(name), "auth/metadata-default");
        assert_eq!(without_time("ping"), "ping");
    }

    #[test]
    fn a_scenario_in_which_nothing_was_checked_has_not_passed() {
        let result = |text: &str| {
            let results = Results(BTreeMap::from([("ping".to_owned(), text.to_owned())]));
            results.judge("ping")
        };

        assert!(result("\"status\": \"SUCCESS\"").passed());
        assert!(result("\"status\": \"SUCCESS\" \"status\": \"WARNING\"").passed());
        assert!(!result("\"status\": \"SUCCESS\" \"status\": \"FAILURE\"").passed());
        assert!(!result("\"status\": \"SKIPPED\"").passed());
        assert!(!Results(BTreeMap::new()).judge("ping").passed());
    }
}
