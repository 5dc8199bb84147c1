//! A report in the XML format of JUnit, which continuous integration shows as tests.

use std::fmt::Write as _;

use super::{Finding, Report, all_laws};

impl Report {
    /// Returns the report in the XML format of JUnit: a test per law, which fails with the law's findings.
    #[must_use]
    pub fn to_junit(&self, recording: &str) -> String {
        let laws = all_laws().count();
        let broken = all_laws().filter(|law| self.of(law.name).next().is_some());
        let broken = broken.count();
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        // Writing to a string does not fail.
        let _ = writeln!(
            xml,
            "<testsuites tests=\"{laws}\" failures=\"{broken}\">\n  <testsuite name=\"{}\" tests=\"{laws}\" failures=\"{broken}\" errors=\"0\" skipped=\"0\">",
            escape(recording)
        );
        for law in all_laws() {
            let mut findings = self.of(law.name).peekable();
            let (name, page) = (escape(law.name), escape(law.page));
            if findings.peek().is_none() {
                let _ = writeln!(xml, "    <testcase name=\"{name}\" classname=\"{page}\"/>");
                continue;
            }
            let _ = writeln!(xml, "    <testcase name=\"{name}\" classname=\"{page}\">");
            let findings: Vec<&Finding> = findings.collect();
            let message = match findings.as_slice() {
                [one] => one.what.clone(),
                all => format!("{} findings", all.len()),
            };
            let _ = writeln!(
                xml,
                "      <failure type=\"{}\" message=\"{}\">{}",
                law.level.as_str(),
                escape(&message),
                escape(law.sentence)
            );
            let _ = writeln!(xml, "{}", escape(&law.url()));
            for finding in findings {
                let lines: Vec<String> = finding.lines.iter().map(ToString::to_string).collect();
                let what = escape(&finding.what);
                let _ = writeln!(xml, "line {}: {what}", lines.join(", "));
            }
            xml.push_str("</failure>\n    </testcase>\n");
        }
        xml.push_str("  </testsuite>\n</testsuites>\n");
        xml
    }

    fn of(&self, law: &str) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |it| it.law.name == law)
    }
}

/// Escapes text for XML. Characters that XML does not allow are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}') => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}
