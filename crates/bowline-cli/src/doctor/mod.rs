//! `bowline doctor`: connects to a server, examines it, and says what is wrong, why it matters, and how to mend it.
//!
//! ```text
//! probes (I/O) ── facts ──▶ checks (pure) ── findings ──▶ report
//! ```
//!
//! It changes nothing on the server: it sends only methods that read, and calls a tool only if the user names it or the
//! tool is marked as read-only. Every probe has a deadline, and so has the whole run.

mod checks;

mod codes;
mod legacy_codes;

mod config;
#[cfg(any(test, fuzzing))]
pub(crate) use config::{ConfigCheck as HostEntry, Surroundings};

mod credentials;

mod http_sse_run;

mod legacy_run;

mod examine;

mod probe;

mod programs;

mod report;

mod run_http;

mod run_stdio;

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::hosts::ConfiguredServer;
use crate::output::{Output, OutputOptions};
use crate::suggestion::Suggestion;
use crate::target::{ConnectOptions, Target, TargetArgs, configured_server};
use crate::values::parse_duration;
use config::{ConfigCheck, Consent};
use credentials::Credentials;
use probe::Patience;
use report::Report;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    target: TargetArgs,

    /// Call this tool and cancel the call. It should take some seconds, and do no harm.
    #[arg(long, value_name = "NAME")]
    cancel_tool: Option<String>,
    /// The arguments of that tool, a JSON object.
    #[arg(long, value_name = "JSON", requires = "cancel_tool", value_parser = parse_arguments)]
    cancel_args: Option<Value>,
    /// Call no tool.
    #[arg(long, conflicts_with = "cancel_tool")]
    no_cancel: bool,

    /// Sign in at the server first, in a browser, if there is no kept token. Kept tokens are used without this.
    #[arg(long, conflicts_with = "no_oauth")]
    sign_in: bool,

    /// How long the whole examination may take, without the sign-in.
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_duration)]
    max_time: Duration,
    /// How long an answer may take.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// How long the first event of a stream may take.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    stream_wait: Duration,
    /// How long to wait for what a server sends after a cancel.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    cancel_wait: Duration,
    /// A start that takes longer is slow.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    slow_start: Duration,
    /// How long a process may run on when its stdin is closed.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    exit_wait: Duration,

    /// Mend the entry of the server in the host's configuration: shows the change, asks, and keeps a copy of the file.
    #[arg(long)]
    fix_config: bool,
    /// Change the file without asking.
    #[arg(long, requires = "fix_config")]
    yes: bool,

    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    connect: ConnectOptions,
}

fn parse_arguments(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(error) => Err(format!("expected a JSON object: {error}")),
    }
}

/// What the examination needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    patience: Patience,
    /// How long the first answer of a server at a URL may take.
    first_answer: Duration,
    slow_start: Duration,
    cancel: CancelChoice,
}

/// Which call is cancelled.
#[derive(Clone, Debug)]
pub(crate) enum CancelChoice {
    Named {
        tool: String,
        arguments: Value,
    },
    /// One that is read-only and slow.
    Any,
    None,
}

impl DoctorOptions {
    fn settings(&self) -> Settings {
        let cancel = match &self.cancel_tool {
            Some(tool) => CancelChoice::Named {
                tool: tool.clone(),
                arguments: self
                    .cancel_args
                    .clone()
                    .unwrap_or_else(|| serde_json::json!({})),
            },
            None if self.no_cancel => CancelChoice::None,
            None => CancelChoice::Any,
        };
        Settings {
            patience: Patience {
                answer: self.timeout,
                start: self
                    .connect
                    .connect_timeout
                    .unwrap_or(DEFAULT_START.max(self.timeout)),
                stream: self.stream_wait,
                cancel: self.cancel_wait,
                exit: self.exit_wait,
            },
            first_answer: self.connect.connect_timeout.unwrap_or(self.timeout),
            slow_start: self.slow_start,
            cancel,
        }
    }
}

