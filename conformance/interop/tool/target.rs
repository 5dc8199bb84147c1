//! [`Tool`], the command `bowline` with a server to run it against.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::program::{Ended, Program};

/// The server.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Url(String),
    Command(Vec<String>),
}

/// `bowline`, a server, and the protocol version that is used; the negotiated one if `None`.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    bowline: PathBuf,
    version: Option<&'static str>,
    target: Target,
}

/// The words of a command line of `bowline`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a> {
    pub(crate) command: &'a str,
    pub(crate) options: &'a [&'a str],
    /// What follows the server, such as the name of a tool.
    pub(crate) arguments: &'a [&'a str],
}

impl Tool {
    pub(crate) fn new(bowline: PathBuf, version: Option<&'static str>, target: Target) -> Self {
        Self {
            bowline,
            version,
            target,
        }
    }

    pub(crate) fn is_http(&self) -> bool {
        matches!(self.target, Target::Url(_))
    }

    /// Returns whether this is the version of the modern era.
    pub(crate) fn is_modern(&self, negotiated: &str) -> bool {
        self.version.unwrap_or(negotiated) == MODERN
    }

    pub(crate) fn fixed_version(&self) -> Option<&'static str> {
        self.version
    }

    /// Runs a command that talks to the server, in the version of the mode.
    pub(crate) fn run(&self, command: &str, options: &[&str], arguments: &[&str]) -> Result<Ended> {
        self.start(command, options, arguments)?.end()
    }

    /// Starts a command that talks to the server, in the version of the mode.
    pub(crate) fn start(
        &self,
        command: &str,
        options: &[&str],
        arguments: &[&str],
    ) -> Result<Program> {
        let words = Words {
            command,
            options,
            arguments,
        };
        self.start_at(words, &self.target)
    }

    /// Starts a command that talks to another server, such as a tap in front of this one.
    pub(crate) fn start_at(&self, words: Words<'_>, target: &Target) -> Result<Program> {
        let mut bowline = self.bowline(&[words.command]);
        if let Some(version) = self.version {
            bowline.args(["--protocol-version", version]);
        }
        bowline.args(words.options);
        add_target(&mut bowline, target, words.arguments);
        Program::start(&mut bowline, LIMIT)
    }

    /// Runs a command of which the version is no option.
    pub(crate) fn run_without_version(&self, command: &str, options: &[&str]) -> Result<Ended> {
        let mut bowline = self.bowline(&[command]);
        bowline.args(options);
        add_target(&mut bowline, &self.target, &[]);
        Program::start(&mut bowline, LIMIT)?.end()
    }

    /// Runs a command that does not talk to the server.
    pub(crate) fn run_alone(&self, words: &[&str]) -> Result<Ended> {
        Program::start(&mut self.bowline(words), LIMIT)?.end()
    }

    /// Starts a tap in front of a server at a URL.
    pub(crate) fn start_tap(&self, file: &str, url: &str) -> Result<Program> {
        let options = ["tap", "--quiet", "--http", "127.0.0.1:0", "--record", file];
        Program::start(self.bowline(&options).arg(url), LIMIT)
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the command line of a tap in front of a command.
    pub(crate) fn tapped(&self, options: &[&str], command: &[String]) -> Target {
        let mut words = vec![self.bowline.display().to_string(), "tap".to_owned()];
        words.extend(options.iter().map(|&word| word.to_owned()));
        words.push("--".to_owned());
        words.extend(command.iter().cloned());
        Target::Command(words)
    }

    fn bowline(&self, words: &[&str]) -> Command {
        let mut bowline = Command::new(&self.bowline);
        bowline.args(words);
        bowline
    }
}

fn add_target(bowline: &mut Command, target: &Target, arguments: &[&str]) {
    match target {
        Target::Url(url) => bowline.arg(url).args(arguments),
        Target::Command(command) => bowline.args(arguments).arg("--").args(command),
    };
}

pub(crate) const MODERN: &str = "2026-07-28";

/// The limit of one command, most of which take less than a second on an idle machine; the doctor takes some.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
