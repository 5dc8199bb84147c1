//! [`Signals`]: how often the user has asked the command to end.

use tokio::sync::watch;

/// Counts SIGTERM and SIGINT (Ctrl-C outside Unix) from its start on.
#[derive(Debug)]
pub(crate) struct Signals(watch::Receiver<usize>);

impl Signals {
    pub(crate) fn start() -> Self {
        let (count, counted) = watch::channel(0);
        tokio::spawn(async move {
            let Some(mut signals) = EndSignals::listen() else {
                return std::future::pending().await; // without a handler there is nothing to count
            };
            while signals.next().await {
                count.send_modify(|count| *count += 1);
            }
        });
        Self(counted)
    }

    /// Waits for a future that ends the command in order, or for the next signal, but for no third one: a user who signals
    /// twice does not want to wait for child processes, which are then killed.
    pub(crate) async fn until_second(&self, future: impl Future<Output = ()>) {
        let mut counted = self.0.clone();
        let wanted = (*counted.borrow() + 1).min(2);
        tokio::select! {
            biased;
            // First, so that nothing is begun after the second one.
            _ = counted.wait_for(|count| *count >= wanted) => {}
            () = future => {}
        }
    }
}

#[cfg(unix)]
struct EndSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl EndSignals {
    fn listen() -> Option<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Some(Self {
            terminate: signal(SignalKind::terminate()).ok()?,
            interrupt: signal(SignalKind::interrupt()).ok()?,
        })
    }

    /// Waits for the next one; returns `false` if there will be none.
    async fn next(&mut self) -> bool {
        tokio::select! {
            biased; // both mean the same
            received = self.terminate.recv() => received.is_some(),
            received = self.interrupt.recv() => received.is_some(),
        }
    }
}

#[cfg(not(unix))]
struct EndSignals;

#[cfg(not(unix))]
impl EndSignals {
    fn listen() -> Option<Self> {
        Some(Self)
    }

    async fn next(&mut self) -> bool {
        tokio::signal::ctrl_c().await.is_ok()
    }
}
