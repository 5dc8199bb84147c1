//! `bowline check`: the laws of the specification over a recording.

use std::path::PathBuf;

use bowline_recording::{Finding, Report, all_laws, check};
use clap::Args;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, OutputOptions, Style, visible_line, wrap};
use crate::show::open;
use crate::suggestion::Suggestion;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct CheckOptions {
    /// The recording.
    #[arg(required_unless_present = "list")]
    file: Option<PathBuf>,
    /// Also write a report in the format of JUnit to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Do not check this law (repeatable).
    #[arg(long, value_name = "LAW")]
    allow: Vec<String>,
    /// List the laws.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    output: OutputOptions,
}

/// Prints what a recording violates.
///
/// # Errors
///
/// If it cannot be read.
pub(crate) fn run(options: &CheckOptions) -> Result<Exit, Failure> {
    let output = options.output.output();
    let unknown = options
        .allow
        .iter()
        .find(|name| all_laws().all(|law| law.name != **name));
    if let Some(name) = unknown {
        let failure = Failure::usage(format!("unknown rule `{}`", visible_line(name)));
        return Err(failure.suggest(Suggestion::ListRules));
    }
    let Some(file) = options.file.as_ref().filter(|_| !options.list) else {
        print_laws(output)?;
        return Ok(Exit::Success);
    };
    let mut report = check(&open(file)?);
    report
        .findings
        .retain(|it| !options.allow.iter().any(|name| name == it.law.name));
    if let Some(junit) = &options.junit {
        let xml = report.to_junit(&file.display().to_string());
        std::fs::write(junit, xml).map_err(|error| {
            Failure::other(format!("failed to write {}", junit.display())).caused_by(error)
        })?;
    }
    match output.is_json() {
        true => output.json(&report_json(&report))?,
        false => print_report(output, &report)?,
    }
    Ok(match report.findings.is_empty() {
        true => Exit::Success,
        false => Exit::Findings,
    })
}

fn print_report(output: Output, report: &Report) -> Result<(), Failure> {
    for finding in &report.findings {
        let style = match finding.law.level {
            bowline_recording::LawLevel::Must => Style::Red,
            bowline_recording::LawLevel::Should => Style::Yellow,
        };
        let name = output.style(style, finding.law.name);
        let exchange = finding
            .exchange
            .map(|it| format!(", #{it}"))
            .unwrap_or_default();
        output.line(format!("{name}  {}{exchange}", lines_text(finding)))?;
        let sentence = format!("{} ({})", finding.law.sentence, finding.law.level.as_str());
        for text in [visible_line(&finding.what).into_owned(), sentence] {
            for line in wrap(&text, output.width.saturating_sub(2)) {
                output.line(format!("  {line}"))?;
            }
        }
        for line in wrap(&finding.law.url(), output.width.saturating_sub(2)) {
            output.line(format!("  {}", output.style(Style::Dim, line)))?;
        }
    }
    for note in &report.notes {
        for line in wrap(&format!("note: {}", visible_line(note)), output.width) {
            output.line(line)?;
        }
    }
    let laws = all_laws().count();
    output.line(match report.findings.len() {
        0 => format!("nothing found; {laws} laws checked"),
        1 => format!("1 finding; {laws} laws checked"),
        count => format!("{count} findings; {laws} laws checked"),
    })?;
    Ok(())
}

fn lines_text(finding: &Finding) -> String {
    let mut lines: Vec<usize> = finding.lines.clone();
    lines.dedup();
    let shown: Vec<String> = lines.iter().take(5).map(ToString::to_string).collect();
    let more = match lines.len() > shown.len() {
        true => " …",
        false => "",
    };
    match shown.as_slice() {
        [one] => format!("line {one}"),
        many => format!("lines {}{more}", many.join(", ")),
    }
}

fn print_laws(output: Output) -> Result<(), Failure> {
    for law in all_laws() {
        if output.is_json() {
            output.json(&law_json(law))?;
            continue;
        }
        output.line(output.style(Style::Bold, law.name))?;
        for line in wrap(
            &format!("{} ({})", law.sentence, law.level.as_str()),
            output.width.saturating_sub(2),
        ) {
            output.line(format!("  {line}"))?;
        }
    }
    Ok(())
}

fn law_json(law: &bowline_recording::Law) -> Value {
    json!({"law": law.name, "level": law.level, "sentence": law.sentence, "reference": law.url()})
}

fn report_json(report: &Report) -> Value {
    let finding = |finding: &Finding| {
        let mut value = law_json(&finding.law);
        value["what"] = finding.what.as_str().into();
        value["lines"] = json!(finding.lines);
        value["exchange"] = json!(finding.exchange);
        value
    };
    let findings: Vec<Value> = report.findings.iter().map(finding).collect();
    json!({"findings": findings, "notes": report.notes, "laws": all_laws().count()})
}
