//! A program under test: started on its core, asked for its cost, ended when dropped.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::machine::{self, Core};

/// What is compared, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Raw,
    Bowline,
    RmcpBest,
    RmcpDefault,
}

impl Subject {
    pub(crate) const ALL: [Self; 4] = [Self::Raw, Self::Bowline, Self::RmcpBest, Self::RmcpDefault];
    /// Those that offer everything that is measured.
    pub(crate) const FULL: [Self; 3] = [Self::Raw, Self::Bowline, Self::RmcpBest];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Bowline => "Bowline",
            Self::RmcpBest => "rmcp best",
            Self::RmcpDefault => "rmcp default",
        }
    }

    /// The server, with nothing said but which way to go.
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
        };
        let mut command = Command::new(machine::programs().join(name));
        if self == Self::RmcpDefault {
            command.arg("--default");
        }
        command
    }
}

/// How a program under test is run, apart from what it is measured with.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) core: Core,
    pub(crate) arguments: &'a [&'a str],
}

impl Setting<'_> {
    /// A runtime of one thread, on a core of its own.
    pub(crate) const USUAL: Self = Self {
        core: Core::Test,
        arguments: &[],
    };
    /// The other end of what is measured: a runtime of one thread, on the core of the load.
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
    /// Starts `command` on `core`, with pipes to talk to it.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub(crate) fn start(command: &mut Command, core: Core) -> Self {
        machine::pin(core);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        machine::pin(Core::Load);
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child }
    }

    /// Starts the server of `subject`, and returns where it listens.
    pub(crate) fn serve(subject: Subject, setting: Setting<'_>) -> (Self, SocketAddr) {
        let mut command = subject.server();
        let mut program = Self::start(command.args(setting.arguments), setting.core);
        let server = program.address();
        (program, server)
    }

    /// Waits until the server says where it listens.
    ///
    /// # Panics
    ///
    /// If it ends first.
    pub(crate) fn address(&mut self) -> SocketAddr {
        let line = self.line();
        let addr = line.strip_prefix("listening ");
        let addr = addr.and_then(|addr| addr.trim().parse().ok());
        addr.unwrap_or_else(|| panic!("a server said {line:?} in the place of its address"))
    }

    /// The next line that it says.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.child.stdout.as_mut().expect("it is piped");
        // A program says one line at a time and waits, so that nothing is lost in the buffer.
        let _ = BufReader::new(stdout).read_line(&mut line);
        line
    }

    /// Its pipes, to be talked to otherwise.
    pub(crate) fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        let (input, output) = (self.child.stdin.take(), self.child.stdout.take());
        (input.expect("it is piped"), output.expect("it is piped"))
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(mut self) {
        let id = i32::try_from(self.id()).expect("a process id is small");
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        let _ = self.child.wait();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn cpu_ns(&self) -> u64 {
        machine::cpu_ns(self.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
