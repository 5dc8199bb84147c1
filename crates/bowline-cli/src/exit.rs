//! [`Exit`], the exit codes of the command. They are stable: scripts depend on them.

use std::process::ExitCode;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// Any failure without a code of its own.
    Failure,
    /// Invalid arguments.
    Usage,
    /// The server cannot be reached, or refuses the credentials.
    Connect,
    /// The server answered with a JSON-RPC error.
    Rpc,
    /// The tool reported an error (`isError`).
    Tool,
    /// A check found something.
    Findings,
    TimedOut,
    Interrupted,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Connect => 3,
            Self::Rpc => 4,
            Self::Tool => 5,
            Self::Findings => 6,
            Self::TimedOut => 7,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The section of `bowline --help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    failure
  2    invalid arguments
  3    cannot connect to the server, or not authorized
  4    the server answered with a JSON-RPC error
  5    the tool reported an error (isError)
  6    a check found something (check, diff, doctor, replay)
  7    timed out
  130  interrupted";
