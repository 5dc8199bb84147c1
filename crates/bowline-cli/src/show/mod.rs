//! `bowline show`: a recording as a timeline.

mod exchange_view;

use std::path::PathBuf;
use std::time::Duration;

use bowline_recording::{Exchange, ExchangeState, Recording, Timeline};
use clap::Args;
use serde_json::json;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::latency::time_text;
use crate::output::{Output, OutputOptions, Style, display_width, fit, visible_line};
use crate::timeline_view::{entry_json, exchange_json, format_row, outcome, row, title};
use crate::values::parse_duration;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ShowOptions {
    /// The recording.
    file: PathBuf,
    /// Show every message, not one line per exchange.
    #[arg(long, conflicts_with = "exchange")]
    messages: bool,
    /// Show one exchange in full.
    #[arg(long, value_name = "N")]
    exchange: Option<usize>,
    /// Show exchanges of this method only; `tools` means `tools/…`.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Show calls of this tool, prompt or resource only.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Show exchanges that failed, hung or were refused.
    #[arg(long)]
    errors: bool,
    /// Show exchanges that were cancelled.
    #[arg(long)]
    cancelled: bool,
    /// Show exchanges that took at least this long, for example 100ms.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    slow: Option<Duration>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Prints a recording.
///
/// # Errors
///
/// If it cannot be read, or has no such exchange.
pub(crate) fn run(options: &ShowOptions) -> Result<Exit, Failure> {
    let output = options.output.output();
    let recording = open(&options.file)?;
    let timeline = Timeline::of(&recording);
    if let Some(number) = options.exchange {
        let exchange = timeline.exchange(number).ok_or_else(|| {
            let count = timeline.exchanges().count();
            Failure::usage(format!("no exchange {number}; the recording has {count}"))
        })?;
        exchange_view::print(output, &recording, &timeline, exchange)?;
        return Ok(Exit::Success);
    }
    match options.messages {
        true => print_messages(options, output, &recording, &timeline)?,
        false => print_exchanges(options, output, &recording, &timeline)?,
    }
    for problem in &recording.problems {
        eprintln!("bowline: {}: {problem}", options.file.display());
    }
    Ok(Exit::Success)
}

/// Reads a recording.
///
/// # Errors
///
/// If it cannot be read.
pub(crate) fn open(file: &std::path::Path) -> Result<Recording, Failure> {
    Recording::open(file).map_err(|error| {
        let name = file.display();
        let failure = Failure::usage(format!("failed to read {name}")).caused_by(error);
        failure.hint("a recording is a file that the command `tap` wrote, with --record FILE")
    })
}

impl ShowOptions {
    fn has_filter(&self) -> bool {
        let has_name = self.method.is_some() || self.tool.is_some();
        has_name || self.errors || self.cancelled || self.slow.is_some()
    }

    fn matches(&self, exchange: &Exchange) -> bool {
        let is_method = self.method.as_deref().is_none_or(|method| {
            let rest = exchange.method.strip_prefix(method);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let is_tool = self
            .tool
            .as_deref()
            .is_none_or(|tool| exchange.name.as_deref() == Some(tool));
        let has_failed = match exchange.state {
            ExchangeState::Failed(_) | ExchangeState::ToolError | ExchangeState::Refused(_) => true,
            ExchangeState::Hung => !exchange.is_subscription(),
            _ => !exchange.late_answers.is_empty(),
        };
        let is_cancelled = exchange.cancel.is_some();
        let is_state = match (self.errors, self.cancelled) {
            (false, false) => true,
            (errors, cancelled) => errors && has_failed || cancelled && is_cancelled,
        };
        let is_slow = self
            .slow
            .is_none_or(|slow| exchange.duration().is_some_and(|it| it >= slow));
        is_method && is_tool && is_state && is_slow
    }
}

fn print_messages(
    options: &ShowOptions,
    output: Output,
    recording: &Recording,
    timeline: &Timeline,
) -> Result<(), Failure> {
    for entry in timeline.entries() {
        let exchange = entry.exchange.and_then(|number| timeline.exchange(number));
        let is_shown = exchange.map_or(!options.has_filter(), |it| options.matches(it));
        let Some(event) = recording.events.get(entry.event).filter(|_| is_shown) else {
            continue;
        };
        if output.is_json() {
            output.json(&entry_json(timeline, event, entry))?;
        } else if let Some(row) = row(timeline, event, entry) {
            let style = |style, text: &str| output.style(style, text);
            output.line(format_row(&row, output.width, style))?;
        }
    }
    Ok(())
}

fn print_exchanges(
    options: &ShowOptions,
    output: Output,
    recording: &Recording,
    timeline: &Timeline,
) -> Result<(), Failure> {
    if !output.is_json() {
        let target = recording.header.target.as_deref().unwrap_or_default();
        let head = format!("{}  {}", recording.header.started, visible_line(target));
        output.line(output.style(Style::Dim, fit(&head, output.width)))?;
    }
    let mut shown = 0;
    for exchange in timeline.exchanges().filter(|it| options.matches(it)) {
        shown += 1;
        if output.is_json() {
            output.json(&exchange_json(exchange))?;
            continue;
        }
        for line in exchange_lines(output, timeline, exchange) {
            output.line(line)?;
        }
    }
    if output.is_json() {
        return Ok(());
    }
    let malformed = recording.events.iter();
    let malformed =
        malformed.filter(|it| matches!(it.kind, bowline_recording::EventKind::Malformed { .. }));
    let malformed = malformed.count();
    let summary = summary(timeline, shown, malformed);
    output.line(output.style(Style::Dim, fit(&summary, output.width)))?;
    Ok(())
}

fn summary(timeline: &Timeline, shown: usize, malformed: usize) -> String {
    let count = |is: fn(&Exchange) -> bool| timeline.exchanges().filter(|it| is(it)).count();
    let all = timeline.exchanges().count();
    let cancelled = count(|it| it.cancel.is_some());
    let hung = count(|it| it.state == ExchangeState::Hung && !it.is_subscription());
    let mut summary = match shown == all {
        true => format!("{all} exchanges"),
        false => format!("{shown} of {all} exchanges"),
    };
    for (count, what) in [
        (cancelled, "cancelled"),
        (hung, "hung"),
        (malformed, "malformed"),
    ] {
        if count > 0 {
            summary.push_str(&format!(", {count} {what}"));
        }
    }
    summary
}

/// Returns the line of an exchange, and those of its cancel and its late answers.
fn exchange_lines(output: Output, timeline: &Timeline, exchange: &Exchange) -> Vec<String> {
    let arrow = match exchange.from {
        bowline_recording::Side::Client => "→",
        bowline_recording::Side::Server => "←",
    };
    let mut text = title(exchange);
    if let Some(before) = exchange.previous_leg {
        let legs = timeline.legs(exchange.number);
        let leg = legs
            .iter()
            .position(|it| it.number == exchange.number)
            .map_or(2, |at| at + 1);
        text = format!("↳ {text} (leg {leg} of {}, after #{before})", legs.len());
    }
    if let Some(about) = exchange.question_of {
        text = format!("? {text} (about #{about})");
    }
    let (ended, style) = outcome(exchange);
    let took = exchange.duration().map(time_text).unwrap_or_default();
    let number = format!("#{}", exchange.number);
    let head = format!("{number:>5} {:>9.3} {arrow} ", exchange.at.as_secs_f64());
    let space = output.width.saturating_sub(display_width(&head)).max(30);
    let right = fit(&ended, (space / 2).max(18));
    let tail = display_width(&right) + 1 + TOOK_WIDTH;
    let text = fit(&text, space.saturating_sub(tail + 1));
    let padding = " ".repeat(space.saturating_sub(tail + display_width(&text)));
    let right = match style {
        Some(style) => output.style(style, right),
        None => right,
    };
    let mut lines = vec![
        format!("{head}{text}{padding}{right} {took:>TOOK_WIDTH$}")
            .trim_end()
            .to_owned(),
    ];
    lines.extend(cancel_line(output, exchange));
    for late in exchange
        .late_answers
        .iter()
        .filter(|_| exchange.cancel.is_none())
    {
        let at = late.at.as_secs_f64();
        let line = format!("      {at:>9.3} ← ‼ second answer");
        lines.push(output.style(Style::Red, fit(&line, output.width)));
    }
    lines
}

/// Returns the arrow of a cancel, with what was seen of the request afterwards.
fn cancel_line(output: Output, exchange: &Exchange) -> Option<String> {
    let cancel = exchange.cancel.as_ref()?;
    let arrow = match cancel.by {
        bowline_recording::Side::Client => "✗→",
        bowline_recording::Side::Server => "←✗",
    };
    let reason = match &cancel.reason {
        Some(reason) => format!(" {:?}", fit(&visible_line(reason), 24)),
        None => String::new(),
    };
    let (after, style) = match (cancel.latency(), exchange.late_answers.is_empty()) {
        (None, _) => ("silent afterwards".to_owned(), Style::Yellow),
        (Some(latency), true) => (format!("ended {} later", time_text(latency)), Style::Yellow),
        (Some(latency), false) => (
            format!("‼ answered {} later", time_text(latency)),
            Style::Red,
        ),
    };
    let at = cancel.at.as_secs_f64();
    let line = format!(
        "      {at:>9.3} {arrow} cancel by {}{reason}, {after}",
        cancel.form.as_str()
    );
    Some(output.style(style, fit(&line, output.width)))
}

/// Returns the values that `show --json` and others print for a recording.
pub(crate) fn header_json(recording: &Recording) -> serde_json::Value {
    json!({
        "started": recording.header.started.to_string(),
        "recorder": recording.header.recorder,
        "target": recording.header.target,
    })
}

const TOOK_WIDTH: usize = 8;
