//! `bowline call --repeat`: a small load on a server.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use bowline::{Error, Reply};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::ToolCommand;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::interrupted;
use crate::latency::{Latencies, time_text};
use crate::target::finish;

/// What the calls have shown so far.
#[derive(Debug, Default)]
struct Counts {
    times: Vec<Duration>,
    tool_errors: usize,
    failures: usize,
    first_failure: Option<Error>,
}

/// Calls the tool `repeat` times, `concurrency` at a time, and prints percentiles. Ctrl-C ends it early.
pub(super) async fn run(
    command: &ToolCommand<'_>,
    arguments: &Map<String, Value>,
    repeat: NonZeroUsize,
    concurrency: NonZeroUsize,
) -> Result<Exit, Failure> {
    let mut load = Load::default();
    let began = Instant::now();
    let ended = tokio::select! {
        biased; // all results count
        () = load.call_all(command, arguments, repeat.get(), concurrency.get()) => None,
        failure = command.questions.unanswered() => Some(Err(failure)),
        () = interrupted() => Some(Ok(Exit::Interrupted)),
    };
    let took = began.elapsed();
    // Drops the calls before the connection is closed, which sends their cancels.
    load.running.shutdown().await;
    let counts = load.counts;
    let printed = match &ended {
        Some(Err(_)) => Ok(()),
        _ => print(&counts, took, command),
    };
    finish(command.client.clone()).await;
    printed?;
    let exit = match counts.first_failure {
        Some(error) => Failure::from(error).exit(),
        None if counts.tool_errors > 0 => Exit::Tool,
        None => Exit::Success,
    };
    ended.unwrap_or(Ok(exit))
}

/// The calls that are running, and what those before have shown.
#[derive(Default)]
struct Load {
    running: JoinSet<(Duration, Result<Reply, Error>)>,
    counts: Counts,
}

impl Load {
    async fn call_all(
        &mut self,
        command: &ToolCommand<'_>,
        arguments: &Map<String, Value>,
        repeat: usize,
        concurrency: usize,
    ) {
        let mut started = 0;
        loop {
            while started < repeat && self.running.len() < concurrency {
                let call = command.request(arguments).start();
                started += 1;
                self.running.spawn(async move {
                    let began = Instant::now();
                    let reply = call.await;
                    (began.elapsed(), reply)
                });
            }
            let Some(finished) = self.running.join_next().await else {
                return;
            };
            let counts = &mut self.counts;
            match finished {
                Ok((time, Ok(reply))) => {
                    counts.times.push(time);
                    counts.tool_errors += usize::from(reply.is_error());
                }
                Ok((_, Err(error))) => {
                    counts.failures += 1;
                    counts.first_failure.get_or_insert(error);
                }
                Err(_) => counts.failures += 1,
            }
        }
    }
}

fn print(counts: &Counts, took: Duration, command: &ToolCommand<'_>) -> Result<(), Failure> {
    let output = command.output;
    let latencies = Latencies::new(counts.times.clone());
    let per_second = latencies.count() as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE);
    if output.is_json() {
        let mut json = latencies.to_json();
        json["perSecond"] = json!(per_second);
        json["toolErrors"] = counts.tool_errors.into();
        json["failures"] = counts.failures.into();
        json["firstFailure"] = counts
            .first_failure
            .as_ref()
            .map(ToString::to_string)
            .into();
        return Ok(output.json(&json)?);
    }
    output.line(format!(
        "{} calls in {}, {per_second:.1} per second",
        latencies.count(),
        time_text(took),
    ))?;
    if latencies.count() > 0 {
        output.line(latencies.summary())?;
        output.line(latencies.histogram(output).join("\n"))?;
    }
    if counts.tool_errors > 0 {
        output.line(format!(
            "{} results were errors of the tool",
            counts.tool_errors
        ))?;
    }
    if let Some(error) = &counts.first_failure {
        output.line(format!(
            "{} calls failed, the first with: {}",
            counts.failures,
            crate::output::visible(&error.to_string())
        ))?;
    }
    Ok(())
}
