//! Exceptions to the rules, each with its reason. The list may only shrink.

use super::Violation;

/// One exception.
#[derive(Debug)]
pub(super) struct Allowance {
    rule: &'static str,
    path: &'static str,
    /// The exact line, trimmed; empty for the whole file.
    line: &'static str,
    /// For the reader; must not be empty.
    reason: &'static str,
}

/// Removes the violations that are allowed, and adds a violation for each unused allowance.
pub(super) fn apply_allowances(found: Vec<Violation>, allowances: &[Allowance]) -> Vec<Violation> {
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
        let advice = format!(
            "the exception to `{}` for {} is unused or has no reason: delete it",
            self.rule, self.path
        );
        Violation::new(
            "allowances",
            "xtask/src/tidy/allow.rs",
            0,
            self.line,
            &advice,
        )
    }
}

pub(super) const ALLOWANCES: &[Allowance] = &[
    Allowance {
        rule: "names",
        path: "crates/bowline/src/client/requests.rs",
        line: "pub fn get_prompt(",
        reason: "the name in the specification: `prompts/get`, `GetPromptRequest`",
    },
    Allowance {
        rule: "sessions",
        path: "crates/bowline/src/limits/mod.rs",
        line: "",
        reason: "all limits are set in one type, including those of legacy sessions",
    },
    Allowance {
        rule: "sessions",
        path: "crates/bowline/src/limits/usage.rs",
        line: "",
        reason: "all usage is counted in one type, including legacy sessions",
    },
    Allowance {
        rule: "sessions",
        path: "crates/bowline/src/telemetry/handled.rs",
        line: "{ attribute::MCP_SESSION_ID } = Empty,",
        reason: "a span declares all of its fields at once, including that of legacy requests",
    },
    Allowance {
        rule: "sessions",
        path: "crates/bowline/src/telemetry/names.rs",
        line: "",
        reason: "all names are in one file, including those of legacy sessions",
    },
    Allowance {
        rule: "sessions",
        path: "crates/bowline/src/seal/purpose.rs",
        line: "",
        reason: "all purposes are listed in one type, including the ids of legacy sessions",
    },
    Allowance {
        rule: "sessions",
        path: "crates/bowline/src/seal/sealer.rs",
        line: "Purpose::SessionId,",
        reason: "a test seals for every purpose",
    },
    Allowance {
        rule: "urls",
        path: "crates/bowline-auth/src/client/loopback.rs",
        line: "let address = format!(\"{}{}\", expected.redirect_uri, &target[path.len()..]);",
        reason: "it is the URL that the browser requested, which is read and not shown",
    },
    Allowance {
        rule: "urls",
        path: "crates/bowline-auth/src/server/claims.rs",
        line: "let principal = Principal::named(format!(\"{issuer} {subject}\"))",
        reason: "a principal is identified by the exact issuer, which has no query",
    },
    Allowance {
        rule: "urls",
        path: "crates/bowline-cli/src/telemetry/otlp.rs",
        line: ".with_endpoint(format!(\"{endpoint}/v1/traces\"))",
        reason: "it is the URL that is requested, and not shown",
    },
    Allowance {
        rule: "urls",
        path: "crates/bowline-cli/src/telemetry/otlp.rs",
        line: ".with_endpoint(format!(\"{endpoint}/v1/metrics\"))",
        reason: "it is the URL that is requested, and not shown",
    },
    Allowance {
        rule: "urls",
        path: "crates/bowline-cli/src/sign_in.rs",
        line: "eprintln!(\"bowline: {server} requires a sign-in; open this address in a browser:\\n{url}\");",
        reason: "the person must open this very address",
    },
    Allowance {
        rule: "urls",
        path: "crates/bowline/src/server/completion.rs",
        line: "write!(f, \"variable `{variable}` of template `{uri}`\")",
        reason: "the template is part of the public definition of the server",
    },
    Allowance {
        rule: "sleeps",
        path: "crates/bowline-bridge/tests/storm/pause.rs",
        line: "tokio::time::sleep(duration).await;",
        reason: "killed servers and clients run in real time, and another process cannot signal an event",
    },
    Allowance {
        rule: "sleeps",
        path: "scenarios/tests/hostile/pause.rs",
        line: "tokio::time::sleep(duration).await;",
        reason: "hostile peers are slow in real time, and another process cannot signal an event",
    },
    Allowance {
        rule: "cancel-safety",
        path: "crates/bowline/src/testing/cluster_laws/faults.rs",
        line: "",
        reason: "a law is a test, which is not dropped",
    },
    Allowance {
        rule: "cancel-safety",
        path: "crates/bowline/src/testing/cluster_laws/marks.rs",
        line: "",
        reason: "a law is a test, which is not dropped",
    },
    Allowance {
        rule: "cancel-safety",
        path: "crates/bowline/src/testing/cluster_laws/messages.rs",
        line: "",
        reason: "a law is a test, which is not dropped",
    },
    Allowance {
        rule: "cancel-safety",
        path: "crates/bowline/src/testing/cluster_laws/servers.rs",
        line: "",
        reason: "a law is a test, which is not dropped",
    },
    Allowance {
        rule: "cancel-safety",
        path: "crates/bowline-tasks/src/testing/laws.rs",
        line: "",
        reason: "a law is a test, which is not dropped",
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
            reason: "a table is easier to read in one piece",
        }
    }

    #[test]
    fn an_exception_allows_its_line_or_its_file() {
        for line in ["fn long() {", ""] {
            assert_eq!(apply_allowances(vec![violation()], &[allowance(line)]), []);
        }
    }

    #[test]
    fn an_exception_does_not_allow_another_line() {
        let left = apply_allowances(vec![violation()], &[allowance("fn other() {")]);

        assert_eq!(left[0], violation());
    }

    #[test]
    fn an_unused_exception_is_a_violation() {
        let left = apply_allowances(Vec::new(), &[allowance("")]);

        assert_eq!(left[0].rule, "allowances");
    }

    #[test]
    fn an_exception_without_a_reason_is_a_violation() {
        let without_reason = Allowance {
            reason: "",
            ..allowance("")
        };

        assert_eq!(
            apply_allowances(vec![violation()], &[without_reason])[0].rule,
            "allowances"
        );
    }
}
