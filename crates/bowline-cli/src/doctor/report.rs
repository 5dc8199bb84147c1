//! [`Report`]: what the doctor found, as text for people and as JSON for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::codes::Code;
use crate::output::{Output, Style, display_width, fit, visible, visible_line, wrap};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Some clients or calls fail.
    Error,
    /// Works today, and costs time, safety or compatibility.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) code: &'static Code,
    pub(crate) severity: Severity,
    /// What was observed.
    pub(crate) what: String,
    /// How to mend it here, in place of the text of the code.
    mend: Option<String>,
}

impl Finding {
    pub(crate) fn new(code: &'static Code, what: impl Into<String>) -> Self {
        Self {
            code,
            severity: code.severity,
            what: what.into(),
            mend: None,
        }
    }

    #[must_use]
    pub(crate) fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    #[must_use]
    pub(crate) fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }

    fn how_to_mend(&self) -> &str {
        self.mend.as_deref().unwrap_or(self.code.mend)
    }
}

/// Something that could not be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unchecked {
    pub(crate) what: &'static str,
    pub(crate) why: String,
}

/// Everything that the doctor has to say about a target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) target: String,
    pub(crate) transport: &'static str,
    /// Labels and values of what was observed and is not wrong.
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) unchecked: Vec<Unchecked>,
    /// What the definitions cost, for programs.
    pub(crate) cost: Option<Value>,
    /// Where the URL redirects to.
    pub(crate) redirect: Option<String>,
    pub(crate) elapsed: Duration,
}

impl Report {
    pub(crate) fn new(target: impl Into<String>, transport: &'static str) -> Self {
        Self {
            target: target.into(),
            transport,
            ..Self::default()
        }
    }

    pub(crate) fn fact(&mut self, label: &'static str, value: impl Into<String>) {
        self.facts.push((label, value.into()));
    }

    pub(crate) fn unchecked(&mut self, what: &'static str, why: impl Into<String>) {
        let why = why.into();
        self.unchecked.push(Unchecked { what, why });
    }

    /// Sorts the findings, the worst first, and removes repeated ones.
    pub(crate) fn finish(&mut self, elapsed: Duration) {
        self.elapsed = elapsed;
        self.findings.sort_by_key(|finding| finding.severity);
        let mut seen: Vec<Finding> = Vec::new();
        for finding in self.findings.drain(..) {
            if !seen.contains(&finding) {
                seen.push(finding);
            }
        }
        self.findings = seen;
    }

