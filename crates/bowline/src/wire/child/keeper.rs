//! The task that owns a child process, from its start until it is reaped.
//!
//! ```text
//! living ──the wire is gone, its input closed──▶ grace ──▶ SIGTERM ──▶ grace ──▶ SIGKILL
//!    │                                             │                     │          │
//!    └──exits by itself───────────────▶ reaped ◀───┴─────────────────────┴──────────┘
//! ```
//!
//! SIGTERM and its grace are for an orderly close only. If the task itself is dropped, because its runtime
//! ends, the group is killed at once.

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

/// Looks after one process.
pub(super) struct Keeper {
    child: Child,
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
    grace: Duration,
    is_orderly: Arc<AtomicBool>,
    is_reaped: bool,
}

/// What a child ended with, or why that is not known.
#[derive(Clone, Debug)]
pub(super) struct Exit(Result<ExitStatus, Arc<io::Error>>);

/// How its owner ends a child and learns that it has ended.
pub(crate) struct Leash {
    is_orderly: Arc<AtomicBool>,
    exited: watch::Receiver<Option<Exit>>,
}

impl Keeper {
    /// Starts to look after `child` until it is reaped. `hearing` reads its stderr.
    pub(super) fn start(
        child: Child,
        grace: Duration,
        released: oneshot::Receiver<()>,
        hearing: impl Future<Output = ()> + Send + 'static,
    ) -> (Leash, impl Future<Output = Option<Exit>> + Send + 'static) {
        let is_orderly = Arc::new(AtomicBool::new(false));
        let keeper = Self {
            #[cfg(unix)]
            group: (child.id())
                .and_then(|id| i32::try_from(id).ok())
                .and_then(rustix::process::Pid::from_raw),
            child,
            grace,
            is_orderly: is_orderly.clone(),
            is_reaped: false,
        };
        let (sender, exited) = watch::channel(None);
        // Ends with the process, which ends with its wire.
        tokio::spawn(keeper.keep(released, hearing, sender));
        let leash = Leash { is_orderly, exited };
        let exited = leash.exited.clone();
        (leash, wait_for_exit(exited))
    }

    async fn keep(
        mut self,
        released: oneshot::Receiver<()>,
        hearing: impl Future<Output = ()> + Send + 'static,
        sender: watch::Sender<Option<Exit>>,
    ) {
        let mut stderr = JoinSet::new();
        stderr.spawn(hearing);
        let status = tokio::select! {
            // A child that has ended by itself need not be ended.
            biased;
            status = self.child.wait() => status,
            // Nothing is ever sent: it resolves when the wire is dropped.
            _ = released => self.end().await,
        };
        self.is_reaped = true;
        // Its children have lost their parent. The group's id cannot have been given away in between:
        // a group keeps its id for as long as it has members, and ids are not reused at once.
        self.kill();
        // Its last words may still be in the pipe; a process that left the group may keep it open.
        let _ = timeout(LINGER, stderr.join_next()).await;
        sender.send_replace(Some(Exit(status.map_err(Arc::new))));
    }

    /// Ends the process, whose input is closed by now.
    async fn end(&mut self) -> io::Result<ExitStatus> {
        if let Ok(status) = timeout(self.grace, self.child.wait()).await {
            return status;
        }
        if self.is_orderly.load(Ordering::Relaxed) && self.terminate() {
            tracing::debug!("the child did not exit when its input was closed");
            if let Ok(status) = timeout(self.grace, self.child.wait()).await {
                return status;
            }
        }
        tracing::debug!("the child has to be killed");
        self.kill();
        self.child.wait().await
    }

    /// Asks the whole group to exit. Whether that can be done.
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
        let _ = self.child.start_kill(); // fails if it has exited, which is as good
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) -> bool {
        let group = self.group.into_iter();
        // Fails if nobody is left in the group.
        group
            .map(|group| rustix::process::kill_process_group(group, signal))
            .all(|sent| sent.is_ok())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
        }
    }
}

impl Leash {
    /// From here on the child is asked to exit before it is killed.
    pub(crate) fn end_in_order(&self) {
        self.is_orderly.store(true, Ordering::Relaxed);
    }

    /// Waits until the child was reaped.
    ///
    /// # Cancel safety
    ///
    /// Safe: the child ends even if nobody waits for it.
    pub(crate) async fn reaped(&self) {
        wait_for_exit(self.exited.clone()).await;
    }
}

/// What the child ended with; `None` if the keeper was dropped before it could tell.
async fn wait_for_exit(mut exited: watch::Receiver<Option<Exit>>) -> Option<Exit> {
    let exit = exited.wait_for(Option::is_some).await.ok()?;
    exit.clone()
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(status) => write!(f, "{status}"),
            Err(error) => write!(f, "an unknown status ({error})"),
        }
    }
}

/// How long stderr may stay open after its process has ended.
const LINGER: Duration = Duration::from_millis(500);
