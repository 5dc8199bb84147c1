//! Parses the output of the suite: the scenarios of a set, and the checks of each scenario.
//!
//! A scenario passes here if at least one check succeeded, none failed or warned, and our client, if it is under test,
//! exited as expected. The suite itself passes a scenario without checks, for example if the client crashed early.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::Leg;

/// The scenarios of a set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scenarios {
    counted: BTreeMap<Leg, Vec<String>>,
    not_scored: BTreeMap<Leg, Vec<String>>,
}

impl Scenarios {
    /// Parses the output of `list`.
    pub(crate) fn parse(listing: &str) -> Self {
        let mut scenarios = Self::default();
        let mut section = Section::Other;
        for line in listing.lines() {
            if let Some(item) = line.trim_start().strip_prefix("- ") {
                let (name, mark) = item.split_once(" [").unwrap_or((item, ""));
                let (lists, leg) = match (section, mark) {
                    (Section::Of(leg), _) => (&mut scenarios.counted, leg),
                    (Section::NotScored, "server]") => (&mut scenarios.not_scored, Leg::Server),
                    (Section::NotScored, "client]") => (&mut scenarios.not_scored, Leg::Client),
                    _ => continue,
                };
                lists.entry(leg).or_default().push(name.to_owned());
            } else if line.starts_with("Server scenarios") {
                section = Section::Of(Leg::Server);
            } else if line.starts_with("Client scenarios") {
                section = Section::Of(Leg::Client);
            } else if line.starts_with("Run and reported, but never scored") {
                section = Section::NotScored;
            } else if !line.is_empty() && !line.starts_with(' ') {
                section = Section::Other;
            }
        }
        scenarios
    }

    /// Returns the scenarios that must pass.
    pub(crate) fn counted(&self, leg: Leg) -> &[String] {
        self.counted.get(&leg).map_or(&[], Vec::as_slice)
    }

    /// Returns the scenarios that run but are not scored.
    pub(crate) fn not_scored(&self, leg: Leg) -> &[String] {
        self.not_scored.get(&leg).map_or(&[], Vec::as_slice)
    }
}

/// A section of the listing.
#[derive(Clone, Copy, Debug)]
enum Section {
    Of(Leg),
    NotScored,
    Other,
}

/// The results of every scenario that ran.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// The `checks.json` of each scenario.
    checks: BTreeMap<String, String>,
    /// The exit status of our client in each scenario, if the client is under test.
    exits: Option<BTreeMap<String, i32>>,
}

impl Results {
    /// Reads every `checks.json` in `folder`, and the exit statuses of our client. The folder of a `checks.json` is
    /// named after its scenario and the time.
    pub(crate) fn read(folder: &Path, leg: Leg, exits: &Path) -> io::Result<Self> {
        let mut results = Self::default();
        if leg.of_suite() == Leg::Client {
            results.exits = Some(parse_exits(&fs::read_to_string(exits)?));
        }
        collect(folder, &mut String::new(), &mut |path, text| {
            let name = match leg.of_suite() {
                Leg::Client => path,
                _ => path.strip_prefix("server-").unwrap_or(path),
            };
            results.checks.insert(without_time(name).to_owned(), text);
        })?;
        Ok(results)
    }

    pub(crate) fn evaluate(&self, scenario: &str) -> ScenarioResult {
        let checks = self.checks.get(scenario).map_or("", String::as_str);
        let count = |status: &str| checks.matches(&format!("\"status\": \"{status}\"")).count();
        let exits = self.exits.as_ref();
        ScenarioResult {
            succeeded: count("SUCCESS"),
            failed: count("FAILURE"),
            warned: count("WARNING"),
            exit: exits.map_or(ClientExit::Expected, |exits| match exits.get(scenario) {
                Some(0) => ClientExit::Expected,
                Some(_) if MAY_FAIL.contains(&scenario) => ClientExit::Expected,
                Some(status) => ClientExit::Unexpected(*status),
                None => ClientExit::Missing,
            }),
        }
    }
}

/// The result of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScenarioResult {
    succeeded: usize,
    failed: usize,
    warned: usize,
    exit: ClientExit,
}

/// The exit of our client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientExit {
    /// As expected, or the client was not under test.
    Expected,
    Unexpected(i32),
    /// The client did not run or did not exit.
    Missing,
}

impl ScenarioResult {
    #[cfg(test)]
    pub(super) fn of(succeeded: usize, failed: usize) -> Self {
        Self {
            succeeded,
            failed,
            warned: 0,
            exit: ClientExit::Expected,
        }
    }

    pub(crate) fn passed(self) -> bool {
        self.succeeded > 0
            && self.failed == 0
            && self.warned == 0
            && self.exit == ClientExit::Expected
    }
}

