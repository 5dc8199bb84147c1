//! Runs other programs, with their output printed, captured, or both.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The output and the end of a program.
#[derive(Debug)]
pub(crate) struct ProcessOutput {
    pub(crate) end: ExitKind,
    /// Standard output, then standard error.
    pub(crate) output: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    Success,
    Failure,
    /// The program was killed at its deadline.
    TimedOut,
}

/// Returns a command for the cargo that runs this program.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder);
    // The outer cargo sets these for this package; build scripts of the inner one would read them.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns the target folder: `CARGO_TARGET_DIR`, or `target` in `root`.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// Runs a program whose output goes to the terminal; returns whether it succeeded.
pub(crate) fn run(command: &mut Command) -> io::Result<bool> {
    Ok(command.status()?.success())
}

/// Runs a program, and both prints and captures its standard output.
pub(crate) fn run_and_capture(command: &mut Command) -> io::Result<ProcessOutput> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut output = String::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            writeln!(io::stdout(), "{line}")?;
            output.push_str(&line);
            output.push('\n');
        }
    }
    let end = exit_kind(child.wait()?.success());
    Ok(ProcessOutput { end, output })
}

/// Runs a program and captures its output. Kills it and its children after `limit`.
pub(crate) fn capture(command: &mut Command, limit: Duration) -> io::Result<ProcessOutput> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    set_process_group(command);
    let mut child = command.spawn()?;
    let stdout = read_in_thread(child.stdout.take());
    let stderr = read_in_thread(child.stderr.take());

    let end = wait_with_deadline(&mut child, Instant::now() + limit)?;

    let mut output = stdout.join().unwrap_or_default();
    output.push_str(&stderr.join().unwrap_or_default());
    Ok(ProcessOutput { end, output })
}

fn wait_with_deadline(child: &mut Child, deadline: Instant) -> io::Result<ExitKind> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(exit_kind(status.success()));
        }
        if Instant::now() >= deadline {
            kill_group(child)?;
            child.wait()?;
            return Ok(ExitKind::TimedOut);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn exit_kind(success: bool) -> ExitKind {
    if success {
        ExitKind::Success
    } else {
        ExitKind::Failure
    }
}

/// Reads a pipe in its own thread. A full pipe would block the program while the other one is read.
fn read_in_thread(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // Output before a read error is still used.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Puts the program and its children into one process group: killing cargo alone would leave its test program running.
#[cfg(unix)]
pub(crate) fn set_process_group(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0);
}

#[cfg(not(unix))]
pub(crate) fn set_process_group(_: &mut Command) {}

#[cfg(unix)]
pub(crate) fn kill_group(child: &mut Child) -> io::Result<()> {
    let group = format!("-{}", child.id());
    Command::new("kill")
        .args(["-KILL", "--", &group])
        .status()?;
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn kill_group(child: &mut Child) -> io::Result<()> {
    child.kill()
}

/// A shell that kills a process group when this program ends without [`dismiss`](Self::dismiss), as SIGKILL ends it: a
/// pipe that only this program writes to ends then.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct GroupGuard(Child);

#[cfg(unix)]
impl GroupGuard {
    /// Guards a program that was started with [`set_process_group`].
    pub(crate) fn start(child: &Child) -> io::Result<Self> {
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD_SCRIPT, "guard", &child.id().to_string()]);
        guard.stdin(Stdio::piped());
        guard.stdout(Stdio::null()).stderr(Stdio::null());
        // A signal to the group of this program must not end the guard.
        set_process_group(&mut guard);
        guard.spawn().map(Self)
    }

    /// Ends the guard, because the group has ended.
    pub(crate) fn dismiss(&mut self) {
        if let Some(mut stdin) = self.0.stdin.take() {
            // Fails if the guard has ended already.
            let _ = stdin.write_all(b"\n");
        }
        let _ = self.0.wait();
    }

    #[cfg(test)]
    pub(crate) fn end_pipe(&mut self) {
        self.0.stdin = None;
    }
}

/// Reads a line. If the pipe ends without one, kills the process group.
#[cfg(unix)]
const GUARD_SCRIPT: &str = r#"read -r line || kill -s KILL -- "-$1""#;

#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct GroupGuard;

#[cfg(not(unix))]
impl GroupGuard {
    pub(crate) fn start(_: &Child) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn dismiss(&mut self) {}
}

const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_killed_with_its_children_at_its_deadline() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; sleep 600 & wait"]);

        let captured = capture(&mut command, Duration::from_secs(5)).unwrap();

        assert_eq!(captured.end, ExitKind::TimedOut);
        assert_eq!(captured.output, "started\n");
    }

    #[test]
    fn both_outputs_of_a_failure_are_captured() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);

        let captured = capture(&mut command, Duration::from_secs(60)).unwrap();

        assert_eq!(captured.end, ExitKind::Failure);
        assert_eq!(captured.output, "out\nerr\n");
    }
}
