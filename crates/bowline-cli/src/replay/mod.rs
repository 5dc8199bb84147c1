//! `bowline replay`: sends the requests of a recording to a server, and compares the answers.

mod print;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use bowline_recording::{Pacing, PathPattern, Replay};
use clap::Args;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::log::log_to_stderr;
use crate::mock::open_recording;
use crate::output::{OutputOptions, visible_line};
use crate::suggestion::Suggestion;
use crate::target::{ConnectOptions, TargetArgs};
use crate::values::parse_duration;
use print::Printer;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ReplayOptions {
    /// The recording, a file that `bowline tap --record` wrote.
    file: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    /// Ignore differences at and below this path: result.content[0].text, with [*] for any element, * for any member
    /// and .. for any depth (repeatable).
    #[arg(long, value_name = "PATH")]
    ignore: Vec<PathPattern>,
    /// Count every difference but those of --ignore.
    #[arg(long)]
    strict: bool,
    /// Send requests at the same time if they were in flight at the same time in the recording [default: one after the
    /// other].
    #[arg(long)]
    concurrent: bool,
    /// How long one request may take.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
    /// Call tools again that may change something, without asking.
    #[arg(short, long)]
    yes: bool,
    /// Print only requests whose answers differ or are missing.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

impl ReplayOptions {
    /// Replays, and prints each comparison.
    ///
    /// # Errors
    ///
    /// If the file is not a recording, the server cannot be reached, or the user does not agree.
    pub(crate) async fn run(&self) -> Result<Exit, Failure> {
        log_to_stderr(self.connect.verbose);
        let recording = open_recording(&self.file)?;
        let target = self.target.resolve(&self.connect)?;
        let mut replay = Replay::new(&recording).timeout(self.timeout);
        if self.strict {
            replay = replay.strict();
        }
        if self.concurrent {
            replay = replay.pacing(Pacing::AsRecorded);
        }
        for path in &self.ignore {
            replay = replay.ignore(path.clone());
        }
        let builder = target.client(&self.connect)?;
        let connected = replay.connect(builder).await;
        let connected = connected.map_err(|error| Failure::connecting(&target, error))?;
        if !self.yes {
            let writing = connected.writing_tools().await.map_err(Failure::from)?;
            agree(&writing).await?;
        }
        let mut printer = Printer::new(self.output.output(), self.quiet);
        let replaying = connected.run(|request| printer.request(request));
        let report = tokio::select! {
            biased;
            report = replaying => report,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        };
        printer.summary(&report)?;
        Ok(match report.has_differences() {
            true => Exit::Findings,
            false => Exit::Success,
        })
    }
}

/// Asks whether tools that may change something are called again.
async fn agree(writing: &BTreeSet<String>) -> Result<(), Failure> {
    if writing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = writing
        .iter()
        .map(|name| visible_line(name).into_owned())
        .collect();
    let what = format!(
        "the recording calls tools that the server does not declare as read-only: {}",
        names.join(", ")
    );
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::usage(what)
            .suggest(Suggestion::Yes)
            .hint("only if they may be called again"));
    }
    eprint!("bowline: {what}\nCall them again? [y/N] ");
    let _ = io::stderr().flush();
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    match answer.await {
        Ok(Ok(line)) if matches!(line.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::new(Exit::Interrupted, "nothing was sent")),
    }
}