    pub(crate) fn count(&self, severity: Severity) -> usize {
        let mut findings = self.findings.iter();
        findings
            .by_ref()
            .filter(|it| it.severity == severity)
            .count()
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    pub(crate) fn to_json(&self) -> Value {
        let finding = |it: &Finding| {
            json!({
                "code": it.code.name,
                "severity": it.severity.name(),
                "what": it.what,
                "why": it.code.why,
                "mend": it.how_to_mend(),
            })
        };
        let facts = self.facts.iter();
        let facts: Vec<_> = facts
            .map(|(label, value)| json!({"name": label, "value": value}))
            .collect();
        let unchecked = self.unchecked.iter();
        let unchecked: Vec<_> = unchecked
            .map(|it| json!({"what": it.what, "why": it.why}))
            .collect();
        json!({
            "target": self.target,
            "transport": self.transport,
            "facts": facts,
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "unchecked": unchecked,
            "cost": self.cost,
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "notes": self.count(Severity::Note),
            "elapsedMs": u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Returns the lines of the text, none longer than the width of the output.
    pub(crate) fn lines(&self, output: Output) -> Vec<String> {
        let mut lines =
            vec![output.style(Style::Bold, fit(&visible_line(&self.target), output.width))];
        for (label, value) in &self.facts {
            let label = format!("  {label:LABEL_WIDTH$}");
            lines.extend(paragraph(output, &label, value));
        }
        for finding in &self.findings {
            lines.push(String::new());
            lines.extend(finding_lines(output, finding));
        }
        if !self.unchecked.is_empty() {
            lines.push(String::new());
            lines.push(output.style(Style::Bold, "not checked"));
            for Unchecked { what, why } in &self.unchecked {
                lines.extend(paragraph(output, "  ", &format!("{what}: {why}")));
            }
        }
        lines.push(String::new());
        lines.push(self.summary(output));
        lines
    }

    fn summary(&self, output: Output) -> String {
        let count = |severity: Severity| {
            let count = self.count(severity);
            let plural = if count == 1 { "" } else { "s" };
            format!("{count} {}{plural}", severity.name())
        };
        let all = [Severity::Error, Severity::Warning, Severity::Note].map(count);
        let style = match (self.has_errors(), self.count(Severity::Warning)) {
            (true, _) => Style::Red,
            (false, 0) => Style::Green,
            (false, _) => Style::Yellow,
        };
        output.style(style, all.join(", "))
    }
}

fn finding_lines(output: Output, finding: &Finding) -> Vec<String> {
    let style = match finding.severity {
        Severity::Error => Style::Red,
        Severity::Warning => Style::Yellow,
        Severity::Note => Style::Cyan,
    };
    let severity = output.style(style, finding.severity.name());
    let mut lines = vec![format!(
        "{severity} {}",
        output.style(Style::Bold, finding.code.name)
    )];
    lines.extend(paragraph(output, "  ", &finding.what));
    lines.extend(paragraph(output, "  why: ", finding.code.why));
    lines.extend(paragraph(output, "  mend: ", finding.how_to_mend()));
    lines
}

/// Returns wrapped text after a label, all lines of which begin in the same column.
fn paragraph(output: Output, label: &str, text: &str) -> Vec<String> {
    let indent = display_width(label);
    let width = output.width.saturating_sub(indent).max(20);
    let lines = wrap(&visible(text), width);
    let with_indent = |(index, line): (usize, String)| match index {
        0 => format!("{label}{line}"),
        _ => format!("{:indent$}{line}", ""),
    };
    lines.into_iter().enumerate().map(with_indent).collect()
}

/// The longest label is `configured`.
const LABEL_WIDTH: usize = 11;

#[cfg(test)]
mod tests {
    use super::super::codes;
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("https://example.com/mcp", "http");
        report.fact("server", "clock 1.0 \u{1b}[31m");
        report
            .findings
            .push(Finding::new(&codes::NO_ANNOTATIONS, "3 tools"));
        report
            .findings
            .push(Finding::new(&codes::STDOUT_NOISE, "x".repeat(300)));
        report
            .findings
            .push(Finding::new(&codes::NO_ANNOTATIONS, "3 tools"));
        report.unchecked("cancellation", "no tool is known to be slow");
        report.finish(Duration::from_millis(7));
        report
    }

    #[test]
    fn the_worst_findings_come_first_and_none_twice() {
        let report = report();

        let codes: Vec<_> = report.findings.iter().map(|it| it.code.name).collect();
        assert_eq!(codes, ["stdout-noise", "no-annotations"]);
        assert!(report.has_errors());
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_escape_code_gets_out() {
        for width in [40, 80, 200] {
            for line in report().lines(Output::plain(width)) {
                assert!(display_width(&line) <= width, "{line}");
                assert!(!line.contains('\u{1b}'), "{line}");
            }
        }
    }

    #[test]
    fn json_has_everything_that_the_text_has() {
        let json = report().to_json();

        assert_eq!(json["findings"][0]["code"], "stdout-noise");
        assert_eq!(json["findings"][0]["severity"], "error");
        assert_eq!(json["unchecked"][0]["what"], "cancellation");
        assert_eq!((&json["errors"], &json["notes"]), (&json!(1), &json!(1)));
        for member in ["what", "why", "mend"] {
            let text = json["findings"][1][member].as_str();
            assert!(text.is_some_and(|text| !text.is_empty()), "{member}");
        }
    }
}
