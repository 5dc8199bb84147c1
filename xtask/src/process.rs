//! Running other programs: with their output shown, shown and kept, or only kept.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a program said and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) end: End,
    /// Standard output, then standard error.
    pub(crate) output: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    Failure,
    /// It was still running at its deadline and was killed.
    Hung,
}

/// The cargo that runs this program.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder);
    // Set by the outer cargo for this very package; an inner one would take it for its own.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Where builds go: as the environment says, or `target` in `root`.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// Runs a program whose output goes straight to the terminal.
pub(crate) fn show(command: &mut Command) -> io::Result<bool> {
    Ok(command.status()?.success())
}

/// Runs a program whose standard output is shown line by line, and kept.
pub(crate) fn show_and_keep(command: &mut Command) -> io::Result<Finished> {
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
    let end = end_of(child.wait()?.success());
    Ok(Finished { end, output })
}

/// Runs a program in silence for at most `limit`, then kills it and everything it started.
pub(crate) fn keep(command: &mut Command, limit: Duration) -> io::Result<Finished> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    in_its_own_group(command);
    let mut child = command.spawn()?;
    let stdout = read_aside(child.stdout.take());
    let stderr = read_aside(child.stderr.take());

    let end = wait_until(&mut child, Instant::now() + limit)?;

    let mut output = stdout.join().unwrap_or_default();
    output.push_str(&stderr.join().unwrap_or_default());
    Ok(Finished { end, output })
}

fn wait_until(child: &mut Child, deadline: Instant) -> io::Result<End> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(end_of(status.success()));
        }
        if Instant::now() >= deadline {
            kill_group(child)?;
            child.wait()?;
            return Ok(End::Hung);
        }
        thread::sleep(POLL_EVERY);
    }
}

fn end_of(success: bool) -> End {
    if success { End::Success } else { End::Failure }
}

/// A pipe nobody reads blocks its writer, so each is drained by a thread of its own.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What arrived before a broken pipe is still worth judging.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Killing cargo alone would leave its test program running, so both share a group.
#[cfg(unix)]
pub(crate) fn in_its_own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0);
}

#[cfg(not(unix))]
pub(crate) fn in_its_own_group(_: &mut Command) {}

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

const POLL_EVERY: Duration = Duration::from_millis(20);

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_outlives_its_deadline_is_killed_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; sleep 600 & wait"]);

        let finished = keep(&mut command, Duration::from_millis(200)).unwrap();

        assert_eq!(finished.end, End::Hung);
        assert_eq!(finished.output, "started\n");
    }

    #[test]
    fn both_outputs_of_a_failure_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);

        let finished = keep(&mut command, Duration::from_secs(60)).unwrap();

        assert_eq!(finished.end, End::Failure);
        assert_eq!(finished.output, "out\nerr\n");
    }
}
