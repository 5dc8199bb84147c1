//! What one message of each kind costs in instructions, compared to what it cost when it was last agreed upon.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::callgrind::{self, Count, Totals};
use crate::machine;

/// Counts every case, and says which of them cost more than `baseline` allows; true if none does.
pub(crate) fn check(baseline: &Path) -> bool {
    if !callgrind::is_there() {
        println!("Instructions were NOT counted: there is no valgrind on this machine.");
        return true;
    }
    let agreed = match std::fs::read_to_string(baseline) {
        Ok(text) => parse(&text),
        Err(error) => {
            println!("{} could not be read: {error}", baseline.display());
            return false;
        }
    };
    let counted = count();
    let complaints = compare(&agreed, &counted);
    print!("{}", write(&counted));
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!("{} kinds of message were counted", counted.len());
    complaints.is_empty()
}

/// Counts every case, and agrees upon what it finds.
pub(crate) fn bless(baseline: &Path) -> bool {
    if !callgrind::is_there() {
        println!("Instructions were NOT counted: there is no valgrind on this machine.");
        return false;
    }
    let text = write(&count());
    print!("{text}");
    std::fs::write(baseline, text).is_ok()
}

type Counts = BTreeMap<String, Count>;

/// Each case in a short and in a long run, as many at once as there are cores.
fn count() -> Counts {
    let program = machine::programs().join("bench-counts");
    let output = Command::new(&program)
        .output()
        .expect("`bench-counts` was built");
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let waiting = Mutex::new(names.lines().collect::<Vec<&str>>());
    let counted = Mutex::new(Counts::new());
    std::thread::scope(|scope| {
        for worker in 0..machine::cores() {
            let (waiting, counted, program) = (&waiting, &counted, &program);
            scope.spawn(move || {
                let next = || waiting.lock().ok()?.pop();
                while let Some(name) = next() {
                    let total = |times| total(program, name, times, worker);
                    let count = Count::per_unit(total(SHORT), total(LONG), LONG - SHORT);
                    if let Ok(mut counted) = counted.lock() {
                        counted.insert(name.to_owned(), count);
                    }
                }
            });
        }
    });
    counted.into_inner().unwrap_or_default()
}

fn total(program: &Path, name: &str, times: u64, worker: usize) -> Totals {
    let out = std::env::temp_dir().join(format!("counts-{}-{worker}", std::process::id()));
    let mut command = Command::new(program);
    command.args([name, &times.to_string()]);
    let status = callgrind::under(&command, &out)
        .stdout(Stdio::null())
        .status();
    let ended_well = status.is_ok_and(|status| status.success());
    assert!(ended_well, "`{name}` failed");
    callgrind::read(&out)
}

fn compare(agreed: &Counts, counted: &Counts) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, now) in counted {
        let Some(then) = agreed.get(name) else {
            complaints.push(format!(
                "`{name}` has no baseline: `cargo xtask counts --bless`"
            ));
            continue;
        };
        let grown = (now.instructions / then.instructions - 1.0) * 100.0;
        if grown > TOLERATED {
            complaints.push(format!(
                "`{name}` costs {grown:.0} % more: {:.0} instructions, and {:.0} in the baseline",
                now.instructions, then.instructions
            ));
        }
        if now.allocations > then.allocations * (1.0 + TOLERATED / 100.0) + 0.5 {
            complaints.push(format!(
                "`{name}` allocates more: {:.1} times, and {:.1} in the baseline",
                now.allocations, then.allocations
            ));
        }
    }
    let gone = agreed.keys().filter(|name| !counted.contains_key(*name));
    complaints.extend(gone.map(|name| format!("`{name}` is in the baseline and nowhere else")));
    complaints
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

/// In percent.
const TOLERATED: f64 = 10.0;
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
    fn what_is_written_is_read_again() {
        let counts = counts(12_345.0, 6.5);

        assert_eq!(parse(&write(&counts)), counts);
    }

    #[test]
    fn a_tenth_more_is_tolerated_and_no_more_than_that() {
        let agreed = counts(1_000.0, 10.0);

        assert!(compare(&agreed, &counts(1_099.0, 11.0)).is_empty());
        assert_eq!(compare(&agreed, &counts(1_101.0, 10.0)).len(), 1);
        assert_eq!(compare(&agreed, &counts(1_000.0, 12.0)).len(), 1);
    }

    #[test]
    fn a_case_without_a_baseline_is_a_complaint_and_so_is_a_baseline_without_a_case() {
        let nothing = Counts::new();
        let something = counts(1.0, 1.0);

        assert_eq!(compare(&nothing, &something).len(), 1);
        assert_eq!(compare(&something, &nothing).len(), 1);
    }
}
