//! [`Reaper`], the task that owns a child process until it is reaped, and [`ProcessHandle`], its handle.
//!
//! ```text
//! running ──wire dropped, stdin closed──▶ grace period ──▶ SIGTERM ──▶ grace period ──▶ SIGKILL
//!    │                                         │                            │              │
//!    └──exits───────────────────▶ reaped ◀─────┴────────────────────────────┴──────────────┘
//! ```
//!
//! SIGTERM is sent for an orderly close only. If the task is dropped, because its runtime shuts down, the process group
//! is killed immediately.

use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::process::Child;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Owns, terminates and reaps one child process.
pub(super) struct Reaper {
    child: Child,
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
    grace: Duration,
    sigterm_requested: Arc<AtomicBool>,
    is_reaped: bool,
}

/// The exit status of a child, or the error of waiting for it.
#[derive(Clone, Debug)]
pub(super) struct ExitOutcome(Result<ExitStatus, Arc<io::Error>>);

/// A handle to a child process: requests SIGTERM, and waits for the exit.
#[derive(Clone)]
pub(super) struct ProcessHandle {
    id: Option<u32>,
    sigterm_requested: Arc<AtomicBool>,
    exited: watch::Receiver<Option<ExitOutcome>>,
}

impl Reaper {
    /// Spawns the task for `child`. `read_stderr` reads its stderr; `released` resolves when the wire is dropped.
    pub(super) fn start(
        child: Child,
        grace: Duration,
        released: oneshot::Receiver<()>,
        read_stderr: impl Future<Output = ()> + Send + 'static,
    ) -> (
        ProcessHandle,
        impl Future<Output = Option<ExitOutcome>> + Send + 'static,
    ) {
        let sigterm_requested = Arc::new(AtomicBool::new(false));
        let id = child.id();
        let reaper = Self {
            #[cfg(unix)]
            group: id
                .and_then(|id| i32::try_from(id).ok())
                .and_then(rustix::process::Pid::from_raw),
            child,
            grace,
            sigterm_requested: sigterm_requested.clone(),
            is_reaped: false,
        };
        let (sender, exited) = watch::channel(None);
        // The task ends with the process, which is terminated when the wire is dropped.
        tokio::spawn(reaper.run(released, read_stderr, sender));
        let handle = ProcessHandle {
            id,
            sigterm_requested,
            exited,
        };
        let exited = handle.exited.clone();
        (handle, wait_for_exit(exited))
    }

    async fn run(
        mut self,
        released: oneshot::Receiver<()>,
        read_stderr: impl Future<Output = ()> + Send + 'static,
        sender: watch::Sender<Option<ExitOutcome>>,
    ) {
        let mut stderr = JoinSet::new();
        stderr.spawn(read_stderr);
        let status = tokio::select! {
            // A child that has exited need not be terminated.
            biased;
            status = self.child.wait() => status,
            // No value is sent: it resolves when the wire is dropped.
            _ = released => self.end().await,
        };
        self.is_reaped = true;
        // Kills the child's own children. The signal cannot hit another group: a group id is not reused while the group
        // has members, and not immediately afterwards.
        self.kill();
        // The pipe may still contain the end of stderr. The timeout is for a process that left the group and keeps the
        // pipe open.
        let _ = timeout(LINGER, stderr.join_next()).await;
        sender.send_replace(Some(ExitOutcome(status.map_err(Arc::new))));
    }

    /// Terminates the process, whose stdin is closed.
    async fn end(&mut self) -> io::Result<ExitStatus> {
        if let Ok(status) = timeout(self.grace, self.child.wait()).await {
            return status;
        }
        if self.sigterm_requested.load(Ordering::Relaxed) && self.terminate() {
            tracing::debug!("child did not exit after its stdin was closed; sent SIGTERM");
            if let Ok(status) = timeout(self.grace, self.child.wait()).await {
                return status;
            }
        }
        tracing::debug!("child did not exit within its grace period; killing it");
        self.kill();
        self.child.wait().await
    }

    /// Sends SIGTERM to the process group. Returns whether it was sent.
    #[cfg(unix)]
    fn terminate(&mut self) -> bool {
        self.signal(rustix::process::Signal::TERM)
    }

    #[cfg(not(unix))]
    fn terminate(&mut self) -> bool {
        false
    }

    #[cfg(unix)]
    fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
    }

    #[cfg(not(unix))]
    fn kill(&mut self) {
        let _ = self.child.start_kill(); // fails if it has exited
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) -> bool {
        let group = self.group.into_iter();
        // Fails if the group has no members.
        group
            .map(|group| rustix::process::kill_process_group(group, signal))
            .all(|sent| sent.is_ok())
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
        }
    }
}

impl ProcessHandle {
    /// Makes the termination orderly: SIGTERM comes before SIGKILL.
    pub(super) fn request_sigterm(&self) {
        self.sigterm_requested.store(true, Ordering::Relaxed);
    }

    /// Returns the process id; `None` after the child was reaped, when another process may have the id.
    pub(super) fn id(&self) -> Option<u32> {
        let is_running = self.exited.borrow().is_none();
        self.id.filter(|_| is_running)
    }

    /// Waits until the child is reaped.
    ///
    /// # Cancel safety
    ///
    /// Safe: the task reaps the child in any case.
    pub(super) async fn reaped(&self) {
        wait_for_exit(self.exited.clone()).await;
    }
}

/// Returns the exit status; `None` if the task was dropped before.
async fn wait_for_exit(mut exited: watch::Receiver<Option<ExitOutcome>>) -> Option<ExitOutcome> {
    let exit = exited.wait_for(Option::is_some).await.ok()?;
    exit.clone()
}

impl fmt::Display for ExitOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(status) => write!(f, "{status}"),
            Err(error) => write!(f, "an unknown status ({error})"),
        }
    }
}

/// How long stderr is read after the process has exited.
const LINGER: Duration = Duration::from_millis(500);
