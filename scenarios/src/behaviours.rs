//! Reads the list of behaviours, and computes which of them scenarios cover.
//!
//! `behaviours.txt` has one behaviour per line: `id | flags | depends on | sentence`. A behaviour that depends on a
//! missing feature is not required yet; `now` means that it is. `uncovered.txt` lists required behaviours without a
//! scenario: `id | reason`, where the reason quotes the specification.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::Scenario;

/// All behaviours, and the reasons for those without a scenario.
#[derive(Debug, Default)]
pub(crate) struct Behaviours {
    all: Vec<Behaviour>,
    excuses: BTreeMap<String, String>,
}

/// A behaviour of a client, a server or both.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(crate) id: String,
    /// The missing feature that it depends on.
    pub(crate) depends_on: Option<String>,
}

impl Behaviours {
    /// Reads both files.
    pub(crate) fn read() -> Result<Self, String> {
        let text =
            |name| fs::read_to_string(file(name)).map_err(|error| format!("{name}: {error}"));
        Self::parse(&text("behaviours.txt")?, &text("uncovered.txt")?)
    }

    fn parse(all: &str, uncovered: &str) -> Result<Self, String> {
        let mut behaviours = Self::default();
        for line in lines(all) {
            let [id, _flags, depends_on, _sentence] = fields(line)?;
            behaviours.all.push(Behaviour {
                id,
                depends_on: (depends_on != "now").then_some(depends_on),
            });
        }
        for line in lines(uncovered) {
            let [id, excuse] = fields(line)?;
            behaviours.excuses.insert(id, excuse);
        }
        Ok(behaviours)
    }
}

/// The behaviours that scenarios cover.
#[derive(Debug)]
pub(crate) struct Coverage {
    behaviours: Behaviours,
    covered: BTreeSet<&'static str>,
}

impl Coverage {
    pub(crate) fn of(behaviours: Behaviours, scenarios: &[Scenario]) -> Self {
        let covered = scenarios.iter().flat_map(Scenario::covers).copied();
        Self {
            behaviours,
            covered: covered.collect(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let all = &self.behaviours.all;
        let mut waiting = BTreeMap::new();
        for behaviour in all.iter().filter(|behaviour| !self.is_covered(behaviour)) {
            if let Some(feature) = &behaviour.depends_on {
                *waiting.entry(feature.clone()).or_insert(0) += 1;
            }
        }
        Counts {
            all: all.len(),
            covered: all.iter().filter(|one| self.is_covered(one)).count(),
            excused: self.behaviours.excuses.len(),
            waiting,
        }
    }

    /// Returns the problems, one line each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let Behaviours { all, excuses } = &self.behaviours;
        let known: BTreeSet<&str> = all.iter().map(|behaviour| behaviour.id.as_str()).collect();
        let mut problems = Vec::new();
        for behaviour in all {
            let id = &behaviour.id;
            let is_excused = excuses.contains_key(id);
            match (self.is_covered(behaviour), is_excused) {
                (true, true) => {
                    problems.push(format!("{id} is covered and listed in uncovered.txt"))
                }
                (false, true) if behaviour.depends_on.is_some() => {
                    problems.push(format!(
                        "{id} is not required yet and listed in uncovered.txt"
                    ));
                }
                (false, false) if behaviour.depends_on.is_none() => {
                    problems.push(format!(
                        "{id} is neither covered nor listed in uncovered.txt"
                    ));
                }
                _ => {}
            }
        }
        let named = excuses
            .keys()
            .map(String::as_str)
            .chain(self.covered.iter().copied());
        problems.extend(
            named
                .filter(|id| !known.contains(id))
                .map(|id| format!("{id} is not in behaviours.txt")),
        );
        problems.extend(
            excuses
                .iter()
                .filter(|(_, excuse)| !excuse.contains('“'))
                .map(|(id, _)| format!("the reason for {id} does not quote the specification")),
        );
        if known.len() != all.len() {
            problems.push("behaviours.txt contains a duplicate id".to_owned());
        }
        if excuses.len() > MAX_EXCUSED {
            problems.push(format!(
                "more than {MAX_EXCUSED} behaviours are listed in uncovered.txt"
            ));
        }
        problems
    }

    fn is_covered(&self, behaviour: &Behaviour) -> bool {
        self.covered.contains(behaviour.id.as_str())
    }
}

/// The number of behaviours by their coverage.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) all: usize,
    pub(crate) covered: usize,
    pub(crate) excused: usize,
    /// The number of uncovered behaviours per missing feature.
    pub(crate) waiting: BTreeMap<String, usize>,
}

