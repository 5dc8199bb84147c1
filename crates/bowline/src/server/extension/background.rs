//! The background work of extensions, and [`WeakServer`], with which it refers to its server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::callback::catch_panic;
use crate::exchange::BoxFuture;
use crate::server::Server;
use crate::server::definition::ServerDefinition;
use crate::server::snapshot::ServerShared;
use crate::shutdown::Shutdown;
use crate::sync::Mutex;

/// The tasks of a server that run the background work of its extensions.
#[derive(Default)]
pub(in crate::server) struct BackgroundTasks {
    /// The number of extensions whose work was started. The list of a definition only grows.
    started: AtomicUsize,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl BackgroundTasks {
    /// Starts the work of the extensions that were added since the last call, if there is a tokio runtime.
    pub(in crate::server) fn start(
        &self,
        shared: &Arc<ServerShared>,
        definition: &ServerDefinition,
    ) {
        let count = definition.extensions.len();
        if self.started.load(Ordering::Acquire) >= count {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // Of concurrent callers, exactly one gets each extension.
        let first = self.started.fetch_max(count, Ordering::AcqRel);
        for registered in definition.extensions.iter().skip(first) {
            catch_panic("`ServerExtension::background`", || {
                let server = WeakServer::new(shared);
                if let Some(work) = registered.extension.background(server) {
                    let task = runtime.spawn(run_until_shutdown(work, shared.shutdown.clone()));
                    self.tasks.lock().push(task.abort_handle());
                }
            });
        }
    }

    /// Returns how much of the work has not ended.
    pub(in crate::server) fn running(&self) -> usize {
        let tasks = self.tasks.lock();
        tasks.iter().filter(|task| !task.is_finished()).count()
    }

    /// Aborts all work.
    pub(in crate::server) fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task.abort();
        }
    }
}

/// Runs the work until it ends, or the grace period of a shutdown is over.
async fn run_until_shutdown(mut work: BoxFuture<'static, ()>, shutdown: Shutdown) {
    tokio::select! {
        // The work first: if it has ended, there is nothing to wait for.
        biased;
        () = &mut work => {}
        () = shutdown.closed() => {
            tracing::debug!("dropped the background work of an extension after the grace period");
        }
    }
}

/// A reference to a server that does not keep it from being dropped, for
/// [`ServerExtension::background`](super::ServerExtension::background).
#[derive(Clone)]
pub struct WeakServer {
    shared: Weak<ServerShared>,
    shutdown: Shutdown,
}

impl WeakServer {
    fn new(shared: &Arc<ServerShared>) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            shutdown: shared.shutdown.clone(),
        }
    }

    /// Returns the server, or `None` if it was dropped. Drop the returned clone soon: it keeps the server alive.
    #[must_use]
    pub fn upgrade(&self) -> Option<Server> {
        let shared = self.shared.upgrade()?;
        // Calls that the background work runs refer to the server, too, but do not count.
        shared.is_in_use().then(|| Server::from_shared(shared))
    }

    /// Waits until a [drain](Server::drain) refuses new requests. The server waits for the background work to end; it is
    /// dropped when the grace period is over.
    ///
    /// # Cancel safety
    ///
    /// Safe: the signal is not consumed.
    pub async fn shutting_down(&self) {
        self.shutdown.refusing().await;
    }
}

impl std::fmt::Debug for WeakServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakServer").finish_non_exhaustive()
    }
}
