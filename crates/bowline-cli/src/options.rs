//! Parses the command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::bridge::{BridgeOptions, BridgePlan};
use crate::call::CallOptions;
use crate::check::CheckOptions;
use crate::complete::CompleteOptions;
use crate::diff::DiffOptions;
use crate::doctor::DoctorOptions;
use crate::exit::EXIT_CODES;
use crate::export::ExportOptions;
use crate::ls::LsOptions;
use crate::mock::MockOptions;
use crate::new_project::NewOptions;
use crate::ping::PingOptions;
use crate::prompt::PromptOptions;
use crate::read::ReadOptions;
use crate::replay::ReplayOptions;
use crate::servers::ServersOptions;
use crate::shell::{CompletionsOptions, ManOptions};
use crate::show::ShowOptions;
use crate::tap::{GuardOptions, TapOptions};
use crate::tasks::TasksOptions;
use crate::telemetry::TelemetryOptions;
use crate::values::parse_delay;
use crate::watch::WatchOptions;

/// A parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CliCommand {
    Help,
    Servers(Box<ServersOptions>),
    Ls(Box<LsOptions>),
    Call(Box<CallOptions>),
    Read(Box<ReadOptions>),
    Prompt(Box<PromptOptions>),
    Complete(Box<CompleteOptions>),
    Watch(Box<WatchOptions>),
    Ping(Box<PingOptions>),
    Tasks(Box<TasksOptions>),
    Completions(Shell),
    Man(ManOptions),
    Tap(Box<TapOptions>),
    TapGuard(GuardOptions),
    Show(Box<ShowOptions>),
    Diff(Box<DiffOptions>),
    Check(Box<CheckOptions>),
    Export(Box<ExportOptions>),
    Bridge(Box<BridgePlan>),
    Mock(Box<MockOptions>),
    Replay(Box<ReplayOptions>),
    Demo(OutputFormat),
    Doctor(Box<DoctorOptions>),
    New(NewOptions),
    ServeDemo(ServeTransport, Box<TelemetryOptions>),
}

/// The output format of `bowline demo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// Text, in colours on a terminal.
    #[default]
    Text,
    /// Text without colours.
    Plain,
    /// A JSON object.
    Json,
}

/// The transport of `bowline serve-demo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServeTransport {
    Stdio {
        /// Whether to report events and counters on stderr.
        report: bool,
        grace: Option<Duration>,
    },
    Http {
        port: u16,
        drain: DrainOptions,
    },
}

impl CliCommand {
    /// Parses arguments, without the program name. `-h` and `--version` are errors whose exit code is 0.
    pub(crate) fn parse(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let program = std::iter::once(OsString::from("bowline"));
        let words = program.chain(words.into_iter().map(Into::into));
        let command = Options::try_parse_from(words).map_err(with_advice)?.command;
        Ok(match command {
            None => Self::Help,
            Some(Command::Mock(options)) => Self::Mock(options),
            Some(Command::Replay(options)) => Self::Replay(options),
            Some(Command::Servers(options)) => Self::Servers(options),
            Some(Command::Ls(options)) => Self::Ls(options),
            Some(Command::Call(options)) => Self::Call(options),
            Some(Command::Read(options)) => Self::Read(options),
            Some(Command::Prompt(options)) => Self::Prompt(options),
            Some(Command::Complete(options)) => Self::Complete(options),
            Some(Command::Watch(options)) => Self::Watch(options),
            Some(Command::Ping(options)) => Self::Ping(options),
            Some(Command::Tasks(options)) => Self::Tasks(options),
            Some(Command::Tap(options)) => Self::Tap(options),
            Some(Command::TapGuard(options)) => Self::TapGuard(options),
            Some(Command::Show(options)) => Self::Show(options),
            Some(Command::Diff(options)) => Self::Diff(options),
            Some(Command::Check(options)) => Self::Check(options),
            Some(Command::Export(options)) => Self::Export(options),
            Some(Command::Completions(options)) => Self::Completions(options.shell),
            Some(Command::Man(options)) => Self::Man(options),
            Some(Command::Demo(demo)) => Self::Demo(demo.format()),
            Some(Command::Doctor(options)) => Self::Doctor(options),
            Some(Command::New(options)) => Self::New(options),
            Some(Command::ServeDemo(serve)) => {
                Self::ServeDemo(serve.transport(), Box::new(serve.telemetry))
            }
            Some(Command::Bridge(options)) => {
                let plan = options.plan().map_err(|why| invalid("bridge", &why))?;
                Self::Bridge(Box::new(plan))
            }
        })
    }

