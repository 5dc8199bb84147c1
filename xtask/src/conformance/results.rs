//! What the suite writes: the scenarios of a set, and the checks of each scenario.
//!
//! A scenario passes here if at least one check succeeded, none failed, none warned, and our client, if it is
//! the one that is tested, ended as it should. The suite itself lets one pass in which nothing was checked,
//! because the client crashed before.

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
    /// Reads what `list` prints.
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

    /// Those that must pass.
    pub(crate) fn counted(&self, leg: Leg) -> &[String] {
        self.counted.get(&leg).map_or(&[], Vec::as_slice)
    }

    /// Those that are run as well.
    pub(crate) fn not_scored(&self, leg: Leg) -> &[String] {
        self.not_scored.get(&leg).map_or(&[], Vec::as_slice)
    }
}

/// A part of the listing.
#[derive(Clone, Copy, Debug)]
enum Section {
    Of(Leg),
    NotScored,
    Other,
}

/// What came of every scenario that was run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// The checks of each.
    checks: BTreeMap<String, String>,
    /// How our client ended in each, if that is what was tested.
    exits: Option<BTreeMap<String, i32>>,
}

impl Results {
    /// Reads every `checks.json` in `folder`, whose own folder is named by its scenario and the time, and how
    /// our client ended.
    pub(crate) fn read(folder: &Path, leg: Leg, exits: &Path) -> io::Result<Self> {
        let mut results = Self::default();
        if leg == Leg::Client {
            results.exits = Some(parse_exits(&fs::read_to_string(exits)?));
        }
        collect(folder, &mut String::new(), &mut |path, text| {
            let name = match leg {
                Leg::Server => path.strip_prefix("server-").unwrap_or(path),
                Leg::Client => path,
            };
            results.checks.insert(without_time(name).to_owned(), text);
        })?;
        Ok(results)
    }

    pub(crate) fn judge(&self, scenario: &str) -> Judged {
        let checks = self.checks.get(scenario).map_or("", String::as_str);
        let count = |status: &str| checks.matches(&format!("\"status\": \"{status}\"")).count();
        let exits = self.exits.as_ref();
        Judged {
            succeeded: count("SUCCESS"),
            failed: count("FAILURE"),
            warned: count("WARNING"),
            exit: exits.map_or(Exit::Right, |exits| match exits.get(scenario) {
                Some(0) => Exit::Right,
                Some(_) if MAY_FAIL.contains(&scenario) => Exit::Right,
                Some(status) => Exit::Wrong(*status),
                None => Exit::Never,
            }),
        }
    }
}

/// How a scenario went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    succeeded: usize,
    failed: usize,
    warned: usize,
    exit: Exit,
}

/// How our client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// As it should, or it was not the client that was tested.
    Right,
    Wrong(i32),
    /// It was not run, or did not come to its end.
    Never,
}

impl Judged {
    pub(crate) fn passed(self) -> bool {
        self.succeeded > 0 && self.failed == 0 && self.warned == 0 && self.exit == Exit::Right
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            succeeded,
            failed,
            warned,
            exit,
        } = self;
        write!(f, "{succeeded} succeeded, {failed} failed, {warned} warned")?;
        match exit {
            Exit::Right => Ok(()),
            Exit::Wrong(status) => write!(f, ", our client ended with {status}"),
            Exit::Never => write!(f, ", our client never ended"),
        }
    }
}

/// Reads lines of a scenario and a status; a scenario that was run twice must have ended well twice.
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

/// A name such as `ping-2026-01-31T12-00-00-000Z`, without its end.
fn without_time(name: &str) -> &str {
    let cut = name.len().saturating_sub("-2026-01-31T12-00-00-000Z".len());
    let is_time = name
        .get(cut..)
        .is_some_and(|end| end.starts_with("-2") && end.ends_with('Z'));
    if is_time { &name[..cut] } else { name }
}

/// Scenarios in which a client does well to give up, and says so.
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
    fn what_is_run_and_never_scored_is_not_counted() {
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
    fn a_listing_by_version_names_the_versions_of_each_scenario() {
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
    fn a_folder_is_named_by_its_scenario_and_the_time() {
        let name = "auth/metadata-default-2026-11-15T10-05-03-201Z";

        assert_eq!(without_time(name), "auth/metadata-default");
        assert_eq!(without_time("ping"), "ping");
    }

    fn passes(checks: &str, exits: Option<&str>) -> bool {
        let results = Results {
            checks: BTreeMap::from([("ping".to_owned(), checks.to_owned())]),
            exits: exits.map(parse_exits),
        };
        results.judge("ping").passed()
    }

    #[test]
    fn a_scenario_passes_if_something_succeeded_and_nothing_else_was_said() {
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
    fn a_client_must_have_ended_well() {
        let success = "\"status\": \"SUCCESS\"";

        assert!(passes(success, Some("ping 0")));
        assert!(!passes(success, Some("ping 1")));
        assert!(!passes(success, Some("ping 1\nping 0")));
        assert!(!passes(success, Some("")));
    }

    #[test]
    fn where_a_client_does_well_to_give_up_it_may() {
        let scenario = "auth/resource-mismatch";
        let results = Results {
            checks: BTreeMap::from([(scenario.to_owned(), "\"status\": \"SUCCESS\"".to_owned())]),
            exits: Some(parse_exits("auth/resource-mismatch 1")),
        };

        assert!(results.judge(scenario).passed());
    }
}
