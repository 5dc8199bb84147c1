//! Parses the command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::error::ErrorKind;
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
        let command = Options::try_parse_from(words)?.command;
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
        let mut definition = Options::command();
        definition.build();
        definition
    }

    /// Returns the text of `bowline --help`.
    pub(crate) fn help() -> impl std::fmt::Display {
        Options::command().render_help()
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

// Deferred: the options of a command are built when it is the one that runs. A long-running one, such as the bridge,
// would keep the code for those of all others in memory. What `bowline --help` shows is here, with the variants.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Command {
    /// Lists the servers that Claude, Cursor, VS Code and other hosts on this machine use.
    ///
    /// Nothing is started, unless --check is given. Each name can be used as TARGET.
    Servers(Box<ServersOptions>),
    /// Lists the tools of a server as signatures, and its resources and prompts.
    Ls(Box<LsOptions>),
    /// Calls a tool.
    ///
    /// `key=value` is converted to the type that the tool asks for, `key:=json` is JSON, and `key=@file` is the text of a
    /// file. TARGET is left out if a command after `--` starts the server. Ctrl-C cancels the call.
    Call(Box<CallOptions>),
    /// Reads a resource, and prints it.
    ///
    /// Text and binary content are written to stdout as they are, unless stdout is a terminal.
    Read(Box<ReadOptions>),
    /// Gets a prompt, and prints its messages.
    Prompt(Box<PromptOptions>),
    /// Asks for completions of an argument of a prompt or resource template.
    ///
    /// REFERENCE is the name of a prompt, or a URI template. `key=value` are arguments that are filled in already.
    Complete(Box<CompleteOptions>),
    /// Shows changes of a server as they happen: its lists, its resources, and its log messages.
    ///
    /// Without a URI, all resources that the server lists are watched. Lost connections are opened again. Ctrl-C ends it.
    Watch(Box<WatchOptions>),
    /// Measures how fast a server answers, with `ping` or `server/discover`.
    Ping(Box<PingOptions>),
    /// Shows, awaits, answers and cancels the tasks of a server.
    Tasks(Box<TasksOptions>),
    /// Shows and records what a client and a server send to each other.
    ///
    /// With a command after `--`, it runs the command and passes its stdin, stdout and stderr through: put it before the
    /// command in a host's configuration. With a URL, it is a reverse proxy: give the host the address that it prints. What
    /// it shows goes to stderr.
    Tap(Box<TapOptions>),
    /// Ends a process group when stdin ends.
    #[command(hide = true)]
    TapGuard(GuardOptions),
    /// Shows a recording: its exchanges in order, or one of them in full.
    Show(Box<ShowOptions>),
    /// Compares two recordings. The exit code is 6 if they differ.
    ///
    /// Requests are aligned by method and arguments. Ids, times and the opaque `requestState` are not compared.
    Diff(Box<DiffOptions>),
    /// Checks a recording against the specification. The exit code is 6 if it finds something.
    Check(Box<CheckOptions>),
    /// Prints a recording as HAR, for the network view of browsers and proxies, or as OpenTelemetry traces.
    Export(Box<ExportOptions>),
    /// Connects clients to a server that has another transport or another protocol version.
    ///
    /// The server is a command after `--`, or a URL. A command is served over HTTP unless `--stdio` is given, and a URL over
    /// stdin and stdout unless `--http` is given.
    Bridge(Box<BridgeOptions>),
    /// Serves a recording, to clients of every version.
    ///
    /// A request is answered like the recorded one with the same method and arguments. What the recording does not have is
    /// reported on stderr.
    Mock(Box<MockOptions>),
    /// Sends the requests of a recording to a server, and compares the answers.
    ///
    /// Questions of the server are answered as in the recording. Differences in `_meta`, cursors, states, task ids, times and
    /// UUIDs do not count. The exit code is 6 if an answer differs or is missing.
    Replay(Box<ReplayOptions>),
    /// Cancels calls over stdio, HTTP/1.1 and HTTP/2 and in process, in two versions, and shows how their handlers stop.
    ///
    /// Stateless HTTP of versions before 2026-07-28 is not shown: its clients cannot cancel a call.
    Demo(DemoOptions),
    /// Examines a server: what is wrong, why it matters, and how to mend it.
    ///
    /// Sends only requests that read. Whether a cancelled call stops can be seen only with a tool that takes some seconds:
    /// name one with --cancel-tool, or the doctor looks for one that is read-only. The exit code is 6 if there are errors.
    Doctor(Box<DoctorOptions>),
    /// Writes a small server project: one tool, a test, and how to add it to a host.
    New(NewOptions),
    /// Serves the tools of the demonstration.
    ServeDemo(ServeOptions),
    /// Prints a script that completes words of the command in a shell.
    ///
    /// Bash: bowline completions bash > ~/.local/share/bash-completion/completions/bowline
    /// Zsh: bowline completions zsh > a folder of $fpath, as _bowline
    /// Fish: bowline completions fish > ~/.config/fish/completions/bowline.fish
    #[command(
        verbatim_doc_comment,
        about = "Prints a script that completes words of the command in a shell"
    )]
    Completions(CompletionsOptions),
    /// Prints the man page, or writes one for each command to a folder.
    Man(ManOptions),
}

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

// How a server ends after SIGTERM.
// No doc comment: it would be the description of every command with these options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Shutdown")]
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
  bowline new weather --path ../bowline    a small server project, with a test
  bowline demo                             cancelled calls over stdio and HTTP";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CliCommand, String> {
        let words = line.split_whitespace();
        CliCommand::parse(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_help_of_a_command_begins_as_the_list_of_commands_describes_it() {
        let list = Options::command();
        let mut examined = 0;
        for listed in list.get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = listed.get_name();
            let help = parse(&format!("{name} --help")).unwrap_err();
            // Lines are folded.
            let first = help.split("\n\n").next().unwrap().replace('\n', " ");
            let described = listed.get_about().unwrap().to_string();
            let (first, described) = (first.trim_end_matches('.'), described.trim_end_matches('.'));
            assert_eq!(first, described, "{name}");
            examined += 1;
        }
        assert!(examined > 20, "{examined}");
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
        assert!(parse("dance").unwrap_err().contains("'dance'"));
        assert!(parse("demo --loud").unwrap_err().contains("'--loud'"));
        assert!(parse("serve-demo --port 70000").is_err());
        assert!(parse("serve-demo --transport pigeon").is_err());
    }

    #[test]
    fn no_option_names_the_machine_a_host() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let names = argument.get_value_names().unwrap_or_default();
                assert!(
                    !names.iter().any(|name| name.contains("HOST")),
                    "{argument:?}"
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&CliCommand::definition());
    }
}
