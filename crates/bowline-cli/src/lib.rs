//! The command `bowline`: looks at servers, calls and watches them; a bridge between clients and servers; a fixture to
//! check clients with; and a demonstration of cancellation.

#![allow(
    clippy::print_stdout,
    reason = "this is a command-line program; `wire::stdio` redirects stdout before using it"
)]

mod arguments;

mod bridge;

mod call;

mod check;

mod child_stderr;

pub mod clock;

mod command_line;

mod complete;

mod content;

mod counters;
pub use counters::{Counters, SlowCallCounts};

mod demo;

mod diff;

mod doctor;

mod encryption;

mod exit;

mod export;

mod failure;

pub mod fixture;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

mod hosts;

mod https;

mod interrupt;

mod latency;

mod log;

mod ls;

mod media;

mod mock;

mod nearest;

mod new_project;

mod options;

mod ordered_json;

mod output;

mod ping;

mod prompt;

mod questions;

mod read;

mod redact;

mod replay;

mod serve;

mod servers;

mod shell;

mod show;

mod sign_in;

mod signature;

mod status_line;

mod suggestion;

mod tap;

mod target;

mod tasks;

pub mod telemetry;

mod timeline_view;

mod usage_error;

mod values;

mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use exit::Exit;
use failure::Failure;
use options::CliCommand;

/// Runs the command with these arguments, without the program name.
///
/// `bowline --help` lists the exit codes.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let words: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let texts: Vec<String> = (words.iter())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let ended = match CliCommand::parse(&words) {
        Ok(command) => dispatch(command),
        Err(why) => match usage_error::failure(&why, &texts) {
            Some(failure) => Err(failure),
            None => {
                // Fails if the reader is gone, to whom there is nothing more to say.
                let _ = why.print();
                return ExitCode::from(u8::try_from(why.exit_code()).unwrap_or(2));
            }
        },
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.print(&texts);
            failure.exit().into()
        }
    }
}

fn dispatch(command: CliCommand) -> Result<Exit, Failure> {
    match command {
        CliCommand::Help => {
            println!("{}", CliCommand::help());
            Ok(Exit::Success)
        }
        CliCommand::Servers(options) => servers::run(&options),
        CliCommand::Ls(options) => block_on(ls::run(*options)),
        CliCommand::Call(options) => block_on(call::run(*options)),
        CliCommand::Read(options) => block_on(read::run(*options)),
        CliCommand::Prompt(options) => block_on(prompt::run(*options)),
        CliCommand::Complete(options) => block_on(complete::run(*options)),
        CliCommand::Watch(options) => block_on(watch::run(*options)),
        CliCommand::Ping(options) => block_on(ping::run(*options)),
        CliCommand::Tasks(options) => block_on(tasks::run(*options)),
        CliCommand::Tap(options) => block_on(tap::run(*options)),
        CliCommand::TapGuard(options) => Ok(tap::guard(&options)),
        CliCommand::Show(options) => show::run(&options),
        CliCommand::Diff(options) => diff::run(&options),
        CliCommand::Check(options) => check::run(&options),
        CliCommand::Export(options) => export::run(&options),
        CliCommand::Completions(shell) => shell::print_completions(shell),
        CliCommand::Man(options) => shell::print_man(&options),
        CliCommand::Demo(format) => block_on(async move {
            match demo::run(format).await {
                true => Ok(Exit::Success),
                false => Ok(Exit::Failure),
            }
        }),
        CliCommand::Doctor(options) => block_on(async move { doctor::run(&options).await }),
        CliCommand::New(options) => new_project::run(&options),
        CliCommand::ServeDemo(transport, telemetry) => block_on(async move {
            serve::run(transport, &telemetry).await?;
            Ok(Exit::Success)
        }),
        CliCommand::Mock(options) => block_on(async move { options.run().await }),
        CliCommand::Replay(options) => block_on(async move { options.run().await }),
        CliCommand::Bridge(plan) => block_on(async move {
            let served = bridge::run(*plan).await;
            served.map_err(|error| match error.downcast::<Failure>() {
                Ok(failure) => *failure,
                Err(error) => Failure::of(&*error),
            })?;
            Ok(Exit::Success)
        }),
    }
}

/// Runs a command that needs the runtime. Those that do not start faster without it.
fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::other("failed to start the runtime").caused_by(error))?;
    let result = runtime.block_on(async {
        tokio::select! {
            biased; // a result that is complete counts
            result = command => result,
            () = interrupt::interrupted_twice() => Err(Failure::interrupted()),
        }
    });
    // Drops all tasks, which kills child processes; but does not wait for ever for a thread that looks up a name.
    runtime.shutdown_timeout(SHUTDOWN_TIME);
    result
}

const SHUTDOWN_TIME: Duration = Duration::from_secs(1);
