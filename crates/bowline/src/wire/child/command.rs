//! What to start, where, and with which environment.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Child, Input, Keeper, LastWords, Leash, Lines};
use crate::{Error, Result};

/// A server to start as a child process, without a shell.
///
/// A [`std::process::Command`] becomes one by `into()`, with its program, arguments, folder and the
/// variables that were set on it. Its standard input, output and error are ours. So does the name or path of a
/// program that takes no arguments: `Client::spawn("weather-server")`.
///
/// # Environment
///
/// A server is often somebody else's program, and the environment is where secrets are kept. So by
/// default a child gets only the variables that were set for it with [`Command::env`] and these, if this
/// process has them:
///
/// * on Unix `HOME`, `LANG`, `LC_ALL`, `LC_CTYPE`, `LOGNAME`, `PATH`, `SHELL`, `TERM`, `TMPDIR`, `USER`;
/// * on Windows `APPDATA`, `HOMEDRIVE`, `HOMEPATH`, `LOCALAPPDATA`, `PATH`, `PATHEXT`,
///   `PROCESSOR_ARCHITECTURE`, `PROGRAMFILES`, `SYSTEMDRIVE`, `SYSTEMROOT`, `TEMP`, `USERNAME`,
///   `USERPROFILE`.
///
/// [`Command::inherit_env`] hands down everything.
///
/// # How it ends
///
/// Its input is closed and it has a grace period (2 s) to exit. After [`Client::close`] it is then asked
/// to by SIGTERM and has the same time again; then, or at once if the client was merely dropped, it is
/// killed. On Unix the child leads a process group of its own, and both signals go to the whole group;
/// what is left of the group when the child has exited is killed too. Elsewhere only the child itself is
/// ended, and without being asked. If the runtime ends first, the group is killed at once.
///
/// [`Client::close`]: crate::Client::close
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> bowline::Result<()> {
/// use bowline::{Client, wire::Command};
///
/// let command = Command::new("weather-server")
///     .args(["--units", "metric"])
///     .env("API_KEY", "…")
///     .on_stderr(|line| eprintln!("weather: {line}"));
/// let client = Client::spawn(command).await?;
/// # Ok(()) }
/// ```
#[must_use = "a command does nothing until it is spawned"]
pub struct Command {
    command: tokio::process::Command,
    inherits: Inherits,
    on_stderr: Option<OnStderr>,
    grace: Duration,
}

/// What is done with each line of stderr.
pub(super) type OnStderr = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone, Copy, Debug)]
enum Inherits {
    SafeVariables,
    Everything,
}

impl Command {
    /// Runs `program`, which is looked up in `PATH` unless it is a path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        std::process::Command::new(program).into()
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Withholds an environment variable that would be inherited.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Hands down the whole environment of this process, secrets included.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::wire::Command;
    ///
    /// let command = Command::new("build-server").inherit_env().env_remove("GITHUB_TOKEN");
    /// ```
    pub fn inherit_env(mut self) -> Self {
        self.inherits = Inherits::Everything;
        self
    }

    /// Runs in this folder.
    pub fn current_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Calls `on_stderr` with each line that the server writes to stderr. By default they are logged at
    /// debug level.
    ///
    /// It is called on the runtime and so must not block. A line of more than 8 KiB comes in pieces.
    pub fn on_stderr(mut self, on_stderr: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_stderr = Some(Arc::new(on_stderr));
        self
    }

    /// How long the server has to exit after its input was closed, and again after SIGTERM. 2 s by
    /// default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Starts the child. Needs a runtime, which then looks after it.
    pub(crate) fn spawn(&mut self) -> Result<(Box<dyn super::Wire>, Leash)> {
        self.prepare();
        let mut child = self.command.spawn().map_err(|error| {
            let program = self.command.as_std().get_program().to_string_lossy();
            Error::Transport {
                what: format!("`{program}` cannot be started"),
                source: Some(error.into()),
            }
        })?;
        let (Some(input), Some(output), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::misuse("a child's input and output must be pipes"));
        };
        let last_words = Arc::new(LastWords::default());
        let hearing = last_words.clone().hear(stderr, self.on_stderr.clone());
        let (held, released) = oneshot::channel();
        let (leash, exited) = Keeper::start(child, self.grace, released, hearing);
        let wire = Child {
            lines: Lines::new(output, Input(Some(input))),
            ending: super::Ending::default(),
            exited: Box::pin(exited),
            last_words,
            _held: held,
        };
        Ok((Box::new(wire), leash))
    }

    fn prepare(&mut self) {
        if let Inherits::SafeVariables = self.inherits {
            let chosen: Vec<(OsString, Option<OsString>)> = (self.command.as_std().get_envs())
                .map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned)))
                .collect();
            self.command.env_clear();
            self.command.envs(safe_variables());
            for (name, value) in chosen {
                match value {
                    Some(value) => self.command.env(name, value),
                    None => self.command.env_remove(name),
                };
            }
        }
        self.command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        self.command.process_group(0);
        #[cfg(windows)]
        self.command.creation_flags(CREATE_NO_WINDOW);
    }
}

impl From<tokio::process::Command> for Command {
    fn from(command: tokio::process::Command) -> Self {
        Self {
            command,
            inherits: Inherits::SafeVariables,
            on_stderr: None,
            grace: DEFAULT_GRACE,
        }
    }
}

impl From<std::process::Command> for Command {
    fn from(command: std::process::Command) -> Self {
        tokio::process::Command::from(command).into()
    }
}

/// A program without arguments. There is no shell that would look for some in its name.
impl From<&str> for Command {
    fn from(program: &str) -> Self {
        Self::new(program)
    }
}

/// A program without arguments.
impl From<OsString> for Command {
    fn from(program: OsString) -> Self {
        Self::new(program)
    }
}

/// A program without arguments.
impl From<PathBuf> for Command {
    fn from(program: PathBuf) -> Self {
        Self::new(program)
    }
}

impl std::fmt::Debug for Command {
    /// Leaves out arguments and variables, where secrets may be.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.command.as_std().get_program())
            .field("inherits", &self.inherits)
            .finish_non_exhaustive()
    }
}

/// Those of this process's variables that a child may know.
fn safe_variables() -> impl Iterator<Item = (&'static str, OsString)> {
    SAFE_VARIABLES
        .iter()
        .filter_map(|name| Some((*name, std::env::var_os(name)?)))
        // A function that a shell exported: code, not a value.
        .filter(|(_, value)| !value.as_encoded_bytes().starts_with(b"()"))
}

const DEFAULT_GRACE: Duration = Duration::from_secs(2);

#[cfg(not(windows))]
const SAFE_VARIABLES: &[&str] = &[
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER",
];
#[cfg(windows)]
const SAFE_VARIABLES: &[&str] = &[
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];
/// A server has no window.
#[cfg(windows)]
const CREATE_NO_WINDOW: u32 = 0x0800_0000;
