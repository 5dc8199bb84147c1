//! [`Command`], the builder of a server that runs as a child process.

use std::error::Error as StdError;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::{OutputLimit, shortened};
use tokio::sync::oneshot;

use super::{ChildHandle, ChildOutput, ChildWire, Lines, Reaper, StdinPipe};
use crate::limits::ReadBudget;
use crate::wire::EngineWire;
use crate::{Error, Result};

/// A server to run as a child process, without a shell.
///
/// Can be converted from a [`std::process::Command`], keeping its program, arguments, working directory and environment
/// variables but not its stdio, and from the name or path of a program without arguments:
/// `Client::spawn("weather-server")`.
///
/// # Environment
///
/// A server is often a third-party program, and the environment often contains secrets. So by default a child gets only
/// the variables that were set with [`Command::env`], and these, if this process has them:
///
/// * on Unix `HOME`, `LANG`, `LC_ALL`, `LC_CTYPE`, `LOGNAME`, `PATH`, `SHELL`, `TERM`, `TMPDIR`, `USER`;
/// * on Windows `APPDATA`, `HOMEDRIVE`, `HOMEPATH`, `LOCALAPPDATA`, `PATH`, `PATHEXT`,
///   `PROCESSOR_ARCHITECTURE`, `PROGRAMFILES`, `SYSTEMDRIVE`, `SYSTEMROOT`, `TEMP`, `USERNAME`,
///   `USERPROFILE`.
///
/// [`Command::inherit_env`] passes everything.
///
/// # Termination
///
/// The child's stdin is closed, and the child has a grace period (2 s) to exit. After [`Client::close`] it then gets
/// SIGTERM and another grace period. Finally, or after the first grace period if the client was dropped instead of
/// closed, it is killed. On Unix the child is the leader of a new process group; signals go to the whole group, and the
/// rest of the group is killed when the child has exited. On other systems only the child is killed, without SIGTERM.
/// If the runtime shuts down first, the group is killed immediately.
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
#[must_use = "commands do nothing until spawned"]
pub struct Command {
    command: tokio::process::Command,
    env_policy: EnvPolicy,
    on_stderr: Option<OnStderr>,
    max_stderr_rate: u64,
    grace: Duration,
}

/// A callback for each line of stderr.
pub(super) type OnStderr = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone, Copy, Debug)]
enum EnvPolicy {
    SafeVariables,
    Everything,
}

impl Command {
    /// Creates a command for `program`, which is looked up in `PATH` unless it is a path.
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

    /// Removes an environment variable that would be inherited.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Passes the whole environment of this process, including secrets.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::wire::Command;
    ///
    /// let command = Command::new("build-server").inherit_env().env_remove("GITHUB_TOKEN");
    /// ```
    pub fn inherit_env(mut self) -> Self {
        self.env_policy = EnvPolicy::Everything;
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets a callback for each line that the server writes to stderr. By default lines are logged at debug level.
    ///
    /// It runs on the runtime and must not block. A line of more than 8 KiB is split. After 64 KiB in a second
    /// ([`max_stderr_rate`](Self::max_stderr_rate)), lines are dropped for a second; a line `… N bytes of stderr of PROGRAM
    /// dropped` follows.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::wire::Command;
    ///
    /// let (lines, received) = std::sync::mpsc::channel();
    /// let command = Command::new("build-server").on_stderr(move |line| drop(lines.send(line.to_owned())));
    /// ```
    pub fn on_stderr(mut self, on_stderr: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_stderr = Some(Arc::new(on_stderr));
        self
    }

    /// Sets the maximum number of bytes of stderr that are passed on in a second, to the callback or to the log. 64 KiB by
    /// default; `u64::MAX` for a program that reports over its stderr.
    pub fn max_stderr_rate(mut self, bytes_per_second: u64) -> Self {
        self.max_stderr_rate = bytes_per_second;
        self
    }

    /// Sets how long the server has to exit after its stdin is closed, and again after SIGTERM. 2 s by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Starts the child and the task that reaps it. Must be called in a tokio runtime.
    pub(crate) fn spawn(
        &mut self,
        budget: Option<&ReadBudget>,
    ) -> Result<(Box<dyn EngineWire>, ChildHandle)> {
        self.prepare();
        let mut child = self
            .command
            .spawn()
            .map_err(|error| self.start_error(error))?;
        let (Some(input), Some(output), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::misuse(
                "stdin, stdout and stderr of a child must be pipes",
            ));
        };
        let program = self.command.as_std().get_program().to_string_lossy();
        let printed = Arc::new(ChildOutput::new(&program));
        let limit = OutputLimit::new(self.max_stderr_rate);
        let read_stderr = printed
            .clone()
            .read_stderr(stderr, self.on_stderr.clone(), limit);
        let (alive, released) = oneshot::channel();
        let (process, exited) = Reaper::start(child, self.grace, released, read_stderr);
        let (input, input_monitor) = StdinPipe::new(input);
        let mut lines = Lines::new(output, input);
        if let Some(budget) = budget {
            lines = lines.read_budget(budget);
        }
        let wire = ChildWire {
            lines,
            exit_signs: super::ExitSigns::default(),
            exited: Box::pin(exited),
            output: printed.clone(),
            received: 0,
            malformed: 0,
            _alive: alive,
        };
        let handle = ChildHandle {
            process,
            input: input_monitor,
            output: printed,
        };
        Ok((Box::new(wire), handle))
    }

