//! Serving the client that started this process.

use std::io;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Server;
use crate::{Error, Result, wire};

impl Server {
    /// Serves the client that started this process, over standard input and output.
    ///
    /// The wire is moved away from descriptors 0 and 1 first, so that neither `println!` nor a child of
    /// this process can corrupt it; see [`wire::stdio`]. Clients of every protocol version are served.
    ///
    /// Returns when the client closes our input, after running handlers had two seconds to finish. At
    /// SIGTERM or SIGINT (Ctrl-C outside Unix) the server is shut down with the same grace; at the second
    /// one it returns at once. Both signals are taken over from their default, for the whole process.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if standard input and output were taken before, [`Error::Transport`] if they
    /// cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the wire and drops every handler. Standard input and output are not
    /// given back.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// #[tokio::main]
    /// async fn main() -> bowline::Result<()> {
    ///     bowline::Server::new("calculator", "1.0.0").serve_stdio().await
    /// }
    /// ```
    pub async fn serve_stdio(self) -> Result<()> {
        let wire = wire::stdio()?;
        let mut signals = Signals::new().map_err(|error| Error::Transport {
            what: "signals cannot be listened for".into(),
            source: Some(error.into()),
        })?;
        // In a task of its own, which is dropped with this set: what `main` waits for is polled on a thread
        // of its own or after a look at the operating system, and a handler's answer would have to wait.
        let mut serving = JoinSet::new();
        serving.spawn(self.clone().serve(wire));
        // A wire that is at its end needs no shutdown any more.
        tokio::select! {
            biased;
            served = outcome(&mut serving) => return served,
            () = signals.next() => self.shut_down(GRACE),
        }
        tokio::select! {
            biased;
            served = outcome(&mut serving) => served,
            () = signals.next() => Ok(()),
        }
    }
}

/// What comes of the one task in the set; its panic is ours.
async fn outcome(task: &mut JoinSet<Result<()>>) -> Result<()> {
    match task.join_next().await {
        Some(Ok(served)) => served,
        Some(Err(failed)) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::Closed), // the runtime is shutting down
        },
        None => Ok(()),
    }
}

/// The signals by which a process is asked to end.
#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            // They mean the same, so that any order will do.
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    #[allow(clippy::unnecessary_wraps, reason = "on Unix it can fail")]
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await // nobody can ask
        }
    }
}

/// How long handlers may still run when the process is asked to end.
const GRACE: Duration = Duration::from_secs(2);
