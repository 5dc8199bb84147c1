//! Compares the instructions and allocations of one message of each kind with the committed baseline.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::callgrind::{self, Count, Totals};
use crate::machine;

/// Counts every case and prints those that exceed `baseline`; returns whether none does.
pub(crate) fn check(baseline: &Path) -> bool {
    if !callgrind::is_installed() {
        println!("Instructions were NOT counted: valgrind is not installed.");
        return true;
    }
    let expected = match std::fs::read_to_string(baseline) {
        Ok(text) => parse(&text),
        Err(error) => {
            println!("failed to read {}: {error}", baseline.display());
            return false;
        }
    };
    let counted = count();
    let problems = compare(&expected, &counted);
    print!("{}", write(&counted));
    for problem in &problems {
        println!("{problem}");
    }
    println!("{} kinds of message were counted", counted.len());
    problems.is_empty()
}

/// Counts every case and writes the baseline.
pub(crate) fn bless(baseline: &Path) -> bool {
    if !callgrind::is_installed() {
        println!("Instructions were NOT counted: valgrind is not installed.");
        return false;
    }
    let text = write(&count());
    print!("{text}");
    std::fs::write(baseline, text).is_ok()
}

type Counts = BTreeMap<String, Count>;

/// Counts each case in a short and a long run, on all cores in parallel.
fn count() -> Counts {
    let programs = ["bench-counts", "bench-telemetry", "bench-bridge"];
    let cases = programs.into_iter().flat_map(cases_of);
    let waiting = Mutex::new(cases.collect::<Vec<(PathBuf, String)>>());
    let counted = Mutex::new(Counts::new());
    std::thread::scope(|scope| {
        for worker in 0..machine::cores() {
            let (waiting, counted) = (&waiting, &counted);
            scope.spawn(move || {
                let next = || waiting.lock().ok()?.pop();
                while let Some((program, name)) = next() {
                    let total = |times| total(&program, &name, times, worker);
                    let count = Count::per_unit(total(SHORT), total(LONG), LONG - SHORT);
                    if let Ok(mut counted) = counted.lock() {
                        counted.insert(name, count);
                    }
                }
            });
        }
    });
    counted.into_inner().unwrap_or_default()
}

/// Returns the cases of a program.
fn cases_of(program: &str) -> Vec<(PathBuf, String)> {
    let path = machine::program_folder().join(program);
    let output = Command::new(&path).output();
    let output = output.unwrap_or_else(|error| panic!("failed to run `{program}`: {error}"));
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let cases = names.lines().map(|name| (path.clone(), name.to_owned()));
    cases.collect()
}

fn total(program: &Path, name: &str, times: u64, worker: usize) -> Totals {
    let out = std::env::temp_dir().join(format!("counts-{}-{worker}", std::process::id()));
    let mut command = Command::new(program);
    command.args([name, &times.to_string()]);
    let status = callgrind::command(&command, &out)
        .stdout(Stdio::null())
        .status();
    let succeeded = status.is_ok_and(|status| status.success());
    assert!(succeeded, "`{name}` failed");
    callgrind::read(&out)
}

fn compare(expected: &Counts, counted: &Counts) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, now) in counted {
        let Some(then) = expected.get(name) else {
            problems.push(format!(
                "`{name}` has no baseline: `cargo xtask counts --bless`"
            ));
            continue;
        };
        let grown = (now.instructions / then.instructions - 1.0) * 100.0;
        if grown > TOLERANCE_PERCENT {
            problems.push(format!(
                "`{name}` costs {grown:.0} % more: {:.0} instructions, {:.0} in the baseline",
                now.instructions, then.instructions
            ));
        }
        if now.allocations > then.allocations * (1.0 + TOLERANCE_PERCENT / 100.0) + 0.5 {
            problems.push(format!(
                "`{name}` allocates more: {:.1} times, {:.1} in the baseline",
                now.allocations, then.allocations
            ));
        }
    }
    let removed = expected.keys().filter(|name| !counted.contains_key(*name));
    problems.extend(removed.map(|name| format!("`{name}` is in the baseline, but not a case")));
    problems
}

fn parse(text: &str) -> Counts {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let instructions = words.next()?.parse().ok()?;
        let allocations = words.next()?.parse().ok()?;
        let name = words.collect::<Vec<&str>>().join(" ");
        Some((
            name,
            Count {
                instructions,
                allocations,
            },
        ))
    });
    read.collect()
}

fn write(counts: &Counts) -> String {
    let mut text = String::from(
        "# Instructions and allocations per message; `cargo xtask counts --bless` writes this.\n",
    );
    for (name, count) in counts {
        text.push_str(&format!(
            "{:>8.0} {:>6.1}  {name}\n",
            count.instructions, count.allocations
        ));
    }
    text
}

const TOLERANCE_PERCENT: f64 = 10.0;
const SHORT: u64 = 50;
const LONG: u64 = 250;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(instructions: f64, allocations: f64) -> Counts {
        Counts::from([(
            "a case".to_owned(),
            Count {
                instructions,
                allocations,
            },
        )])
    }

    #[test]
    fn a_written_baseline_can_be_parsed() {
        let counts = counts(12_345.0, 6.5);

        assert_eq!(parse(&write(&counts)), counts);
    }

    #[test]
    fn growth_above_ten_percent_is_a_problem() {
        let expected = counts(1_000.0, 10.0);

        assert!(compare(&expected, &counts(1_099.0, 11.0)).is_empty());
        assert_eq!(compare(&expected, &counts(1_101.0, 10.0)).len(), 1);
        assert_eq!(compare(&expected, &counts(1_000.0, 12.0)).len(), 1);
    }

    #[test]
    fn a_case_without_a_baseline_and_a_baseline_without_a_case_are_problems() {
        let empty = Counts::new();
        let one_case = counts(1.0, 1.0);

        assert_eq!(compare(&empty, &one_case).len(), 1);
        assert_eq!(compare(&one_case, &empty).len(), 1);
    }
}
