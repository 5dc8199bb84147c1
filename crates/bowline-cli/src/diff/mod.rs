//! `bowline diff`: the differences between two recordings.

use std::path::PathBuf;

use bowline_recording::{ExchangeChange, JsonChange, PathPattern, diff};
use clap::Args;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, OutputOptions, Style, fit, visible_line};
use crate::show::open;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct DiffOptions {
    /// The first recording.
    left: PathBuf,
    /// The second recording.
    right: PathBuf,
    /// Ignore what is at this path, such as `result.content[*].text` or `result..createdAt` (repeatable).
    #[arg(long, value_name = "PATH")]
    ignore: Vec<PathPattern>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Prints the differences.
///
/// # Errors
///
/// If a recording cannot be read.
pub(crate) fn run(options: &DiffOptions) -> Result<Exit, Failure> {
    let output = options.output.output();
    let (left, right) = (open(&options.left)?, open(&options.right)?);
    let ignored = options.ignore.iter().cloned();
    let diff_options = ignored.fold(bowline_recording::DiffOptions::new(), |options, pattern| {
        options.ignore(pattern)
    });
    let found = diff(&left, &right, &diff_options);
    for change in &found.changes {
        match output.is_json() {
            true => output.json(&change_json(change))?,
            false => print_change(output, change)?,
        }
    }
    if !output.is_json() {
        let (count, compared) = (found.changes.len(), found.compared);
        output.line(format!(
            "{count} of the exchanges differ; {compared} were compared"
        ))?;
    }
    Ok(match found.changes.is_empty() {
        true => Exit::Success,
        false => Exit::Findings,
    })
}

fn print_change(output: Output, change: &ExchangeChange) -> Result<(), Failure> {
    let name = match &change.name {
        Some(name) => format!("{} {}", change.method, name),
        None => change.method.clone(),
    };
    let name = visible_line(&name).into_owned();
    let (line, style) = match (change.left, change.right) {
        (Some(left), None) => (format!("- #{left} {name}"), Style::Red),
        (None, Some(right)) => (format!("+ #{right} {name}"), Style::Green),
        (left, right) => {
            let number = |it: Option<usize>| it.map(|it| format!("#{it}")).unwrap_or_default();
            (
                format!("~ {} {} {name}", number(left), number(right)),
                Style::Yellow,
            )
        }
    };
    output.line(output.style(style, fit(&line, output.width)))?;
    for change in &change.changes {
        print_json_change(output, change)?;
    }
    Ok(())
}

fn print_json_change(output: Output, change: &JsonChange) -> Result<(), Failure> {
    let path = visible_line(&change.path).into_owned();
    output.line(format!(
        "    {}",
        fit(&path, output.width.saturating_sub(4))
    ))?;
    for (sign, value, style) in [
        ('-', &change.left, Style::Red),
        ('+', &change.right, Style::Green),
    ] {
        if let Some(value) = value {
            let value = visible_line(&value.to_string()).into_owned();
            let line = format!(
                "      {sign} {}",
                fit(&value, output.width.saturating_sub(8))
            );
            output.line(output.style(style, line))?;
        }
    }
    Ok(())
}

fn change_json(change: &ExchangeChange) -> Value {
    let kind = match (change.left, change.right) {
        (Some(_), None) => "removed",
        (None, Some(_)) => "added",
        _ => "changed",
    };
    let changes = change.changes.iter().map(|it| {
        let mut value = json!({"path": it.path});
        if let Some(left) = &it.left {
            value["left"] = left.clone();
        }
        if let Some(right) = &it.right {
            value["right"] = right.clone();
        }
        value
    });
    json!({
        "kind": kind,
        "method": change.method,
        "name": change.name,
        "left": change.left,
        "right": change.right,
        "changes": changes.collect::<Vec<Value>>(),
    })
}
