//! `Program`: a program under test as a child process pinned to a core, killed on drop.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::{self, Core};

/// The compared programs, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Raw,
    Bowline,
    RmcpBest,
    RmcpDefault,
    // Bridges only.
    McpProxy,
    Supergateway,
    FastMcp,
}

impl Subject {
    pub(crate) const ALL: [Self; 4] = [Self::Raw, Self::Bowline, Self::RmcpBest, Self::RmcpDefault];
    /// The subjects that implement all tools.
    pub(crate) const FULL: [Self; 3] = [Self::Raw, Self::Bowline, Self::RmcpBest];

    /// The programs between clients and servers.
    pub(crate) const BRIDGES: [Self; 5] = [
        Self::Raw,
        Self::Bowline,
        Self::McpProxy,
        Self::Supergateway,
        Self::FastMcp,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Bowline => "Bowline",
            Self::RmcpBest => "rmcp best",
            Self::RmcpDefault => "rmcp default",
            Self::McpProxy => "mcp-proxy",
            Self::Supergateway => "supergateway",
            Self::FastMcp => "FastMCP",
        }
    }

    /// Returns the command of the server.
    pub(crate) fn server(self) -> Command {
        self.command(["raw-server", "bench-server", "rmcp-server"])
    }

    pub(crate) fn client(self) -> Command {
        self.command(["raw-client", "bench-client", "rmcp-client"])
    }

    fn command(self, [raw, bowline, rmcp]: [&str; 3]) -> Command {
        let name = match self {
            Self::Raw => raw,
            Self::Bowline => bowline,
            Self::RmcpBest | Self::RmcpDefault => rmcp,
            Self::McpProxy | Self::Supergateway | Self::FastMcp => {
                unreachable!("{} is neither a server nor a client", self.name())
            }
        };
        let mut command = Command::new(machine::program_folder().join(name));
        if self == Self::RmcpDefault {
            command.arg("--default");
        }
        command
    }
}

/// The cores and additional arguments of a program under test.
#[derive(Clone, Copy)]
pub(crate) struct ProcessSetting<'a> {
    pub(crate) core: Core,
    pub(crate) arguments: &'a [&'a str],
}

impl ProcessSetting<'_> {
    /// A current-thread runtime on its own core.
    pub(crate) const USUAL: Self = Self {
        core: Core::Test,
        arguments: &[],
    };
    /// The other end of a measured client: a current-thread runtime on the core of the load.
    pub(crate) const LOAD: Self = Self {
        core: Core::Load,
        arguments: &[],
    };
}

/// A running program.
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Starts `command` on `core`, with piped input and output.
    ///
    /// # Panics
    ///
    /// If the program cannot be started.
    pub(crate) fn start(command: &mut Command, core: Core) -> Self {
        Self::spawn(command.stdout(Stdio::piped()), core)
    }

    /// Starts a program whose output is not read: with a pipe, it would stop as soon as that is full.
    ///
    /// # Panics
    ///
    /// If the program cannot be started.
    pub(crate) fn start_silent(command: &mut Command, core: Core) -> Self {
        Self::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()), core)
    }

    fn spawn(command: &mut Command, core: Core) -> Self {
        machine::pin(core);
        // Input stays open: some servers exit at its end.
        let child = command.stdin(Stdio::piped()).spawn();
        machine::pin(Core::Load);
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child }
    }

    /// Starts the server of `subject`, and returns its address.
    pub(crate) fn serve(subject: Subject, setting: ProcessSetting<'_>) -> (Self, SocketAddr) {
        let mut command = subject.server();
        let mut program = Self::start(command.args(setting.arguments), setting.core);
        let server = program.address();
        (program, server)
    }

    /// Waits until the server prints its address.
    ///
    /// # Panics
    ///
    /// If it exits first.
    pub(crate) fn address(&mut self) -> SocketAddr {
        let line = self.line();
        let addr = line.strip_prefix("listening ");
        let addr = addr.and_then(|addr| addr.trim().parse().ok());
        addr.unwrap_or_else(|| panic!("expected `listening <address>` from a server, got {line:?}"))
    }

    /// Reads the next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        // A program prints one line and waits, so the dropped buffer has no more data.
        let _ = BufReader::new(stdout).read_line(&mut line);
        line
    }

    /// Takes its pipes.
    pub(crate) fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        let (input, output) = (self.child.stdin.take(), self.child.stdout.take());
        (input.expect("a pipe"), output.expect("a pipe"))
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn terminate(mut self) {
        let id = i32::try_from(self.id()).expect("a valid process id");
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        let _ = self.child.wait();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    pub(crate) fn cpu_ns(&self) -> u64 {
        machine::cpu_ns(self.id())
    }

    /// Waits for the exit, and returns the CPU time of the whole run.
    ///
    /// # Panics
    ///
    /// If the program fails.
    pub(crate) fn cpu_ns_until_exit(mut self) -> u64 {
        let before = machine::own_children_cpu_ns();
        let status = self.child.wait();
        let passed = status.as_ref().is_ok_and(std::process::ExitStatus::success);
        assert!(passed, "a program under test ended with {status:?}");
        machine::own_children_cpu_ns() - before
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
