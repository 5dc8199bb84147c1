//! A child process under attack: this program again, in a cgroup, with its peak and its stderr watched.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cgroup::Cgroup;

/// A process under attack.
#[derive(Debug)]
pub(crate) struct Attacked {
    child: Mutex<Child>,
    id: u32,
    stdin: Mutex<Option<ChildStdin>>,
    /// What it printed on stdout and on stderr.
    said: Arc<Mutex<Vec<String>>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
    peak: Arc<AtomicU64>,
    /// Whether it was killed because it held too much.
    is_killed: AtomicBool,
    _cgroup: Option<Cgroup>,
}

impl Attacked {
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
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let stdout = read_lines(child.stdout.take().unwrap(), &said);
        let stderr = read_lines(child.stderr.take().unwrap(), &said);
        Self {
            id: child.id(),
            stdin: Mutex::new(child.stdin.take()),
            child: Mutex::new(child),
            said,
            readers: Mutex::new(vec![stdout, stderr]),
            peak: Arc::default(),
            is_killed: AtomicBool::new(false),
            _cgroup: cgroup,
        }
    }

    /// The first line that begins with this word, without the word, once there is one.
    pub(crate) async fn told(&self, word: &str) -> Option<String> {
        loop {
            let found = self.find(word);
            if found.is_some() || self.exit().is_some() {
                return found.or_else(|| self.find(word));
            }
            crate::pause::pause(Duration::from_millis(5)).await;
        }
    }

    /// The first line that begins with this word, without the word, if there is one.
    pub(crate) fn find(&self, word: &str) -> Option<String> {
        let said = lock(&self.said);
        let mut found = said.iter().filter_map(|line| line.strip_prefix(word));
        found.next().map(|rest| rest.trim().to_owned())
    }

    /// What it printed that says that something is wrong.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let said = lock(&self.said);
        let is_complaint =
            |line: &&String| COMPLAINTS.iter().any(|complaint| line.contains(complaint));
        let mut complaints: Vec<String> = said.iter().filter(is_complaint).cloned().collect();
        complaints.truncate(5);
        for complaint in &mut complaints {
            *complaint = complaint.chars().take(300).collect();
        }
        complaints
    }

    /// Writes a line to its stdin.
    pub(crate) fn tell(&self, line: &str) {
        if let Some(stdin) = lock(&self.stdin).as_mut() {
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// The most memory that it ever had in use, in bytes. It is killed if that is beyond all measure.
    pub(crate) fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id));
        let status = status.unwrap_or_default();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
        let peak = peak.map_or(0, |kilobytes| kilobytes.parse::<u64>().unwrap() * 1024);
        let peak = peak.max(self.peak.fetch_max(peak, Ordering::Relaxed));
        if peak > BEYOND_MEASURE && !self.is_killed.swap(true, Ordering::Relaxed) {
            let _ = lock(&self.child).kill();
        }
        peak
    }

    /// How much processor time it has used, in seconds, as far as it still runs.
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

    /// How it ended, if it did.
    pub(crate) fn exit(&self) -> Option<ExitStatus> {
        lock(&self.child).try_wait().unwrap()
    }

    /// Waits until it ends by itself, and until all that it printed is read.
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

impl Attacked {
    /// Waits for the readers, whose streams end with the process.
    fn read_to_the_end(&self) {
        for reader in lock(&self.readers).drain(..) {
            let _ = reader.join();
        }
    }
}

impl Drop for Attacked {
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
    said: &Arc<Mutex<Vec<String>>>,
) -> JoinHandle<()> {
    let said = said.clone();
    let (started, starts) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let _ = started.send(());
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { return };
            let mut said = lock(&said);
            // A process that prints without end must not fill the runner instead.
            if said.len() < MOST_LINES {
                said.push(String::from_utf8_lossy(&line).into_owned());
            }
        }
    });
    let _ = starts.recv();
    reader
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the standard library prints about panics, stacks and memory, and `server::Log` about long lines.
const COMPLAINTS: [&str; 4] = [
    "panicked at",
    "overflowed its stack",
    "memory allocation of",
    "log event of",
];
/// As every Linux tells its users, whatever its kernel counts in.
const TICKS_PER_SECOND: f64 = 100.0;
const MOST_LINES: usize = 10_000;
/// An attack that has got this far has shown what it can do.
const BEYOND_MEASURE: u64 = 3 << 30;
