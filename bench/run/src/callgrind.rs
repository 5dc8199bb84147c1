//! Instructions and allocations, counted by valgrind: two runs of different length subtracted, so that what
//! happens once is not in the figure.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// What one unit of work costs, without noise.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Count {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

impl Count {
    /// The difference of two totals that are `units` of work apart, per unit.
    pub(crate) fn per_unit(short: Totals, long: Totals, units: u64) -> Self {
        let per = |short: u64, long: u64| long.saturating_sub(short) as f64 / units as f64;
        Self {
            instructions: per(short.instructions, long.instructions),
            allocations: per(short.allocations, long.allocations),
        }
    }
}

/// What a whole run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    instructions: u64,
    allocations: u64,
}

pub(crate) fn is_there() -> bool {
    let version = Command::new("valgrind").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

/// `program` under valgrind, which writes what it counts to `out`.
pub(crate) fn under(program: &Command, out: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind"]);
    command.arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(program.get_program());
    command.args(program.get_args().collect::<Vec<&OsStr>>());
    command
}

/// Reads what valgrind wrote, and removes it.
///
/// # Panics
///
/// If it wrote nothing: a figure would be missing.
pub(crate) fn read(out: &Path) -> Totals {
    let text = std::fs::read(out);
    let text = text.unwrap_or_else(|error| panic!("valgrind left no {}: {error}", out.display()));
    let _ = std::fs::remove_file(out);
    Totals::parse(&String::from_utf8_lossy(&text))
}

impl Totals {
    fn parse(text: &str) -> Self {
        let mut totals = Self::default();
        // A name stands beside its number once; later there is only the number.
        let mut allocates: HashMap<&str, bool> = HashMap::new();
        let mut callee_allocates = false;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("totals: ") {
                totals.instructions = rest.trim().parse().unwrap_or(0);
            } else if let Some(rest) = line.strip_prefix("calls=") {
                let count = rest.split(' ').next().and_then(|count| count.parse().ok());
                if callee_allocates {
                    totals.allocations += count.unwrap_or(0u64);
                }
            } else if let Some(rest) = line.strip_prefix("cfn=") {
                callee_allocates = learn(&mut allocates, rest);
            } else if let Some(rest) = line.strip_prefix("fn=") {
                learn(&mut allocates, rest);
            }
        }
        totals
    }
}

/// Whether the function `(number) name` allocates, now that it is known.
fn learn<'a>(allocates: &mut HashMap<&'a str, bool>, text: &'a str) -> bool {
    match text.split_once(' ') {
        Some((number, name)) => {
            let yes = ALLOCATORS.contains(&name);
            allocates.insert(number, yes);
            yes
        }
        None => allocates.get(text).copied().unwrap_or(false),
    }
}

/// What Rust's allocator calls.
const ALLOCATORS: [&str; 5] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_allocator_are_counted_by_name_and_by_number() {
        let text = "\
fn=(1) main
cfn=(2) malloc
calls=3 0
1 30
cfn=(3) free
calls=9 0
1 9
fn=(4) other
cfn=(2)
calls=4 0
2 40
totals: 12345
";

        let totals = Totals::parse(text);

        assert_eq!(
            totals,
            Totals {
                instructions: 12_345,
                allocations: 7
            }
        );
    }

    #[test]
    fn what_happens_once_is_not_in_the_figure() {
        let short = Totals {
            instructions: 1_100,
            allocations: 60,
        };
        let long = Totals {
            instructions: 2_100,
            allocations: 80,
        };

        let count = Count::per_unit(short, long, 10);

        assert_eq!(
            count,
            Count {
                instructions: 100.0,
                allocations: 2.0
            }
        );
    }
}
