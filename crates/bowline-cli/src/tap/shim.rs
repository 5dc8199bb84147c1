//! The tap on stdio: runs a command, and passes its stdin, stdout and stderr through.
//!
//! ```text
//! host ── stdin ──▶ thread ──▶ child's stdin          each chunk is recorded, then written, before the next one is
//! host ◀─ stdout ── thread ◀── child's stdout         read: nothing is held back, and a side that does not read
//! host ◀─ stderr ── thread ◀── child's stderr         stops the other one, as without a tap
//! ```
//!
//! Of stderr at most 64 KiB a second are passed on and recorded.
//!
//! A chunk is recorded before it is written, so that no answer is recorded before its request. Recording only puts it
//! into a queue.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowline_core::OutputLimit;
use bowline_recording::{ChildExit, EndedBy, EventKind, Recorder, Side};
use tokio::sync::oneshot;

use super::frames::LineSplitter;
use crate::child_stderr::StderrWriter;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::visible_line;

/// Runs the command until it exits, and returns its exit code.
///
/// # Cancel safety
///
/// Dropping it leaves the command to the guard, which ends it when this process has exited.
pub(super) async fn run(
    words: &[OsString],
    recorder: &Recorder,
    stderr: &StderrWriter,
) -> Result<u8, Failure> {
    let signals = signals::Signals::new()
        .map_err(|error| Failure::other("failed to install signal handlers").caused_by(error))?;
    let mut child = spawn(words)?;
    recorder.record(CONNECTION, None, EventKind::Open);
    let group = child.id();
    #[cfg(unix)]
    let guard = super::guard::Guard::start(group);
    let program = words.first().map(|it| it.to_string_lossy());
    let limit = StderrLimit::new(&program.unwrap_or_default());
    let pumps = Pumps::start(&mut child, recorder, stderr, limit).map_err(|error| {
        Failure::other("failed to open stdin, stdout and stderr").caused_by(error)
    })?;
    let (sender, exited) = oneshot::channel();
    thread::spawn(move || {
        let _ = sender.send(child.wait()); // fails if this process exits
    });
    let status = signals.forward_until(group, exited).await;
    pumps.drain().await;
    #[cfg(unix)]
    if let Some(guard) = guard {
        guard.dismiss();
    }
    let status = status
        .map_err(|error| Failure::other("failed to wait for the command").caused_by(error))?;
    let (exit, code) = exit_of(status);
    let by = match pumps.has_client_closed() {
        true => EndedBy::Client,
        false => EndedBy::Server,
    };
    let exit = Some(exit);
    recorder.record(CONNECTION, None, EventKind::Close { by, exit });
    Ok(code)
}

fn spawn(words: &[OsString]) -> Result<Child, Failure> {
    let (program, args) = words
        .split_first()
        .ok_or_else(|| Failure::usage("expected a command after `--`"))?;
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A group of its own: a signal to the group of `tap`, such as Ctrl-C, reaches the command once, through `tap`.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().map_err(|error| {
        let program = program.to_string_lossy();
        let failure = Failure::new(Exit::Connect, format!("failed to start `{program}`"));
        failure
            .caused_by(error)
            .hint("give the full path of the program")
    })
}

/// The threads that copy, and what they have done.
struct Pumps {
    stdin: Arc<PumpState>,
    stdout: Arc<PumpState>,
    stderr: Arc<PumpState>,
}

/// The progress of one direction.
#[derive(Debug, Default)]
struct PumpState {
    /// The source has ended, or the destination is closed.
    has_ended: AtomicBool,
    /// The source has ended.
    is_at_end: AtomicBool,
    is_writing: AtomicBool,
    chunks: AtomicU64,
}