    /// Returns the error of a program that could not be started, with the likely cause.
    fn start_error(&self, error: io::Error) -> Error {
        let command = self.command.as_std();
        let program = command.get_program().to_string_lossy();
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let dir = command.get_current_dir();
        let mut source: Box<dyn StdError + Send + Sync> = error.into();
        let cause = match dir.filter(|dir| is_missing && !dir.is_dir()) {
            Some(dir) => format!(": the working directory {} does not exist", dir.display()),
            None if !is_missing => String::new(),
            // A string is not split at spaces, which is the most frequent mistake.
            None if program.contains(char::is_whitespace) => {
                ": no such program; it is started without a shell, so its arguments must be separate words"
                    .into()
            }
            None if Path::new(&*program).components().count() > 1 => ": no such file".into(),
            None => match self.path_variable() {
                Some(path) => {
                    source = Box::new(ProgramNotFound { path });
                    ": not found in PATH; install it, or give its full path".into()
                }
                None => ": PATH is not set; give the full path of the program".into(),
            },
        };
        Error::Transport {
            what: format!("failed to start `{}`{cause}", shortened(&program)),
            source: Some(source),
        }
    }

    /// Returns the `PATH` in which the program was looked up: that of the command, or of this process.
    fn path_variable(&self) -> Option<OsString> {
        let set = self.command.as_std().get_envs();
        match set.into_iter().find(|(name, _)| *name == "PATH") {
            Some((_, path)) => path.map(OsStr::to_owned),
            None => std::env::var_os("PATH"),
        }
    }

    fn prepare(&mut self) {
        if let EnvPolicy::SafeVariables = self.env_policy {
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

/// The command as [`Client::spawn`](crate::Client::spawn) starts it, for a program that reads and writes the streams of
/// the server by itself: with the environment that is described above, pipes, and on Unix as the leader of a process
/// group. The callback for stderr and the grace period are lost.
///
/// # Examples
///
/// ```
/// use bowline::wire::Command;
///
/// let command = tokio::process::Command::from(Command::new("weather-server").env("UNITS", "metric"));
/// assert_eq!(command.as_std().get_program(), "weather-server");
/// ```
impl From<Command> for tokio::process::Command {
    fn from(mut command: Command) -> Self {
        command.prepare();
        command.command
    }
}

/// A program was not found in the `PATH` of its [`Command`]: the `source` of [`Error::Transport`]. It shows folders of this
/// machine, so do not send it to others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PATH is {}", shortened(path.display()))]
#[non_exhaustive]
pub struct ProgramNotFound {
    /// The `PATH` in which it was looked up.
    pub path: OsString,
}

impl From<tokio::process::Command> for Command {
    fn from(command: tokio::process::Command) -> Self {
        Self {
            command,
            env_policy: EnvPolicy::SafeVariables,
            on_stderr: None,
            max_stderr_rate: OutputLimit::BYTES_PER_SECOND,
            grace: DEFAULT_GRACE,
        }
    }
}

impl From<std::process::Command> for Command {
    fn from(command: std::process::Command) -> Self {
        tokio::process::Command::from(command).into()
    }
}

/// A program without arguments. The string is not split at spaces, since there is no shell.
impl From<&str> for Command {
    fn from(program: &str) -> Self {
        Self::new(program)
    }
}

/// A program without arguments. The string is not split at spaces, since there is no shell.
impl From<String> for Command {
    fn from(program: String) -> Self {
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
impl From<&Path> for Command {
    fn from(program: &Path) -> Self {
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
    /// Omits arguments and variables, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.command.as_std().get_program())
            .field("env_policy", &self.env_policy)
            .finish_non_exhaustive()
    }
}

/// Returns the variables of this process that a child gets by default.
fn safe_variables() -> impl Iterator<Item = (&'static str, OsString)> {
    SAFE_VARIABLES
        .iter()
        .filter_map(|name| Some((*name, std::env::var_os(name)?)))
        // Excludes functions that bash exported, which are code.
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
/// Prevents a console window.
#[cfg(windows)]
const CREATE_NO_WINDOW: u32 = 0x0800_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_any_kind_of_string_or_path() {
        for command in [
            Command::from("server"),
            Command::from(String::from("server")),
            Command::from(OsString::from("server")),
            Command::from(Path::new("server")),
            Command::from(PathBuf::from("server")),
        ] {
            assert_eq!(command.command.as_std().get_program(), "server");
        }
    }
}
