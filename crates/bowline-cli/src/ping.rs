//! `bowline ping`: how fast a server answers.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::{interrupted, until_interrupted};
use crate::latency::{Latencies, time_text};
use crate::log::log_to_stderr;
use crate::output::{OutputOptions, Style};
use crate::target::{ConnectOptions, TargetArgs, finish};
use crate::values::parse_duration;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct PingOptions {
    #[command(flatten)]
    target: TargetArgs,
    /// How many requests to send.
    #[arg(short, long, value_name = "N", default_value = "10")]
    count: usize,
    /// The time between two requests.
    #[arg(short, long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    interval: Duration,
    /// How long to wait for each answer.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

/// Sends pings, and prints percentiles and a histogram.
///
/// # Errors
///
/// If the server cannot be reached, or does not answer.
///
/// # Cancel safety
///
/// Dropping it cancels the request.
pub(crate) async fn run(options: PingOptions) -> Result<Exit, Failure> {
    log_to_stderr(options.connect.verbose);
    let output = options.output.output();
    let target = options.target.resolve(&options.connect)?;
    let began = Instant::now();
    let connecting = target.connect(&options.connect, |builder| builder);
    let client = until_interrupted(connecting).await?;
    let connected = began.elapsed();
    let mut times = Vec::new();
    let pinging = async {
        for at in 0..options.count {
            if at > 0 {
                tokio::time::sleep(options.interval).await;
            }
            let began = Instant::now();
            client.ping().timeout(options.timeout).await?;
            times.push(began.elapsed());
        }
        Ok::<_, bowline::Error>(())
    };
    let ended = tokio::select! {
        biased; // all answers count
        ended = pinging => ended.map(|()| Exit::Success),
        () = interrupted() => Ok(Exit::Interrupted),
    };
    let latencies = Latencies::new(times);
    if output.is_json() {
        let mut json = latencies.to_json();
        json["connectMicros"] = json!(u64::try_from(connected.as_micros()).unwrap_or(u64::MAX));
        json["protocolVersion"] = client.dialect().version.into();
        output.json(&json)?;
    } else {
        let version = client.dialect().version;
        let title = format!("connected in {} (protocol {version})", time_text(connected));
        output.line(output.style(Style::Dim, title))?;
        if latencies.count() > 0 {
            output.line(format!(
                "{} answers  {}",
                latencies.count(),
                latencies.summary()
            ))?;
            output.line(latencies.histogram(output).join("\n"))?;
        }
    }
    finish(client).await;
    Ok(ended?)
}
