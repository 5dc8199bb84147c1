//! [`ClosingConnections`]: connections that are being closed in the background.

use std::sync::{Mutex, PoisonError};

use bowline::client::Connection;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection::ConnectionPermit;

/// Closes connections in order, so that a child process gets SIGTERM before SIGKILL and is reaped.
///
/// A connection is dropped in places that cannot wait: under an idle timeout, or with the wire of its client. Without
/// these tasks, a process that ends the bridge would kill a child that has had no time to exit.
#[derive(Default)]
pub(crate) struct ClosingConnections {
    tasks: Mutex<JoinSet<()>>,
    /// How many connections are being closed.
    count: watch::Sender<usize>,
}

impl ClosingConnections {
    /// Starts to close a connection, which counts against the limits until it is closed: its process may take a while to
    /// exit.
    pub(crate) fn close(&self, connection: Connection, permit: Option<ConnectionPermit>) {
        self.run(async move {
            connection.close().await;
            drop(permit);
        });
    }

    /// Returns how many connections are being closed, and when that changes.
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Waits until no connection is being closed.
    ///
    /// # Cancel safety
    ///
    /// The connections close even if the future is dropped.
    pub(crate) async fn wait(&self) {
        // Fails if the sender is dropped, which `self` owns.
        let _ = self.count().wait_for(|count| *count == 0).await;
    }

    fn run(&self, closing: impl Future<Output = ()> + Send + 'static) {
        // Outside of a runtime there is no task either that could keep the connection open.
        if Handle::try_current().is_err() {
            return;
        }
        let counted = CountedClosing::new(&self.count);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            closing.await;
            drop(counted);
        });
    }
}

/// A connection that counts as being closed until this is dropped.
struct CountedClosing(watch::Sender<usize>);

impl CountedClosing {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for CountedClosing {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_close_even_if_their_end_is_not_awaited_any_more() {
        let closing = ClosingConnections::default();
        let (exit, exited) = oneshot::channel::<()>();
        let (closed, is_closed) = oneshot::channel();
        closing.run(async move {
            let _ = exited.await;
            let _ = closed.send(());
        });

        let waited = tokio::time::timeout(Duration::from_secs(1), closing.wait()).await;
        assert!(waited.is_err());
        exit.send(()).unwrap();

        is_closed.await.unwrap();
        closing.wait().await;
        assert_eq!(*closing.count().borrow(), 0);
    }
}