/// The path of a file of this package.
pub(crate) fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn fields<const N: usize>(line: &str) -> Result<[String; N], String> {
    let fields: Vec<String> = line
        .splitn(N, '|')
        .map(|field| field.trim().to_owned())
        .collect();
    fields
        .try_into()
        .map_err(|_| format!("expected {N} fields, got `{line}`"))
}

const MAX_EXCUSED: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(all: &str, uncovered: &str, covers: &'static [&'static str]) -> Vec<String> {
        let behaviours = Behaviours::parse(all, uncovered).unwrap();
        let scenario = Scenario::new("area", "name", covers, |_| Box::pin(async {}));
        Coverage::of(behaviours, &[scenario]).problems()
    }

    const TWO: &str = "# two\n\na:b | +26 | now | a does b\nc:d | | HTTP | c does d\n";

    #[test]
    fn required_behaviours_must_be_covered_or_listed() {
        assert_eq!(problems(TWO, "", &["a:b"]), [""; 0]);
        assert_eq!(problems(TWO, "a:b | it says “may”", &[]), [""; 0]);
        assert_eq!(
            problems(TWO, "", &[]),
            ["a:b is neither covered nor listed in uncovered.txt"]
        );
    }

    #[test]
    fn a_reason_must_be_needed_and_must_quote_the_specification() {
        let covered = problems(TWO, "a:b | it says “may”", &["a:b"]);
        let unquoted = problems(TWO, "a:b | not implemented", &[]);
        let waiting = problems(TWO, "c:d | it says “may”", &["a:b"]);

        assert_eq!(covered, ["a:b is covered and listed in uncovered.txt"]);
        let problem = "the reason for a:b does not quote the specification";
        assert_eq!(unquoted, [problem]);
        assert_eq!(
            waiting,
            ["c:d is not required yet and listed in uncovered.txt"]
        );
    }

    #[test]
    fn ids_must_exist_and_be_unique() {
        let unknown = problems(TWO, "", &["a:b", "x:y"]);
        let twice = problems(&format!("{TWO}{TWO}"), "", &["a:b"]);

        assert_eq!(unknown, ["x:y is not in behaviours.txt"]);
        assert_eq!(twice, ["behaviours.txt contains a duplicate id"]);
    }

    #[test]
    fn the_number_of_uncovered_behaviours_is_limited() {
        let all: String = (0..=MAX_EXCUSED)
            .map(|n| format!("a:{n} | | now | x\n"))
            .collect();
        let excuses: String = (0..=MAX_EXCUSED)
            .map(|n| format!("a:{n} | “may”\n"))
            .collect();

        let problems = problems(&all, &excuses, &[]);

        assert_eq!(
            problems,
            ["more than 40 behaviours are listed in uncovered.txt"]
        );
    }

    #[test]
    fn behaviours_are_counted_by_coverage() {
        let behaviours = Behaviours::parse(TWO, "").unwrap();
        let scenario = Scenario::new("area", "name", &["a:b"], |_| Box::pin(async {}));

        let counts = Coverage::of(behaviours, &[scenario]).counts();

        assert_eq!((counts.all, counts.covered, counts.excused), (2, 1, 0));
        assert_eq!(counts.waiting["HTTP"], 1);
    }
}
