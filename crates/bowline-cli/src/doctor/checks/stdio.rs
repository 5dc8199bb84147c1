//! How a server process starts, what it prints, and how it ends.

use std::time::Duration;

use super::super::codes;
use super::super::report::Finding;
use super::count;

/// What was observed of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessFacts {
    pub(crate) first_message_after: Option<Duration>,
    /// The first lines of stdout that are not messages, and how many there are.
    pub(crate) noise: Vec<String>,
    pub(crate) noise_count: usize,
    /// Whether it exited when its stdin was closed; `None` if that was not tried.
    pub(crate) exits_at_end_of_input: Option<bool>,
}

/// Judges a process that answered.
pub(crate) fn process(
    facts: &ProcessFacts,
    slow_start: Duration,
    exit_limit: Duration,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if facts.noise_count > 0 {
        let lines = count(facts.noise_count, "line");
        let first = facts.noise.first().map_or("", String::as_str);
        let what = match facts.noise_count {
            1 => format!("The server wrote a line to stdout that is not a message: `{first}`."),
            _ => format!(
                "The server wrote {lines} to stdout that are not messages, first `{first}`."
            ),
        };
        findings.push(Finding::new(&codes::STDOUT_NOISE, what));
    }
    if let Some(after) = facts
        .first_message_after
        .filter(|after| *after > slow_start)
    {
        let what = format!("The first answer came after {:.1} s.", after.as_secs_f64());
        findings.push(Finding::new(&codes::SLOW_START, what));
    }
    if facts.exits_at_end_of_input == Some(false) {
        let what = format!("The server still ran {exit_limit:?} after its stdin was closed.");
        findings.push(Finding::new(&codes::NO_EXIT_ON_EOF, what));
    }
    findings
}

/// Judges a program that could not be started. `exists_elsewhere` is where it was found, if anywhere.
pub(crate) fn cannot_start(program: &str, error: &str, exists_elsewhere: Option<&str>) -> Finding {
    let what = format!("`{program}` could not be started: {error}.");
    let finding = Finding::new(&codes::CANNOT_START, what);
    let has_spaces = program.contains(char::is_whitespace);
    match exists_elsewhere {
        Some(path) => finding.mend(format!("Use the full path, {path}.")),
        None if has_spaces => {
            finding.mend("There is no shell: give the program and its arguments separately.")
        }
        None => finding,
    }
}

/// Judges a process that ended before it answered.
pub(crate) fn exited_early(how: &str, stderr: &[String]) -> Finding {
    let mut what = format!("The server ended before it answered: {how}.");
    if !stderr.is_empty() {
        what.push_str(" It printed:\n");
        what.push_str(&stderr.join("\n"));
    }
    Finding::new(&codes::EXITED_EARLY, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_a_slow_start_and_a_process_that_stays_are_named() {
        let limit = Duration::from_secs(5);
        let healthy = ProcessFacts {
            first_message_after: Some(limit),
            exits_at_end_of_input: Some(true),
            ..ProcessFacts::default()
        };
        let faulty = ProcessFacts {
            first_message_after: Some(Duration::from_secs(6)),
            noise: vec!["Listening…".into()],
            noise_count: 3,
            exits_at_end_of_input: Some(false),
        };

        assert!(process(&healthy, limit, limit).is_empty());
        let found = process(&faulty, limit, limit);

        let codes: Vec<_> = found.iter().map(|it| it.code.name).collect();
        assert_eq!(codes, ["stdout-noise", "slow-start", "no-exit-on-eof"]);
        assert!(found[0].what.contains("3 lines") && found[0].what.contains("Listening…"));
    }

    #[test]
    fn what_a_server_printed_before_it_ended_is_shown() {
        let finding = exited_early("it exited with code 1", &["API_KEY is not set".into()]);

        assert!(
            finding.what.ends_with("API_KEY is not set"),
            "{}",
            finding.what
        );
    }
}