impl fmt::Display for ScenarioResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            succeeded,
            failed,
            warned,
            exit,
        } = self;
        write!(f, "{succeeded} succeeded, {failed} failed, {warned} warned")?;
        match exit {
            ClientExit::Expected => Ok(()),
            ClientExit::Unexpected(status) => write!(f, ", our client exited with {status}"),
            ClientExit::Missing => write!(f, ", our client did not exit"),
        }
    }
}

/// Parses lines of a scenario and a status. Of several runs of one scenario, the first failure counts.
fn parse_exits(text: &str) -> BTreeMap<String, i32> {
    let mut exits = BTreeMap::new();
    for line in text.lines() {
        if let Some((scenario, status)) = line.rsplit_once(' ')
            && let Ok(status) = status.parse()
        {
            let exit = exits.entry(scenario.to_owned()).or_insert(status);
            *exit = if *exit == 0 { status } else { *exit };
        }
    }
    exits
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

/// Removes the time from a name such as `ping-2026-01-31T12-00-00-000Z`.
fn without_time(name: &str) -> &str {
    let cut = name.len().saturating_sub("-2026-01-31T12-00-00-000Z".len());
    let is_time = name
        .get(cut..)
        .is_some_and(|end| end.starts_with("-2") && end.ends_with('Z'));
    if is_time { &name[..cut] } else { name }
}

/// Scenarios in which the client is expected to fail.
const MAY_FAIL: [&str; 8] = [
    "auth/iss-normalized",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
    "http-invalid-tool-headers",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_that_are_not_scored_are_not_counted() {
        let listing = "\
Required for 2026-07-28 (2 scenarios, frozen):

Server scenarios (test against a server):
  - ping

Client scenarios (test against a client):
  - auth/metadata-default

Run and reported, but never scored:
  pending (2):
    - json-schema-2020-12 [server]
    - auth/dpop [client]
";

        let scenarios = Scenarios::parse(listing);

        assert_eq!(scenarios.counted(Leg::Server), ["ping"]);
        assert_eq!(scenarios.counted(Leg::Client), ["auth/metadata-default"]);
        assert_eq!(scenarios.not_scored(Leg::Server), ["json-schema-2020-12"]);
        assert_eq!(scenarios.not_scored(Leg::Client), ["auth/dpop"]);
    }

    #[test]
    fn the_versions_after_a_scenario_are_ignored() {
        let listing = "\
Server scenarios (test against a server):
  - ping [2025-06-18,2025-11-25]

Authorization server scenarios (test against an authorization server):
  - authorization-code-grant [2025-06-18]
";

        let scenarios = Scenarios::parse(listing);

        assert_eq!(scenarios.counted(Leg::Server), ["ping"]);
        assert!(scenarios.counted(Leg::Client).is_empty());
    }

    #[test]
    fn the_time_is_removed_from_the_name_of_a_folder() {
        let name = "auth/metadata-default-2026-11-15T10-05-03-201Z";

        assert_eq!(without_time(name), "auth/metadata-default");
        assert_eq!(without_time("ping"), "ping");
    }

    fn passes(checks: &str, exits: Option<&str>) -> bool {
        let results = Results {
            checks: BTreeMap::from([("ping".to_owned(), checks.to_owned())]),
            exits: exits.map(parse_exits),
        };
        results.evaluate("ping").passed()
    }

    #[test]
    fn a_scenario_passes_if_a_check_succeeded_and_none_failed_or_warned() {
        let success = "\"status\": \"SUCCESS\"";

        assert!(passes(success, None));
        for other in ["WARNING", "FAILURE"] {
            let checks = format!("{success} \"status\": \"{other}\"");
            assert!(!passes(&checks, None), "{other}");
        }
        assert!(!passes("\"status\": \"SKIPPED\"", None));
        assert!(!passes("", None));
    }

    #[test]
    fn a_client_must_exit_with_status_0() {
        let success = "\"status\": \"SUCCESS\"";

        assert!(passes(success, Some("ping 0")));
        assert!(!passes(success, Some("ping 1")));
        assert!(!passes(success, Some("ping 1\nping 0")));
        assert!(!passes(success, Some("")));
    }

    #[test]
    fn a_client_may_fail_where_that_is_expected() {
        let scenario = "auth/resource-mismatch";
        let results = Results {
            checks: BTreeMap::from([(scenario.to_owned(), "\"status\": \"SUCCESS\"".to_owned())]),
            exits: Some(parse_exits("auth/resource-mismatch 1")),
        };

        assert!(results.evaluate(scenario).passed());
    }
}
