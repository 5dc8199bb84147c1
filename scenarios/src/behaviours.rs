//! The behaviours that scenarios are to cover, and how many of them are.
//!
//! `behaviours.txt` has a behaviour a line: `id | flags | comes with | sentence`. What comes with something
//! that is not built yet waits for it; everything else applies now. `uncovered.txt` lists what applies and
//! has no scenario: `id | what excuses it`, where the excuse quotes the specification.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::Scenario;

/// All behaviours, and those that are excused.
#[derive(Debug, Default)]
pub(crate) struct Behaviours {
    all: Vec<Behaviour>,
    excuses: BTreeMap<String, String>,
}

/// Something that a client, a server or both do.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(crate) id: String,
    /// What it waits for, if it does.
    pub(crate) comes_with: Option<String>,
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
            let [id, _flags, comes_with, _sentence] = fields(line)?;
            behaviours.all.push(Behaviour {
                id,
                comes_with: (comes_with != "now").then_some(comes_with),
            });
        }
        for line in lines(uncovered) {
            let [id, excuse] = fields(line)?;
            behaviours.excuses.insert(id, excuse);
        }
        Ok(behaviours)
    }
}

/// Which behaviours are covered, and what is wrong with that.
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
            if let Some(issue) = &behaviour.comes_with {
                *waiting.entry(issue.clone()).or_insert(0) += 1;
            }
        }
        Counts {
            all: all.len(),
            covered: all.iter().filter(|one| self.is_covered(one)).count(),
            excused: self.behaviours.excuses.len(),
            waiting,
        }
    }

    /// What is wrong, a line each.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let Behaviours { all, excuses } = &self.behaviours;
        let known: BTreeSet<&str> = all.iter().map(|behaviour| behaviour.id.as_str()).collect();
        let mut complaints = Vec::new();
        for behaviour in all {
            let id = &behaviour.id;
            let is_excused = excuses.contains_key(id);
            match (self.is_covered(behaviour), is_excused) {
                (true, true) => complaints.push(format!("{id} is covered and needs no excuse")),
                (false, true) if behaviour.comes_with.is_some() => {
                    complaints.push(format!("{id} waits for something and needs no excuse"));
                }
                (false, false) if behaviour.comes_with.is_none() => {
                    complaints.push(format!("{id} is neither covered nor excused"));
                }
                _ => {}
            }
        }
        let named = excuses
            .keys()
            .map(String::as_str)
            .chain(self.covered.iter().copied());
        complaints.extend(
            named
                .filter(|id| !known.contains(id))
                .map(|id| format!("{id} is no behaviour of behaviours.txt")),
        );
        complaints.extend(
            excuses
                .iter()
                .filter(|(_, excuse)| !excuse.contains('“'))
                .map(|(id, _)| format!("{id} is excused without a sentence of the specification")),
        );
        if known.len() != all.len() {
            complaints.push("behaviours.txt names a behaviour twice".to_owned());
        }
        if excuses.len() > MOST_EXCUSED {
            complaints.push(format!("more than {MOST_EXCUSED} behaviours are excused"));
        }
        complaints
    }

    fn is_covered(&self, behaviour: &Behaviour) -> bool {
        self.covered.contains(behaviour.id.as_str())
    }
}

/// How many behaviours there are, and what became of them.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) all: usize,
    pub(crate) covered: usize,
    pub(crate) excused: usize,
    /// How many wait for what.
    pub(crate) waiting: BTreeMap<String, usize>,
}

/// A file of this folder.
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
        .map_err(|_| format!("`{line}` does not have {N} fields"))
}

const MOST_EXCUSED: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(all: &str, uncovered: &str, covers: &'static [&'static str]) -> Vec<String> {
        let behaviours = Behaviours::parse(all, uncovered).unwrap();
        let scenario = Scenario::new("area", "name", covers, |_| Box::pin(async {}));
        Coverage::of(behaviours, &[scenario]).complaints()
    }

    const TWO: &str = "# two\n\na:b | +26 | now | a does b\nc:d | | HTTP | c does d\n";

    #[test]
    fn what_applies_must_be_covered_or_excused_and_what_waits_need_not() {
        assert_eq!(complaints(TWO, "", &["a:b"]), [""; 0]);
        assert_eq!(complaints(TWO, "a:b | it says “may”", &[]), [""; 0]);
        assert_eq!(
            complaints(TWO, "", &[]),
            ["a:b is neither covered nor excused"]
        );
    }

    #[test]
    fn an_excuse_must_be_needed_and_must_quote_the_specification() {
        let covered = complaints(TWO, "a:b | it says “may”", &["a:b"]);
        let unquoted = complaints(TWO, "a:b | we did not feel like it", &[]);
        let waiting = complaints(TWO, "c:d | it says “may”", &["a:b"]);

        assert_eq!(covered, ["a:b is covered and needs no excuse"]);
        let why = "a:b is excused without a sentence of the specification";
        assert_eq!(unquoted, [why]);
        assert_eq!(waiting, ["c:d waits for something and needs no excuse"]);
    }

    #[test]
    fn what_is_named_must_exist_and_only_once() {
        let unknown = complaints(TWO, "", &["a:b", "x:y"]);
        let twice = complaints(&format!("{TWO}{TWO}"), "", &["a:b"]);

        assert_eq!(unknown, ["x:y is no behaviour of behaviours.txt"]);
        assert_eq!(twice, ["behaviours.txt names a behaviour twice"]);
    }

    #[test]
    fn not_too_much_can_be_excused() {
        let all: String = (0..=MOST_EXCUSED)
            .map(|n| format!("a:{n} | | now | x\n"))
            .collect();
        let excuses: String = (0..=MOST_EXCUSED)
            .map(|n| format!("a:{n} | “may”\n"))
            .collect();

        let complaints = complaints(&all, &excuses, &[]);

        assert_eq!(complaints, ["more than 40 behaviours are excused"]);
    }

    #[test]
    fn behaviours_are_counted_by_what_became_of_them() {
        let behaviours = Behaviours::parse(TWO, "").unwrap();
        let scenario = Scenario::new("area", "name", &["a:b"], |_| Box::pin(async {}));

        let counts = Coverage::of(behaviours, &[scenario]).counts();

        assert_eq!((counts.all, counts.covered, counts.excused), (2, 1, 0));
        assert_eq!(counts.waiting["HTTP"], 1);
    }
}
