//! Exceptions to the rules, each with its reason. The list may only shrink.

use super::Violation;

/// One exception.
#[derive(Debug)]
pub(super) struct Allowance {
    rule: &'static str,
    path: &'static str,
    /// The exact line, trimmed; empty for the whole file.
    line: &'static str,
    /// For the reader: no rule looks at it, except that it must be there.
    reason: &'static str,
}

/// Takes out what an allowance excuses, and adds every allowance that excuses nothing.
pub(super) fn excuse(found: Vec<Violation>, allowances: &[Allowance]) -> Vec<Violation> {
    let unused: Vec<Violation> = allowances
        .iter()
        .filter(|allowance| {
            allowance.reason.is_empty()
                || !found.iter().any(|violation| allowance.covers(violation))
        })
        .map(Allowance::as_violation)
        .collect();
    found
        .into_iter()
        .filter(|violation| {
            !allowances
                .iter()
                .any(|allowance| allowance.covers(violation))
        })
        .chain(unused)
        .collect()
}

impl Allowance {
    fn covers(&self, violation: &Violation) -> bool {
        self.rule == violation.rule
            && self.path == violation.path
            && (self.line.is_empty() || self.line == violation.text)
    }

    fn as_violation(&self) -> Violation {
        let instead = format!(
            "the exception to `{}` for {} excuses nothing or has no reason: delete it",
            self.rule, self.path
        );
        Violation::new(
            "allowances",
            "xtask/src/tidy/allow.rs",
            0,
            self.line,
            &instead,
        )
    }
}

pub(super) const ALLOWANCES: &[Allowance] = &[
    Allowance {
        rule: "names",
        path: "crates/bowline/src/client/acts.rs",
        line: "pub fn get_prompt(",
        reason: "the specification's own word: `prompts/get`, `GetPromptRequest`",
    },
    Allowance {
        rule: "sessions",
        path: "crates/bowline/src/limits/mod.rs",
        line: "",
        reason: "every limit is set in one place, those of legacy sessions included",
    },
    Allowance {
        rule: "sessions",
        path: "crates/bowline/src/limits/usage.rs",
        line: "",
        reason: "all that is held is counted in one place, legacy sessions included",
    },
    Allowance {
        rule: "sleeps",
        path: "scenarios/tests/hostile/pause.rs",
        line: "tokio::time::sleep(duration).await;",
        reason: "hostile peers are slow in real time, and another process announces nothing",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn violation() -> Violation {
        Violation::new("length", "a.rs", 3, "fn long() {", "split it")
    }

    fn allowance(line: &'static str) -> Allowance {
        Allowance {
            rule: "length",
            path: "a.rs",
            line,
            reason: "a table reads best in one piece",
        }
    }

    #[test]
    fn an_exception_excuses_its_line_or_its_file() {
        for line in ["fn long() {", ""] {
            assert_eq!(excuse(vec![violation()], &[allowance(line)]), []);
        }
    }

    #[test]
    fn an_exception_excuses_no_other_line() {
        let left = excuse(vec![violation()], &[allowance("fn other() {")]);

        assert_eq!(left[0], violation());
    }

    #[test]
    fn an_exception_that_excuses_nothing_is_a_violation() {
        let left = excuse(Vec::new(), &[allowance("")]);

        assert_eq!(left[0].rule, "allowances");
    }

    #[test]
    fn an_exception_without_a_reason_is_a_violation() {
        let mute = Allowance {
            reason: "",
            ..allowance("")
        };

        assert_eq!(excuse(vec![violation()], &[mute])[0].rule, "allowances");
    }
}
