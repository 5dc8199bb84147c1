//! Prints the demonstration to stdout: for a terminal, as plain lines, or as JSON.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use super::report::DemoReport;
use crate::options::OutputFormat;

/// Writes to stdout in the chosen format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    kind: ScreenKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScreenKind {
    /// Lines in colours, which can be redrawn.
    Terminal,
    /// Plain lines.
    Lines,
    /// One JSON object at the end.
    Json,
}

/// A progress bar.
#[derive(Debug)]
pub(crate) struct ProgressBar {
    label: String,
    kind: ScreenKind,
}

impl Screen {
    pub(crate) fn new(format: OutputFormat) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let kind = match format {
            OutputFormat::Json => ScreenKind::Json,
            OutputFormat::Text if !is_plain && std::io::stdout().is_terminal() => {
                ScreenKind::Terminal
            }
            OutputFormat::Text | OutputFormat::Plain => ScreenKind::Lines,
        };
        Self { kind }
    }

    pub(crate) fn title(&self, text: &str) {
        match self.kind {
            ScreenKind::Terminal => println!("\n{BOLD}{text}{NORMAL}\n"),
            ScreenKind::Lines => println!("\n{text}\n"),
            ScreenKind::Json => {}
        }
    }

    pub(crate) fn line(&self, text: &str) {
        if self.kind != ScreenKind::Json {
            println!("{text}");
        }
    }

    pub(crate) fn bar(&self, label: String) -> ProgressBar {
        let kind = self.kind;
        ProgressBar { label, kind }
    }

    pub(crate) fn report(&self, report: &DemoReport) {
        if self.kind == ScreenKind::Json {
            match serde_json::to_string_pretty(report) {
                Ok(json) => println!("{json}"),
                Err(error) => eprintln!("failed to serialize the report: {error}"),
            }
            return;
        }
        for (at, (line, is_clean)) in report.table().into_iter().enumerate() {
            match (self.kind, at, is_clean) {
                (ScreenKind::Terminal, 0, _) => println!("{DIM}{line}{NORMAL}"),
                (ScreenKind::Terminal, _, false) => println!("{RED}{line}{NORMAL}"),
                _ => println!("{line}"),
            }
        }
        println!("\n  Times in µs, from the drop of the caller's future to that of the handler's.");
        println!("  Stateless legacy HTTP is not shown: its clients cannot cancel a call.");
        let signals = report.rows.iter().flat_map(|row| &row.wire);
        let examples: BTreeMap<&str, &str> = signals.map(|it| (&*it.what, &*it.example)).collect();
        let examples: Vec<_> = examples.iter().filter(|(what, it)| what != it).collect();
        if !examples.is_empty() {
            println!("  Received, for example:");
        }
        for (_, example) in examples {
            println!("    {example}");
        }
        match (self.kind, report.is_clean) {
            (ScreenKind::Terminal, true) => println!("\n{GREEN}{}{NORMAL}", report.verdict),
            (ScreenKind::Terminal, false) => println!("\n{RED}{}{NORMAL}", report.verdict),
            _ => println!("\n{}", report.verdict),
        }
    }
}

impl ProgressBar {
    /// Draws the bar over the previous one.
    pub(crate) fn draw(&self, at: f64, total: Option<f64>) {
        let total = total.unwrap_or(at).max(1.0);
        let is_last = at >= total;
        let full = (at / total * WIDTH as f64) as usize;
        let bar = format!("{:<WIDTH$}", "#".repeat(full.min(WIDTH)));
        let line = format!("  {}  [{bar}]", self.label);
        match self.kind {
            ScreenKind::Terminal => {
                print!("\r{line}");
                // A progress bar is not worth failing for.
                let _ = std::io::stdout().flush();
            }
            ScreenKind::Lines if is_last => print!("{line}"),
            ScreenKind::Lines | ScreenKind::Json => {}
        }
    }
}

/// A line fits into 80 columns.
const WIDTH: usize = 12;
const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const NORMAL: &str = "\u{1b}[0m";
