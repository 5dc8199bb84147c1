//! The checks of a server without the fixture, which call one of its tools.

use crate::fixture_checks::{end_watch, ensure, examine, find_signature, list, start_watch};
use crate::recorded::Recorded;
use crate::target::Tool;
use crate::{Outcome, Report, Result};

/// Runs every check.
pub(crate) fn run(tool: &Tool, case: &ToolCase, report: &mut Report) {
    report.add("bowline ls", ls(tool, case, report));
    report.add("bowline call", call(tool, case));
    report.add("bowline watch", watch(tool));
    // One recording for both.
    let options = ["--args", &case.arguments];
    match Recorded::call(tool, &options, &[&case.tool], 0) {
        Ok(recorded) => {
            report.add("bowline tap", tap(tool, case, &recorded));
            report.add("bowline check", recorded.check(tool));
        }
        Err(error) => {
            report.add("bowline tap", Err(error.clone()));
            report.add("bowline check", Err(error));
        }
    }
    // Whether a call of this server is seen to go on after a cancel depends on the time that it takes.
    report.add("bowline doctor", examine(tool, &["--no-cancel"]));
}

/// A tool, its arguments as JSON, and a part of the text that it returns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCase {
    tool: String,
    arguments: String,
    expected: String,
}

impl ToolCase {
    /// Parses `--tool NAME ARGUMENTS EXPECTED` at the beginning of `words`, and returns the remaining words. `--slow NAME
    /// ARGUMENTS`, an option of `interop-client`, is ignored.
    pub(crate) fn parse(words: &[String]) -> Result<(Option<Self>, &[String])> {
        let (case, rest) = match words {
            [option, tool, arguments, expected, rest @ ..] if option == "--tool" => {
                let case = Self {
                    tool: tool.clone(),
                    arguments: arguments.clone(),
                    expected: expected.clone(),
                };
                (case, rest)
            }
            [option, ..] if option == "--tool" => return Err("incomplete `--tool`".to_owned()),
            _ => return Ok((None, words)),
        };
        match rest {
            [option, _, _, rest @ ..] if option == "--slow" => Ok((Some(case), rest)),
            _ => Ok((Some(case), rest)),
        }
    }
}

/// The tool is listed.
fn ls(tool: &Tool, case: &ToolCase, report: &Report) -> Result<Outcome> {
    list(tool, &case.tool, report)?;
    find_signature(tool, &format!("{}(", case.tool))
}

/// The tool returns the expected text.
fn call(tool: &Tool, case: &ToolCase) -> Result<Outcome> {
    let called = tool.run("call", &["--args", &case.arguments], &[&case.tool])?;
    ensure(called.expect(0)?.stdout.contains(&case.expected), || {
        format!("expected `{}` from {}", case.expected, called.describe())
    })?;
    Ok(Outcome::Ok)
}

/// `watch` subscribes to whatever the server has, and ends at Ctrl-C.
fn watch(tool: &Tool) -> Result<Outcome> {
    match start_watch(tool, &[]) {
        Ok(watch) => end_watch(watch).map(|()| Outcome::Ok),
        // A modern server need not have any.
        Err(why) if why.contains("it has no `subscriptions/listen`") => Ok(Outcome::Skipped(
            "the server has no subscriptions, and the command says so",
        )),
        Err(why) => Err(why),
    }
}

/// The call is recorded with its result.
fn tap(tool: &Tool, case: &ToolCase, recorded: &Recorded) -> Result<Outcome> {
    let exchange = recorded.exchange(tool, &case.tool)?;
    ensure(exchange["state"] == "answered", || {
        format!("expected a result, got {exchange}")
    })?;
    Ok(Outcome::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_slow_call_of_a_case_is_ignored() {
        let line = words("--tool add {} 42 --slow nap {} server");
        let (case, target) = ToolCase::parse(&line).unwrap();

        assert_eq!(case.unwrap().expected, "42");
        assert_eq!(target, ["server"]);
    }

    #[test]
    fn without_tool_all_words_are_the_target() {
        let line = words("server --tool add {} 42");

        assert_eq!(ToolCase::parse(&line).unwrap(), (None, &line[..]));
    }
}
