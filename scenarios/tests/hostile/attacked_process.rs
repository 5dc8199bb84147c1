//! The attacked child process: this program again, in a cgroup, with its peak memory and its output recorded.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cgroup::Cgroup;

/// A child process under attack.
#[derive(Debug)]
pub(crate) struct AttackedProcess {
    child: Mutex<Child>,
    id: u32,
    stdin: Mutex<Option<ChildStdin>>,
    /// The lines of its stdout and stderr.
    output: Arc<Mutex<Vec<String>>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
    peak: Arc<AtomicU64>,
    /// Whether it was killed because its memory exceeded [`KILL_LIMIT`].
    is_killed: AtomicBool,
    _cgroup: Option<Cgroup>,
}

impl AttackedProcess {
    /// Starts this program with these arguments, in a cgroup if one is given.
    pub(crate) fn start(arguments: &[&str], cgroup: Option<Cgroup>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command
            .args(arguments)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        if let Some(cgroup) = &cgroup {
            cgroup.add(child.id()).unwrap();
        }
        let output: Arc<Mutex<Vec<String>>> = Arc::default();
        let stdout = read_lines(child.stdout.take().unwrap(), &output);
        let stderr = read_lines(child.stderr.take().unwrap(), &output);
        Self {
            id: child.id(),
            stdin: Mutex::new(child.stdin.take()),
            child: Mutex::new(child),
            output,
            readers: Mutex::new(vec![stdout, stderr]),
            peak: Arc::default(),
            is_killed: AtomicBool::new(false),
            _cgroup: cgroup,
        }
    }

    /// Waits for the first line that starts with this prefix; returns the rest of it.
    pub(crate) async fn wait_for_line(&self, word: &str) -> Option<String> {
        loop {
            let found = self.find(word);
            if found.is_some() || self.exit().is_some() {
                return found.or_else(|| self.find(word));
            }
            crate::pause::pause(Duration::from_millis(5)).await;
        }
    }

    /// The rest of the first line that starts with this prefix, if there is one.
    pub(crate) fn find(&self, word: &str) -> Option<String> {
        let output = lock(&self.output);
        let mut found = output.iter().filter_map(|line| line.strip_prefix(word));
        found.next().map(|rest| rest.trim().to_owned())
    }

    /// The lines of its output that report an error.
    pub(crate) fn errors(&self) -> Vec<String> {
        let output = lock(&self.output);
        let is_error = |line: &&String| ERROR_MARKERS.iter().any(|error| line.contains(error));
        let mut errors: Vec<String> = output.iter().filter(is_error).cloned().collect();
        errors.truncate(5);
        for error in &mut errors {
            *error = error.chars().take(300).collect();
        }
        errors
    }

    /// Writes a line to its stdin.
    pub(crate) fn write_line(&self, line: &str) {
        if let Some(stdin) = lock(&self.stdin).as_mut() {
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// The peak resident memory, in bytes. Kills the process if it exceeds [`KILL_LIMIT`].
    pub(crate) fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id));
        let status = status.unwrap_or_default();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
        let peak = peak.map_or(0, |kilobytes| kilobytes.parse::<u64>().unwrap() * 1024);
        let peak = peak.max(self.peak.fetch_max(peak, Ordering::Relaxed));
        if peak > KILL_LIMIT && !self.is_killed.swap(true, Ordering::Relaxed) {
            let _ = lock(&self.child).kill();
        }
        peak
    }

    /// The processor time used, in seconds; 0 after it has exited.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id)).unwrap_or_default();
        // The second field is the name in parentheses; user and system time are the 14th and the 15th.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        ticks / TICKS_PER_SECOND
    }

    /// The exit status, if it has exited.
    pub(crate) fn exit(&self) -> Option<ExitStatus> {
        lock(&self.child).try_wait().unwrap()
    }

    /// Waits until it exits and its output is read.
    pub(crate) async fn ended(&self) -> ExitStatus {
        loop {
            if let Some(status) = self.exit() {
                self.read_to_the_end();
                return status;
            }
            crate::pause::pause(Duration::from_millis(5)).await;
        }
    }
}

impl AttackedProcess {
    /// Waits for the readers, whose streams end with the process.
    fn read_to_the_end(&self) {
        for reader in lock(&self.readers).drain(..) {
            let _ = reader.join();
        }
    }
}

impl Drop for AttackedProcess {
    fn drop(&mut self) {
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
        drop(child);
        self.read_to_the_end();
    }
}

fn read_lines(
    stream: impl std::io::Read + Send + 'static,
    output: &Arc<Mutex<Vec<String>>>,
) -> JoinHandle<()> {
    let output = output.clone();
    let (started, starts) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let _ = started.send(());
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { return };
            let mut output = lock(&output);
            // Bounds the memory of the runner if the process prints without end.
            if output.len() < MAX_LINES {
                output.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
    });
    let _ = starts.recv();
    reader
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Texts that the standard library prints for panics, stack overflows and failed allocations, and the
/// `EventLengthCheck` of the server for long log events.
const ERROR_MARKERS: [&str; 4] = [
    "panicked at",
    "overflowed its stack",
    "memory allocation of",
    "log event of",
];
/// `USER_HZ`, which is 100 on Linux.
const TICKS_PER_SECOND: f64 = 100.0;
const MAX_LINES: usize = 10_000;
/// The peak at which an attack has clearly succeeded and the process is killed.
const KILL_LIMIT: u64 = 3 << 30;
