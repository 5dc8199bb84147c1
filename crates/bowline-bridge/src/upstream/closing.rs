//! [`ClosingConnections`]: connections that are being closed in the background.

use std::sync::{Mutex, PoisonError};

use bowline::client::Connection;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Closes connections in order, so that a child process gets SIGTERM before SIGKILL and is reaped.
///
/// A connection is dropped in places that cannot wait: under an idle timeout, or with the wire of its client. Without
/// these tasks, a process that ends the bridge would kill a child that has had no time to exit.
#[derive(Default)]
pub(crate) struct ClosingConnections {
    tasks: Mutex<JoinSet<()>>,
}

impl ClosingConnections {
    /// Starts to close a connection.
    pub(crate) fn close(&self, connection: Connection) {
        // Outside of a runtime there is no task either that could keep the connection open.
        if Handle::try_current().is_err() {
            return;
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { connection.close().await });
    }

    /// Waits until the connections that are being closed now are closed.
    ///
    /// # Cancel safety
    ///
    /// The connections close even if the future is dropped.
    pub(crate) async fn wait(&self) {
        let tasks = || self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut closing = std::mem::take(&mut *tasks());
        while closing.join_next().await.is_some() {}
    }
}