impl Pumps {
    fn start(
        child: &mut Child,
        recorder: &Recorder,
        stderr: &StderrWriter,
        limit: StderrLimit,
    ) -> io::Result<Self> {
        let (Some(to_child), Some(from_child), Some(child_stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let host = HostStreams::open()?;
        Ok(Self {
            stdin: pump(
                "stdin",
                host.stdin,
                to_child,
                None,
                lines_of(recorder, Side::Client),
            )?,
            stdout: pump(
                "stdout",
                from_child,
                host.stdout,
                None,
                lines_of(recorder, Side::Server),
            )?,
            stderr: pump(
                "stderr",
                child_stderr,
                stderr.child_output(host.stderr),
                Some(limit),
                stderr_lines(recorder),
            )?,
        })
    }

    fn has_client_closed(&self) -> bool {
        self.stdin.is_at_end.load(Ordering::Relaxed)
    }

    /// Waits until what the command has written is passed on: to the end of its output, or, if another process has
    /// inherited that, until no more comes.
    async fn drain(&self) {
        let begun = Instant::now();
        let (mut last, mut idle_polls) = (self.chunks(), 0);
        while !self.have_outputs_ended() && begun.elapsed() < MAX_DRAIN {
            let chunks = self.chunks();
            if chunks != last || self.are_writing() {
                (last, idle_polls) = (chunks, 0);
            } else if idle_polls == IDLE_POLLS {
                return;
            }
            tokio::time::sleep(POLL).await;
            idle_polls += 1;
        }
    }

    fn outputs(&self) -> [&PumpState; 2] {
        [&self.stdout, &self.stderr]
    }

    fn have_outputs_ended(&self) -> bool {
        self.outputs()
            .iter()
            .all(|it| it.has_ended.load(Ordering::Relaxed))
    }

    fn are_writing(&self) -> bool {
        self.outputs()
            .iter()
            .any(|it| it.is_writing.load(Ordering::Relaxed))
    }

    fn chunks(&self) -> u64 {
        self.outputs()
            .iter()
            .map(|it| it.chunks.load(Ordering::Relaxed))
            .sum()
    }
}

/// Copies in a new thread, at most as much as `limit` admits. `observe` sees every copied chunk, and then the end.
///
/// The thread may wait for input that never comes; it does not prevent the process from exiting.
fn pump(
    name: &str,
    mut from: impl Read + PollFd + Send + 'static,
    mut to: impl Write + PollFd + Send + 'static,
    mut limit: Option<StderrLimit>,
    mut observe: impl FnMut(Option<&[u8]>) + Send + 'static,
) -> io::Result<Arc<PumpState>> {
    let state = Arc::new(PumpState::default());
    let shared = state.clone();
    thread::Builder::new()
        .name(format!("bowline-tap-{name}"))
        .spawn(move || {
            let mut chunk = vec![0; CHUNK];
            loop {
                let count = match from.read(&mut chunk) {
                    Ok(0) => {
                        shared.is_at_end.store(true, Ordering::Relaxed);
                        break;
                    }
                    Ok(count) => count,
                    Err(error) if is_temporary(&error) => {
                        from.wait(Direction::Read, &error);
                        continue;
                    }
                    // A terminal reports a hangup as an error.
                    Err(_) => {
                        shared.is_at_end.store(true, Ordering::Relaxed);
                        break;
                    }
                };
                shared.is_writing.store(true, Ordering::Relaxed);
                let passed = match &mut limit {
                    Some(limit) => limit.pass(&chunk[..count]),
                    None => Cow::Borrowed(&chunk[..count]),
                };
                observe(Some(&passed));
                let written = write_all(&mut to, &passed);
                shared.chunks.fetch_add(1, Ordering::Relaxed);
                shared.is_writing.store(false, Ordering::Relaxed);
                // The reader is gone. Closing the source tells the writer so.
                if written.is_err() {
                    break;
                }
            }
            if let Some(rest) = limit.and_then(|mut limit| limit.rest()) {
                observe(Some(&rest));
                let _ = write_all(&mut to, &rest); // the reader may be gone
            }
            observe(None);
            drop((from, to));
            shared.has_ended.store(true, Ordering::Relaxed);
        })?;
    Ok(state)
}

/// Limits how much of the stderr of the command is passed on.
struct StderrLimit {
    limit: OutputLimit,
    started: Instant,
    program: String,
    /// Whether the last byte that was passed on is within a line.
    is_in_line: bool,
}

impl StderrLimit {
    fn new(program: &str) -> Self {
        Self {
            limit: OutputLimit::default(),
            started: Instant::now(),
            program: visible_line(program).into_owned(),
            is_in_line: false,
        }
    }

    /// Returns what is passed on of a chunk, after a report of what was dropped before.
    fn pass<'a>(&mut self, chunk: &'a [u8]) -> Cow<'a, [u8]> {
        self.pass_at(chunk, self.started.elapsed())
    }

