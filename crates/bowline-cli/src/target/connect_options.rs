//! The options that every command with a server has.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Target, resolve};
use crate::failure::Failure;
use crate::values::{parse_duration, parse_version};

// The server of a command that takes no other words.
// No doc comment: it would be the description of every command with these options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct TargetArgs {
    /// The server: a URL, a name from the configuration of a host, or FILE#NAME.
    pub(crate) target: Option<String>,
    /// The command that starts the server, and its arguments.
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}

impl TargetArgs {
    /// Finds the server.
    ///
    /// # Errors
    ///
    /// If there is none, or more than one.
    pub(crate) fn resolve(&self, options: &ConnectOptions) -> Result<Target, Failure> {
        resolve(self.target.as_deref(), &self.command, options)
    }
}

// How to reach the server.
// No doc comment: it would be the description of every command with these options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectOptions {
    /// Send this header to the URL, `Name: value` (repeatable). `${NAME}` is replaced by an environment variable.
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,
    /// Set an environment variable of the command, `NAME=VALUE`, or pass on that of this process, `NAME` (repeatable).
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) env: Vec<String>,
    /// Pass the whole environment to the command, including secrets.
    #[arg(long)]
    pub(crate) inherit_env: bool,
    /// Do not sign in with OAuth when the server at the URL refuses a request.
    #[arg(long)]
    pub(crate) no_oauth: bool,
    /// The folder for OAuth tokens. Only its owner can read the files.
    #[arg(long, value_name = "DIR", conflicts_with = "no_oauth")]
    pub(crate) token_dir: Option<PathBuf>,
    /// Use this protocol version and no other, for example 2025-11-25.
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    pub(crate) protocol_version: Option<String>,
    /// How long connecting may take until the server has answered, for example 60s [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) connect_timeout: Option<Duration>,
    /// Log more to stderr, and show what the command prints there; twice for everything.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}
