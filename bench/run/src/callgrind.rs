//! Counts instructions and allocations with valgrind. The difference of two runs of different length excludes the start
//! of the program.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The cost of one unit of work.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Count {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

impl Count {
    /// Divides the difference of two totals by the `units` of work between them.
    pub(crate) fn per_unit(short: Totals, long: Totals, units: u64) -> Self {
        let per = |short: u64, long: u64| long.saturating_sub(short) as f64 / units as f64;
        Self {
            instructions: per(short.instructions, long.instructions),
            allocations: per(short.allocations, long.allocations),
        }
    }
}

/// The totals of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    instructions: u64,
    allocations: u64,
}

pub(crate) fn is_installed() -> bool {
    let version = Command::new("valgrind").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

/// Returns a command that runs `program` under valgrind, which writes the counts to `out`.
pub(crate) fn command(program: &Command, out: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind"]);
    command.arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(program.get_program());
    command.args(program.get_args().collect::<Vec<&OsStr>>());
    command
}

/// Reads and removes the file that valgrind wrote.
///
/// # Panics
///
/// If there is no file, because a result would be missing.
pub(crate) fn read(out: &Path) -> Totals {
    let text = std::fs::read(out);
    let text = text.unwrap_or_else(|error| panic!("failed to read {}: {error}", out.display()));
    let _ = std::fs::remove_file(out);
    Totals::parse(&String::from_utf8_lossy(&text))
}

impl Totals {
    fn parse(text: &str) -> Self {
        let mut totals = Self::default();
        // A function has its name at the first occurrence only, and its number at all others.
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
                callee_allocates = record_function(&mut allocates, rest);
            } else if let Some(rest) = line.strip_prefix("fn=") {
                record_function(&mut allocates, rest);
            }
        }
        totals
    }
}

/// Records a function `(number) name` or looks up `(number)`; returns whether it allocates.
fn record_function<'a>(allocates: &mut HashMap<&'a str, bool>, text: &'a str) -> bool {
    match text.split_once(' ') {
        Some((number, name)) => {
            let is_allocator = ALLOCATORS.contains(&name);
            allocates.insert(number, is_allocator);
            is_allocator
        }
        None => allocates.get(text).copied().unwrap_or(false),
    }
}

/// The functions that Rust's allocator calls.
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
    fn the_start_of_the_program_is_not_counted() {
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