    fn pass_at<'a>(&mut self, chunk: &'a [u8], now: Duration) -> Cow<'a, [u8]> {
        let dropped = self.limit.take_dropped(now);
        let admitted = &chunk[..self.limit.admit(chunk.len(), now)];
        let report = dropped.map(|bytes| self.report(bytes));
        if let Some(last) = admitted.last() {
            self.is_in_line = *last != b'\n';
        }
        match report {
            Some(report) => Cow::Owned([&report, admitted].concat()),
            None => Cow::Borrowed(admitted),
        }
    }

    /// Returns the report of what was dropped at the end.
    fn rest(&mut self) -> Option<Vec<u8>> {
        let dropped = self.limit.take_all_dropped()?;
        Some(self.report(dropped))
    }

    /// Returns a line of its own.
    fn report(&mut self, bytes: u64) -> Vec<u8> {
        let line_end = if self.is_in_line { "\n" } else { "" };
        self.is_in_line = false;
        let program = &self.program;
        format!("{line_end}… {bytes} bytes of stderr of `{program}` dropped\n").into_bytes()
    }
}

fn write_all(to: &mut (impl Write + PollFd), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if is_temporary(&error) => to.wait(Direction::Write, &error),
            Err(error) => return Err(error),
        }
    }
    to.flush()
}

/// A host may have made its end of the pipe non-blocking, which also applies to this one if they share it.
fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// A stream that can be waited for.
trait PollFd {
    fn wait(&self, direction: Direction, error: &io::Error);
}

#[cfg(unix)]
impl<T: std::os::fd::AsFd> PollFd for T {
    fn wait(&self, direction: Direction, error: &io::Error) {
        use rustix::event::{PollFd, PollFlags, poll};

        if error.kind() == io::ErrorKind::WouldBlock {
            let flags = match direction {
                Direction::Read => PollFlags::IN,
                Direction::Write => PollFlags::OUT,
            };
            // An error shows again at the next attempt.
            let _ = poll(&mut [PollFd::new(self, flags)], None);
        }
    }
}

#[cfg(not(unix))]
impl<T> PollFd for T {
    fn wait(&self, _direction: Direction, _error: &io::Error) {
        thread::sleep(POLL);
    }
}

/// Records the lines of one direction.
fn lines_of(recorder: &Recorder, from: Side) -> impl FnMut(Option<&[u8]>) + Send + 'static {
    let recorder = recorder.clone();
    let mut splitter = LineSplitter::default();
    move |chunk| {
        let lines = match chunk {
            Some(chunk) => splitter.push(chunk),
            None => splitter.finish().into_iter().collect(),
        };
        for line in lines {
            recorder.record_frame(CONNECTION, None, from, line);
        }
    }
}

fn stderr_lines(recorder: &Recorder) -> impl FnMut(Option<&[u8]>) + Send + 'static {
    let recorder = recorder.clone();
    let mut splitter = LineSplitter::default();
    move |chunk| {
        let lines = match chunk {
            Some(chunk) => splitter.push(chunk),
            None => splitter.finish().into_iter().collect(),
        };
        for line in lines {
            let shown = line.get(..MAX_STDERR_LINE).unwrap_or(&line);
            let text = String::from_utf8_lossy(shown).trim_end().to_owned();
            recorder.record(CONNECTION, None, EventKind::Stderr { text });
        }
    }
}

/// The streams of this process, without the buffers of the standard library.
struct HostStreams {
    stdin: File,
    stdout: File,
    stderr: File,
}

impl HostStreams {
    #[cfg(unix)]
    fn open() -> io::Result<Self> {
        use std::os::fd::AsFd as _;

        Ok(Self {
            stdin: File::from(io::stdin().as_fd().try_clone_to_owned()?),
            stdout: File::from(io::stdout().as_fd().try_clone_to_owned()?),
            stderr: File::from(io::stderr().as_fd().try_clone_to_owned()?),
        })
    }

    #[cfg(windows)]
    fn open() -> io::Result<Self> {
        use std::os::windows::io::AsHandle as _;

        Ok(Self {
            stdin: File::from(io::stdin().as_handle().try_clone_to_owned()?),
            stdout: File::from(io::stdout().as_handle().try_clone_to_owned()?),
            stderr: File::from(io::stderr().as_handle().try_clone_to_owned()?),
        })
    }
}

