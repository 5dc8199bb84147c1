//! Runs the command `bowline` against a server, as a user does, and checks what it prints and its exit codes.
//!
//! ```text
//! interop-tool 2026 http://127.0.0.1:3000/mcp
//! interop-tool legacy python3 server.py --transport stdio
//! interop-tool auto --tool add '{"a": 2, "b": 40}' 42 npx some-server
//! ```
//!
//! The server provides the fixture; with `--tool` it is any server, and one of its tools is called. `bowline` is the
//! program of this name in the folder of this one. The report has the format of the other interop clients.

#![allow(clippy::print_stdout, reason = "the report is printed to stdout")]

mod case_checks;
mod fixture_checks;
mod program;
mod recorded;
mod target;

use std::process::ExitCode;

use case_checks::ToolCase;
use target::{Target, Tool};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (tool, case) = match parse(&words) {
        Ok(parsed) => parsed,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report::default();
    match &case {
        Some(case) => case_checks::run(&tool, case, &mut report),
        None => fixture_checks::run(&tool, &mut report),
    }
    let Report { passed, failed } = report;
    println!("{passed} passed, {failed} failed");
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// What a check that did not fail has to say.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Ok,
    Skipped(&'static str),
}

/// An error is a text: it is printed, and nothing else.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Parses the command line: the mode, an optional tool, and the server.
fn parse(words: &[String]) -> Result<(Tool, Option<ToolCase>)> {
    let (mode, rest) = words.split_first().ok_or("no mode given")?;
    let version = match mode.as_str() {
        "auto" => None,
        "2026" => Some(target::MODERN),
        "legacy" => Some("2025-11-25"),
        _ => return Err(format!("unknown mode `{mode}`")),
    };
    let (case, target) = ToolCase::parse(rest)?;
    let target = match target {
        [] => return Err("no server given".to_owned()),
        [url] if url.starts_with("http://") => Target::Url(url.clone()),
        words => Target::Command(words.to_vec()),
    };
    let bowline = std::env::current_exe().map_err(|error| error.to_string())?;
    let bowline = bowline.with_file_name(format!("bowline{}", std::env::consts::EXE_SUFFIX));
    Ok((Tool::new(bowline, version, target), case))
}

/// Prints the results, and counts them.
#[derive(Debug, Default)]
pub(crate) struct Report {
    passed: usize,
    failed: usize,
}

impl Report {
    pub(crate) fn version(&self, version: &str) {
        println!("# {version}");
    }

    pub(crate) fn add(&mut self, name: &str, outcome: Result<Outcome>) {
        match outcome {
            Ok(Outcome::Ok) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Ok(Outcome::Skipped(why)) => println!("skipped {name}: {why}"),
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}: {}", error.replace('\n', " "));
            }
        }
    }
}

const USAGE: &str = "usage: interop-tool auto|2026|legacy [--tool NAME ARGUMENTS EXPECTED \
    [--slow NAME ARGUMENTS]] URL | COMMAND…";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<(Tool, Option<ToolCase>)> {
        let words: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
        parse(&words)
    }

    #[test]
    fn the_mode_an_optional_tool_and_the_server_are_given() {
        let (tool, case) = parsed(&["2026", "http://host/mcp"]).unwrap();
        assert!(tool.is_http() && tool.is_modern("2026-07-28") && case.is_none());

        let (tool, case) = parsed(&["auto", "--tool", "add", "{}", "42", "server", "-f"]).unwrap();
        assert!(!tool.is_http() && case.is_some());
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for line in [
            &[][..],
            &["auto"],
            &["never", "server"],
            &["auto", "--tool", "add"],
        ] {
            assert!(parsed(line).is_err(), "{line:?}");
        }
    }
}
