//! `bowline servers --check`: connects to each server, and says first what it will run.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::launch_text;
use crate::failure::Failure;
use crate::hosts::{ConfiguredServer, Launch, Machine};
use crate::interrupt::until_interrupted;
use crate::output::{Output, Style, visible_line, wrap};
use crate::sign_in::SignIn;
use crate::suggestion::Suggestion;
use crate::target::{ConnectOptions, Target, finish, server_facts};
use crate::values::{parse_count, parse_duration};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct CheckOptions {
    /// Connect to each server, which starts the commands of those that have one.
    #[arg(long)]
    pub(super) check: bool,
    /// Do not ask before --check starts commands.
    #[arg(long, requires = "check")]
    yes: bool,
    /// How long one server has for --check.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    timeout: Duration,
    /// How many servers --check connects to at a time.
    #[arg(long, value_name = "N", default_value = "4", value_parser = parse_count)]
    concurrency: NonZeroUsize,
}

/// What became of one server.
#[derive(Clone, Debug)]
pub(crate) enum Checked {
    Works {
        server: String,
        version: &'static str,
        tools: Option<usize>,
        took: Duration,
    },
    Failed(String),
    /// It is disabled.
    Skipped,
}

impl Checked {
    pub(super) fn has_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    pub(super) fn lines(&self, output: Output) -> Vec<String> {
        let (mark, text) = match self {
            Self::Works {
                server,
                version,
                tools,
                took,
            } => {
                let tools = tools.map_or(String::new(), |tools| format!(", {tools} tools"));
                let text = format!("{server}, {version}{tools}, {} ms", took.as_millis());
                (output.style(Style::Green, "ok"), text)
            }
            Self::Failed(why) => (output.style(Style::Red, "failed"), why.clone()),
            Self::Skipped => return vec![format!("    {}", output.style(Style::Dim, "skipped"))],
        };
        let mut lines = wrap(&text, output.width.saturating_sub(12)).into_iter();
        let first = format!("    {mark}: {}", lines.next().unwrap_or_default());
        std::iter::once(first)
            .chain(lines.map(|line| format!("      {line}")))
            .collect()
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Works {
                server,
                version,
                tools,
                took,
            } => json!({
                "ok": true,
                "server": server,
                "protocolVersion": version,
                "tools": tools,
                "milliseconds": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            }),
            Self::Failed(why) => json!({"ok": false, "error": why}),
            Self::Skipped => json!({"ok": null}),
        }
    }
}

/// Connects to the servers that are not disabled, and returns the results in their order.
///
/// # Errors
///
/// If the user does not agree, or interrupts it.
pub(super) fn run(
    servers: &[ConfiguredServer],
    machine: &Machine,
    options: &CheckOptions,
    output: Output,
) -> Result<Vec<Checked>, Failure> {
    announce(servers, output);
    if !options.yes && has_commands(servers) {
        ask_for_consent()?;
    }
    let targets: Vec<_> = (servers.iter())
        .map(|server| match server.is_disabled {
            true => None,
            false => Some(server.target(machine)),
        })
        .collect();
    crate::block_on(until_interrupted(async {
        Ok(check_all(targets, options).await)
    }))
}

/// Says what will be started and connected to, before it is.
fn announce(servers: &[ConfiguredServer], output: Output) {
    for server in servers.iter().filter(|server| !server.is_disabled) {
        let text = launch_text(&server.launch);
        let what = match &server.launch {
            Launch::Command { .. } => "will run",
            Launch::Url { .. } => "will connect to",
        };
        eprintln!(
            "{} {}",
            output.style_stderr(Style::Dim, what),
            visible_line(&text)
        );
    }
}

fn has_commands(servers: &[ConfiguredServer]) -> bool {
    let is_command = |it: &&ConfiguredServer| matches!(it.launch, Launch::Command { .. });
    servers
        .iter()
        .filter(|server| !server.is_disabled)
        .any(|server| is_command(&server))
}

/// A project's file may come from anyone, so a person is asked before its commands are run.
fn ask_for_consent() -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(
            Failure::usage("--check starts commands, and there is no terminal to ask at")
                .suggest(Suggestion::Yes),
        );
    }
    eprint!("Start these commands? [y/N] ");
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => Err(Failure::other("nothing was started")),
    }
}

async fn check_all(
    targets: Vec<Option<Result<Target, String>>>,
    options: &CheckOptions,
) -> Vec<Checked> {
    let slots = Arc::new(Semaphore::new(options.concurrency.get()));
    let mut checked = vec![Checked::Skipped; targets.len()];
    // Dropping it, at Ctrl-C, ends all connections.
    let mut running = JoinSet::new();
    for (index, target) in targets.into_iter().enumerate() {
        let target = match target {
            None => continue,
            Some(Err(why)) => {
                checked[index] = Checked::Failed(why);
                continue;
            }
            Some(Ok(target)) => target,
        };
        let (slots, timeout) = (slots.clone(), options.timeout);
        running.spawn(async move {
            let _slot = slots.acquire_owned().await;
            let checked = tokio::time::timeout(timeout, check(&target)).await;
            let timed_out = |_| Err(format!("timed out after {timeout:?}"));
            let checked = checked.unwrap_or_else(timed_out);
            (index, checked.unwrap_or_else(Checked::Failed))
        });
    }
    while let Some(finished) = running.join_next().await {
        if let Ok((index, result)) = finished {
            checked[index] = result;
        }
    }
    checked
}

async fn check(target: &Target) -> Result<Checked, String> {
    let began = Instant::now();
    // A person is needed to sign in; this is a check of many servers.
    let target = match target.clone() {
        Target::Url(mut url) => {
            url.sign_in = SignIn::Never;
            Target::Url(url)
        }
        target => target,
    };
    let client = target
        .connect(&ConnectOptions::default(), |builder| builder)
        .await;
    let client = client.map_err(|failure| failure.with_hint())?;
    let about = server_facts(&client).await;
    let has_tools = about
        .as_ref()
        .is_none_or(|it| it.capabilities.tools.is_some());
    let tools = match has_tools {
        true => {
            let tools = client.list_tools().await;
            Some(
                tools
                    .map_err(|error| Failure::from(error).to_string())?
                    .len(),
            )
        }
        false => None,
    };
    let meta = about.as_ref().and_then(|it| it.meta.as_ref());
    let info = meta.and_then(|meta| meta.server_info().ok().flatten());
    let server = info.map_or("server without a name".to_owned(), |info| {
        format!(
            "{} {}",
            visible_line(&info.name),
            visible_line(&info.version)
        )
    });
    let checked = Checked::Works {
        server,
        version: client.dialect().version,
        tools,
        took: began.elapsed(),
    };
    finish(client).await;
    Ok(checked)
}