    /// Returns the definition of all options.
    pub(crate) fn definition() -> clap::Command {
        Options::command()
    }

    /// Returns the text of `bowline --help`.
    pub(crate) fn help() -> impl std::fmt::Display {
        Options::command().render_help()
    }
}

/// Adds what to do instead to the errors of two frequent mistakes: an unknown command, and a command without `--`.
fn with_advice(mut error: clap::Error) -> clap::Error {
    let what = error.render().to_string();
    let what = what.lines().next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    match error.kind() {
        // With the name that was meant.
        ErrorKind::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_some() => {
            error
        }
        ErrorKind::InvalidSubcommand => {
            let what = format!("{what}\n\n{EXAMPLES}");
            Options::command().error(ErrorKind::InvalidSubcommand, what)
        }
        ErrorKind::UnknownArgument if !what.starts_with("unexpected argument '-") => {
            let tip = "put a command after `--`, as in: -- npx some-server";
            let tip = ContextValue::StyledStrs(vec![tip.into()]);
            error.insert(ContextKind::Suggested, tip);
            error
        }
        _ => error,
    }
}

/// Returns the error of options that clap accepts and that make no sense together.
fn invalid(command: &str, why: &str) -> clap::Error {
    let mut options = Options::command();
    options.build();
    match options.find_subcommand_mut(command) {
        Some(command) => command.error(ErrorKind::ArgumentConflict, why),
        None => options.error(ErrorKind::ArgumentConflict, why),
    }
}

/// Looks at, calls, watches and connects servers of the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(name = "bowline", version, max_term_width = 80, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Servers(Box<ServersOptions>),
    Ls(Box<LsOptions>),
    Call(Box<CallOptions>),
    Read(Box<ReadOptions>),
    Prompt(Box<PromptOptions>),
    Complete(Box<CompleteOptions>),
    Watch(Box<WatchOptions>),
    Ping(Box<PingOptions>),
    Tasks(Box<TasksOptions>),
    Tap(Box<TapOptions>),
    #[command(hide = true)]
    TapGuard(GuardOptions),
    Show(Box<ShowOptions>),
    Diff(Box<DiffOptions>),
    Check(Box<CheckOptions>),
    Export(Box<ExportOptions>),
    Bridge(Box<BridgeOptions>),
    Mock(Box<MockOptions>),
    Replay(Box<ReplayOptions>),
    Demo(DemoOptions),
    Doctor(Box<DoctorOptions>),
    New(NewOptions),
    ServeDemo(ServeOptions),
    Completions(CompletionsOptions),
    Man(ManOptions),
}

/// Cancels calls on every transport in both eras, and shows how their handlers stop.
#[derive(Debug, Args)]
struct DemoOptions {
    /// Print text without colours.
    #[arg(long)]
    plain: bool,
    /// Print a JSON object.
    #[arg(long, conflicts_with = "plain")]
    json: bool,
}

impl DemoOptions {
    fn format(&self) -> OutputFormat {
        match (self.plain, self.json) {
            (_, true) => OutputFormat::Json,
            (true, false) => OutputFormat::Plain,
            (false, false) => OutputFormat::Text,
        }
    }
}

/// Serves the tools of the demonstration.
#[derive(Debug, Args)]
struct ServeOptions {
    /// The transport.
    #[arg(long, value_enum, default_value_t = Transport::Stdio)]
    transport: Transport,
    /// The port of an HTTP server; 0 selects a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Report received cancellations and the counters on stderr (stdio only).
    #[arg(long)]
    report: bool,
    #[command(flatten)]
    drain: DrainOptions,
    #[command(flatten)]
    telemetry: TelemetryOptions,
}

