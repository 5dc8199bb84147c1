//! Prints the comparisons of a replay.

use std::io;

use bowline_recording::{JsonChange, ReplayOutcome, ReplayReport, ReplayedRequest};
use serde_json::{Value, json};

use crate::output::{Output, Style, fit, visible_line};

pub(super) struct Printer {
    output: Output,
    is_quiet: bool,
    /// The first error of printing; after it nothing is printed.
    error: Option<io::Error>,
}

impl Printer {
    pub(super) fn new(output: Output, is_quiet: bool) -> Self {
        Self {
            output,
            is_quiet,
            error: None,
        }
    }

    /// Prints one request, and where its answer differs.
    pub(super) fn request(&mut self, request: &ReplayedRequest) {
        if self.error.is_some() || (self.is_quiet && !request.outcome.is_finding()) {
            return;
        }
        let printed = match self.output.is_json() {
            true => self.output.json(&to_json(request)),
            false => lines(self.output, request)
                .into_iter()
                .try_for_each(|line| self.output.line(line)),
        };
        self.error = printed.err();
    }

    /// Prints how many requests there were.
    ///
    /// # Errors
    ///
    /// If stdout is closed.
    pub(super) fn summary(self, report: &ReplayReport) -> io::Result<()> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let counts = [
            ("same", report.count(|it| matches!(it, ReplayOutcome::Same))),
            (
                "different",
                report.count(|it| matches!(it, ReplayOutcome::Different { .. })),
            ),
            (
                "failed",
                report.count(|it| matches!(it, ReplayOutcome::Failed { .. })),
            ),
            (
                "cancelled",
                report.count(|it| matches!(it, ReplayOutcome::Cancelled)),
            ),
            (
                "skipped",
                report.count(|it| matches!(it, ReplayOutcome::Skipped { .. })),
            ),
        ];
        if self.output.is_json() {
            let mut summary = json!({"version": report.version, "requests": report.requests.len()});
            for (name, count) in counts {
                summary[name] = json!(count);
            }
            return self.output.json(&json!({"summary": summary}));
        }
        let parts: Vec<String> = counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let total = report.requests.len();
        self.output.line(format!(
            "{total} requests in {}: {}",
            report.version,
            parts.join(", ")
        ))
    }
}

fn lines(output: Output, request: &ReplayedRequest) -> Vec<String> {
    let (word, style) = match &request.outcome {
        ReplayOutcome::Same => ("same", Style::Green),
        ReplayOutcome::Different { .. } => ("different", Style::Red),
        ReplayOutcome::Failed { .. } => ("failed", Style::Red),
        ReplayOutcome::Cancelled => ("cancelled", Style::Dim),
        _ => ("skipped", Style::Dim),
    };
    let what = match &request.name {
        Some(name) => format!("{} {name}", request.method),
        None => request.method.clone(),
    };
    let what = fit(&visible_line(&what), output.width.saturating_sub(17));
    let number = request.number;
    let word = output.style(style, format!("{word:9}"));
    let mut lines = vec![format!("{word} {number:5}  {what}")];
    let width = output.width.saturating_sub(INDENT.len());
    let mut add = |text: &str| lines.push(format!("{INDENT}{}", fit(text, width)));
    match &request.outcome {
        ReplayOutcome::Different { changes } => {
            for change in changes {
                add(&path_of(change));
                let value = |value: &Option<Value>| match value {
                    Some(value) => visible_line(&value.to_string()).into_owned(),
                    None => "nothing".to_owned(),
                };
                add(&format!("- {}", value(&change.left)));
                add(&format!("+ {}", value(&change.right)));
            }
        }
        ReplayOutcome::Failed { why } | ReplayOutcome::Skipped { why } => add(&visible_line(why)),
        _ => {}
    }
    lines
}

fn path_of(change: &JsonChange) -> String {
    match change.path.as_str() {
        "" => "$".to_owned(),
        path => visible_line(path).into_owned(),
    }
}

fn to_json(request: &ReplayedRequest) -> Value {
    let mut value = json!({"number": request.number, "method": request.method});
    if let Some(name) = &request.name {
        value["name"] = json!(name);
    }
    let outcome = match &request.outcome {
        ReplayOutcome::Same => "same",
        ReplayOutcome::Different { changes } => {
            let change = |change: &JsonChange| json!({"path": change.path, "recorded": change.left, "actual": change.right});
            value["differences"] = changes.iter().map(change).collect();
            "different"
        }
        ReplayOutcome::Failed { why } => {
            value["why"] = json!(why);
            "failed"
        }
        ReplayOutcome::Cancelled => "cancelled",
        ReplayOutcome::Skipped { why } => {
            value["why"] = json!(why);
            "skipped"
        }
        _ => "unknown",
    };
    value["outcome"] = json!(outcome);
    value
}

const INDENT: &str = "           ";
