//! Where the demonstration is shown: a terminal, a file, or a program that reads JSON.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use super::report::Report;
use crate::options::Show;

/// Knows what may be written to stdout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Lines can be drawn again, and be in colours.
    Terminal,
    /// Lines, and nothing else.
    Lines,
    /// One JSON object at the end.
    Json,
}

/// A line that shows how a call comes along.
#[derive(Debug)]
pub(crate) struct Bar {
    label: String,
    kind: Kind,
}

impl Screen {
    pub(crate) fn new(show: Show) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let kind = match show {
            Show::Json => Kind::Json,
            Show::Text if !is_plain && std::io::stdout().is_terminal() => Kind::Terminal,
            Show::Text | Show::Plain => Kind::Lines,
        };
        Self { kind }
    }

    pub(crate) fn title(&self, text: &str) {
        match self.kind {
            Kind::Terminal => println!("\n{BOLD}{text}{NORMAL}\n"),
            Kind::Lines => println!("\n{text}\n"),
            Kind::Json => {}
        }
    }

    pub(crate) fn line(&self, text: &str) {
        if self.kind != Kind::Json {
            println!("{text}");
        }
    }

    pub(crate) fn bar(&self, label: String) -> Bar {
        let kind = self.kind;
        Bar { label, kind }
    }

    pub(crate) fn report(&self, report: &Report) {
        if self.kind == Kind::Json {
            match serde_json::to_string_pretty(report) {
                Ok(json) => println!("{json}"),
                Err(error) => eprintln!("the report has no JSON form: {error}"),
            }
            return;
        }
        for (at, (line, is_clean)) in report.table().into_iter().enumerate() {
            match (self.kind, at, is_clean) {
                (Kind::Terminal, 0, _) => println!("{DIM}{line}{NORMAL}"),
                (Kind::Terminal, _, false) => println!("{RED}{line}{NORMAL}"),
                _ => println!("{line}"),
            }
        }
        println!(
            "\n  Times are from the drop of the caller's future to the drop of the handler's."
        );
        let said = report.rows.iter().flat_map(|row| &row.wire);
        let said: BTreeMap<&str, &str> = said.map(|it| (&*it.what, &*it.example)).collect();
        for (what, example) in said {
            if what != example {
                println!("  In full, for example: {example}");
            }
        }
        match (self.kind, report.is_clean) {
            (Kind::Terminal, true) => println!("\n{GREEN}{}{NORMAL}", report.verdict),
            (Kind::Terminal, false) => println!("\n{RED}{}{NORMAL}", report.verdict),
            _ => println!("\n{}", report.verdict),
        }
    }
}

impl Bar {
    /// Draws the bar in the place of the one before.
    pub(crate) fn draw(&self, at: f64, total: Option<f64>) {
        let total = total.unwrap_or(at).max(1.0);
        let is_last = at >= total;
        let full = (at / total * WIDTH as f64) as usize;
        let bar = format!("{:<WIDTH$}", "#".repeat(full.min(WIDTH)));
        let line = format!("  {}  [{bar}]", self.label);
        match self.kind {
            Kind::Terminal => {
                print!("\r{line}");
                // A bar that cannot be shown is not worth failing for.
                let _ = std::io::stdout().flush();
            }
            Kind::Lines if is_last => print!("{line}"),
            Kind::Lines | Kind::Json => {}
        }
    }
}

const WIDTH: usize = 20;
const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const NORMAL: &str = "\u{1b}[0m";