/// Examines the server, and prints the report.
///
/// # Errors
///
/// If there is no such server. What is wrong with one is a finding.
pub(crate) async fn run(options: &DoctorOptions) -> Result<Exit, Failure> {
    let output = options.output.output();
    let configured = match &options.target.target {
        Some(word) => configured_server(word)?,
        None => None,
    };
    if options.connect.protocol_version.is_some() {
        return Err(Failure::usage(
            "--protocol-version is not for the doctor, which examines every revision",
        ));
    }
    if options.fix_config && configured.is_none() {
        return Err(
            Failure::usage("--fix-config is for a server of a host's configuration")
                .suggest(Suggestion::Servers)
                .hint("give the name of a server of a host, or FILE#NAME"),
        );
    }
    let (mut report, config) = examine(configured.as_ref(), options).await?;
    let mut json = report.to_json();
    if !output.is_json() {
        print(&report, output)?;
    }
    if let Some(config) = config.filter(|_| options.fix_config) {
        let consent = if options.yes {
            Consent::Given
        } else {
            Consent::Asked
        };
        let fix = config.fix(consent, output)?;
        json["fix"] = fix.to_json();
        if fix.is_applied() {
            // What the user reads last is how the server is now.
            let configured = options
                .target
                .target
                .as_deref()
                .map(configured_server)
                .transpose()?
                .flatten();
            (report, _) = examine(configured.as_ref(), options).await?;
            json["fix"]["after"] = report.to_json();
            if !output.is_json() {
                output.line("")?;
                print(&report, output)?;
            }
        }
    }
    if output.is_json() {
        output.json(&json)?;
    }
    Ok(match report.has_errors() {
        true => Exit::Findings,
        false => Exit::Success,
    })
}

/// Examines the server, and its entry in a host's configuration.
async fn examine(
    configured: Option<&ConfiguredServer>,
    options: &DoctorOptions,
) -> Result<(Report, Option<ConfigCheck>), Failure> {
    let started = Instant::now();
    let target = options.target.resolve(&options.connect)?;
    let mut report = examine_target(&target, options).await?;
    let config = match configured {
        None => None,
        Some(server) => match ConfigCheck::read(server, report.redirect.as_deref()) {
            Ok(config) => {
                report.findings.extend(config.findings());
                report.fact(
                    "configured",
                    format!("{}, {}", server.host.title(), server.file.display()),
                );
                Some(config)
            }
            Err(why) => {
                report.unchecked("the configuration of the host", why);
                None
            }
        },
    };
    report.finish(started.elapsed());
    Ok((report, config))
}

async fn examine_target(target: &Target, options: &DoctorOptions) -> Result<Report, Failure> {
    let settings = options.settings();
    let mut report = Report::new(target.to_string(), "");
    let mut credentials = Credentials::default();
    if let Target::Url(url) = target {
        credentials = Credentials::new(url);
        if options.sign_in {
            credentials.sign_in(url).await?;
        }
    }
    let examined = async {
        match target {
            Target::Url(url) => run_http::examine(url, &credentials, &settings, &mut report).await,
            Target::Command(command) => {
                run_stdio::examine(command, &settings, &mut report).await;
                Ok(())
            }
            Target::Recording(file) => {
                let check = Suggestion::CheckRecording(file.display().to_string());
                Err(
                    Failure::usage("the doctor examines servers, and this is a recording")
                        .suggest(check),
                )
            }
        }
    };
    match tokio::time::timeout(options.max_time, examined).await {
        Ok(examined) => examined?,
        Err(_) => {
            let why = format!("the time of --max-time ({:?}) was over", options.max_time);
            report.unchecked("the rest", why);
        }
    }
    Ok(report)
}

fn print(report: &Report, output: Output) -> Result<(), Failure> {
    for line in report.lines(output) {
        output.line(line)?;
    }
    Ok(())
}

/// Package runners download a server at its first start.
const DEFAULT_START: Duration = Duration::from_secs(30);
