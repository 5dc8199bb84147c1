//! The command line and the output of libtest, for test programs with `harness = false`.
#![allow(
    clippy::print_stdout,
    reason = "a test harness prints to standard output"
)]

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

/// The parsed command line. A word selects the tests whose line contains it, `--skip` excludes them, and `--exact`
/// compares whole lines; other options of libtest are ignored.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CommandLine {
    words: Vec<String>,
    skipped: Vec<String>,
    list: bool,
    exact: bool,
    /// The number after `--calls`.
    pub calls: Option<usize>,
}

/// The message of a failed test; `None` if it passed.
pub type Failure = Option<String>;

impl CommandLine {
    /// Parses the arguments, without the name of the program.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut command_line = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => command_line.list = true,
                "--exact" => command_line.exact = true,
                "--skip" => command_line.skipped.extend(arguments.next()),
                "--color" | "--format" | "--logfile" | "--shuffle-seed" | "--test-threads"
                | "-Z" => {
                    arguments.next();
                }
                "--calls" => {
                    command_line.calls = arguments.next().and_then(|calls| calls.parse().ok());
                }
                option if option.starts_with('-') => {
                    command_line
                        .skipped
                        .extend(option.strip_prefix("--skip=").map(String::from));
                }
                _ => command_line.words.push(argument),
            }
        }
        command_line
    }

    fn selects(&self, line: &str) -> bool {
        let matches = |word: &String| match self.exact {
            true => line == word,
            false => line.contains(word.as_str()),
        };
        let is_selected = self.words.is_empty() || self.words.iter().any(matches);
        is_selected && !self.skipped.iter().any(matches)
    }

    fn selects_all(&self) -> bool {
        self.words.is_empty() && self.skipped.is_empty()
    }

    /// Lists the tests, or runs those that are selected, as many at a time as there are processors. If all are, it then
    /// runs the `checks`, which need the results of the whole run.
    pub fn run<T: Send>(
        &self,
        mut tests: Vec<T>,
        name: impl Fn(&T) -> String + Sync,
        run: impl Fn(&T) -> Failure + Sync,
        checks: impl FnOnce(&[(T, Failure)]) -> Vec<(&'static str, Failure)>,
    ) -> ExitCode {
        tests.retain(|test| self.selects(&name(test)));
        if self.list {
            tests
                .iter()
                .for_each(|test| println!("{}: test", name(test)));
            return ExitCode::SUCCESS;
        }
        println!("\nrunning {} tests", tests.len());
        let (queue, ran) = (Mutex::new(VecDeque::from(tests)), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(test) = next(&queue) {
                        let failure = run(&test);
                        report(&name(&test), failure.as_ref());
                        let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
                        ran.push((test, failure));
                    }
                });
            }
        });
        let ran = ran.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut results: Vec<(String, Failure)> = ran
            .iter()
            .map(|(test, failure)| (name(test), failure.clone()))
            .collect();
        if self.selects_all() {
            for (name, failure) in checks(&ran) {
                report(name, failure.as_ref());
                results.push((name.to_owned(), failure));
            }
        }
        conclude(&results)
    }
}

fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.pop_front()
}

fn report(name: &str, failure: Option<&String>) {
    let verdict = if failure.is_none() { "ok" } else { "FAILED" };
    println!("test {name} ... {verdict}");
}

/// Prints the failures and the verdict.
fn conclude(results: &[(String, Failure)]) -> ExitCode {
    let mut failed = 0;
    for (name, failure) in results {
        if let Some(failure) = failure {
            println!("\n---- {name} ----\n{failure}");
            failed += 1;
        }
    }
    let (passed, is_ok) = (results.len() - failed, failed == 0);
    let verdict = if is_ok { "ok" } else { "FAILED" };
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored\n");
    if is_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(arguments: &str) -> Vec<&'static str> {
        let command_line = CommandLine::parse(arguments.split_whitespace().map(String::from));
        let lines = ["call (stdio)", "call (http)", "list (http)"];
        lines
            .into_iter()
            .filter(|line| command_line.selects(line))
            .collect()
    }

    #[test]
    fn words_select_and_skipped_words_exclude() {
        let all = ["call (stdio)", "call (http)", "list (http)"];
        assert_eq!(selected("--test-threads 1 --nocapture --color never"), all);
        assert_eq!(selected("call --test-threads=1"), all[..2]);
        assert_eq!(selected("--skip call"), all[2..]);
        assert_eq!(selected("http --skip=list"), all[1..2]);
        assert_eq!(selected("--exact call"), all[..0]);
    }
}