#[cfg(unix)]
fn exit_of(status: ExitStatus) -> (ChildExit, u8) {
    use std::os::unix::process::ExitStatusExt as _;

    match (status.code(), status.signal()) {
        (Some(code), _) => (ChildExit::Code(code), u8::try_from(code).unwrap_or(1)),
        // As a shell reports it.
        (None, Some(signal)) => {
            let code = u8::try_from(signal.saturating_add(128)).unwrap_or(1);
            (ChildExit::Signal(signal), code)
        }
        (None, None) => (ChildExit::Code(1), 1),
    }
}

#[cfg(not(unix))]
fn exit_of(status: ExitStatus) -> (ChildExit, u8) {
    let code = status.code().unwrap_or(1);
    (ChildExit::Code(code), u8::try_from(code).unwrap_or(1))
}

#[cfg(unix)]
mod signals {
    use std::io;
    use std::process::ExitStatus;

    use rustix::process::{Pid, Signal, kill_process_group};
    use tokio::signal::unix::{SignalKind, signal};
    use tokio::sync::{mpsc, oneshot};

    /// The signals that are passed on to the command.
    pub(super) struct Signals {
        received: mpsc::Receiver<Signal>,
    }

    impl Signals {
        pub(super) fn new() -> io::Result<Self> {
            let (sender, received) = mpsc::channel(16);
            for (kind, passed_on) in [
                (SignalKind::hangup(), Signal::HUP),
                (SignalKind::interrupt(), Signal::INT),
                (SignalKind::quit(), Signal::QUIT),
                (SignalKind::terminate(), Signal::TERM),
                (SignalKind::user_defined1(), Signal::USR1),
                (SignalKind::user_defined2(), Signal::USR2),
            ] {
                let mut signals = signal(kind)?;
                let sender = sender.clone();
                // Ends with the runtime.
                tokio::spawn(async move {
                    while signals.recv().await.is_some() {
                        let _ = sender.try_send(passed_on); // sixteen signals at once are enough
                    }
                });
            }
            Ok(Self { received })
        }

        /// Passes signals on until the command has exited.
        pub(super) async fn forward_until(
            mut self,
            group: u32,
            mut exited: oneshot::Receiver<io::Result<ExitStatus>>,
        ) -> io::Result<ExitStatus> {
            let group = i32::try_from(group).ok().and_then(Pid::from_raw);
            loop {
                tokio::select! {
                    biased; // a process that has exited gets no signal: its number may be in use again
                    status = &mut exited => {
                        return status.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
                    }
                    Some(signal) = self.received.recv() => {
                        if let Some(group) = group {
                            let _ = kill_process_group(group, signal);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(not(unix))]
mod signals {
    use std::io;
    use std::process::ExitStatus;

    use tokio::sync::oneshot;

    /// Ctrl-C reaches the command directly, as it shares the console.
    pub(super) struct Signals;

    impl Signals {
        pub(super) fn new() -> io::Result<Self> {
            // Without a handler, Ctrl-C would end this process before the command.
            tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
            Ok(Self)
        }

        pub(super) async fn forward_until(
            self,
            _group: u32,
            exited: oneshot::Receiver<io::Result<ExitStatus>>,
        ) -> io::Result<ExitStatus> {
            exited
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        }
    }
}

/// There is one process, so there is one connection.
const CONNECTION: u64 = 1;

const CHUNK: usize = 64 * 1024;
const MAX_STDERR_LINE: usize = 8 * 1024;

/// How often to look for more output of a command that has exited, and for how long in all. The former is no time: if
/// this program did not run for a while, the threads that read did not either.
const IDLE_POLLS: usize = 60;
const MAX_DRAIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_reported_on_a_line_of_its_own() {
        let mut limit = StderrLimit::new("server");
        let (at_once, later) = (Duration::ZERO, Duration::from_secs(1));

        assert_eq!(*limit.pass_at(b"Name? ", at_once), *b"Name? ");
        let passed = limit.pass_at(&[b'x'; 100_000], at_once).into_owned();
        assert_eq!(passed.len(), 64 * 1024 - 6);
        assert_eq!(*limit.pass_at(b"y", at_once), *b"");
        let passed = limit.pass_at(b"z\n", later).into_owned();
        assert_eq!(
            String::from_utf8(passed).unwrap(),
            "\n… 34471 bytes of stderr of `server` dropped\nz\n"
        );
        limit.pass_at(&[b'\n'; 100_000], later);
        let rest = limit.rest().unwrap();
        assert_eq!(
            String::from_utf8(rest).unwrap(),
            "… 34466 bytes of stderr of `server` dropped\n"
        );
        assert_eq!(limit.rest(), None);
    }
}