/// How a server ends after SIGTERM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct DrainOptions {
    /// How long new requests are still taken after SIGTERM, until load balancers have noticed (HTTP only) [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    pub(crate) drain_delay: Option<Duration>,
    /// How long running requests may go on after that [default: 20s].
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    pub(crate) grace: Option<Duration>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Stdio,
    Http,
}

impl ServeOptions {
    fn transport(&self) -> ServeTransport {
        match self.transport {
            Transport::Http => ServeTransport::Http {
                port: self.port,
                drain: self.drain,
            },
            Transport::Stdio => ServeTransport::Stdio {
                report: self.report,
                grace: self.drain.grace,
            },
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  bowline servers                          the servers that hosts here use
  bowline ls https://example.com/mcp       the tools of a server, as signatures
  bowline ls -- npx -y some-server         the same, of a command
  bowline call files read path=notes.txt   a tool, of a server by its name
  bowline watch files                      what changes, until Ctrl-C
  bowline tap -- npx -y some-server        a stdio server, every message shown
  bowline tap https://example.com/mcp      an HTTP server, through a proxy
  bowline show a.jsonl                     what `tap --record a.jsonl` wrote
  bowline mock a.jsonl                     the recording, in place of its server
  bowline replay a.jsonl -- some-server    its requests, sent and compared
  bowline bridge -- npx -y some-server     a stdio server, for HTTP clients
  bowline bridge https://example.com/mcp   an HTTP server, for stdio hosts
  bowline doctor https://example.com/mcp   what is wrong, and how to mend it
  bowline new weather                      a small server project, with a test
  bowline demo                             cancelled calls on every transport";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CliCommand, String> {
        let words = line.split_whitespace();
        CliCommand::parse(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_of_the_options_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn commands_are_understood_with_their_options_in_any_order() {
        assert_eq!(
            parse("demo --json"),
            Ok(CliCommand::Demo(OutputFormat::Json))
        );
        assert_eq!(
            parse("serve-demo --port 80 --transport http"),
            Ok(CliCommand::ServeDemo(
                ServeTransport::Http {
                    port: 80,
                    drain: DrainOptions::default()
                },
                Box::default()
            ))
        );
        assert_eq!(
            parse("serve-demo"),
            Ok(CliCommand::ServeDemo(
                ServeTransport::Stdio {
                    report: false,
                    grace: None
                },
                Box::default()
            ))
        );
        assert_eq!(parse(""), Ok(CliCommand::Help));
    }

    #[test]
    fn every_help_fits_eighty_columns_and_lists_what_scripts_need() {
        fn check(command: &mut clap::Command) {
            for help in [command.render_help(), command.render_long_help()] {
                for line in help.to_string().lines() {
                    let columns = crate::output::display_width(line);
                    assert!(columns <= 80, "{}: {line}", command.get_name());
                }
            }
            command.get_subcommands_mut().for_each(check);
        }
        let mut options = Options::command();
        options.build();

        check(&mut options);

        let help = CliCommand::help().to_string();
        for text in ["Examples:", "Exit codes:", "130  interrupted"] {
            assert!(help.contains(text), "{text}");
        }
    }

    #[test]
    fn unknown_arguments_are_named_in_the_error() {
        let unknown = parse("dance").unwrap_err();
        assert!(unknown.contains("'dance'"), "{unknown}");
        assert!(unknown.contains("Examples:"), "{unknown}");
        let mistyped = parse("lss").unwrap_err();
        assert!(
            mistyped.contains("a similar subcommand exists: 'ls'"),
            "{mistyped}"
        );
        assert!(!mistyped.contains("Examples:"), "{mistyped}");
        assert!(parse("demo --loud").unwrap_err().contains("'--loud'"));
        assert!(parse("serve-demo --port 70000").is_err());
        assert!(parse("serve-demo --transport pigeon").is_err());
    }
}
