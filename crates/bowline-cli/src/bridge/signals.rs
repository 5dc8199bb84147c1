//! [`Signals`]: how often the user has asked the command to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
#[cfg(unix)]
use std::task::{Context, Waker};

use tokio::sync::watch;

/// Counts SIGTERM and SIGINT (Ctrl-C outside Unix) from its start on. Their default handling is replaced.
#[derive(Debug)]
pub(crate) struct Signals {
    counted: watch::Receiver<usize>,
    /// Shows a signal that the task has not counted yet, although the front has seen it. `None` without handlers.
    uncounted: Mutex<Option<EndSignals>>,
    /// Whether `uncounted` has shown one, which it shows once.
    has_seen: AtomicBool,
}

impl Signals {
    pub(crate) fn start() -> Self {
        let (count, counted) = watch::channel(0);
        let uncounted = Mutex::new(EndSignals::listen());
        let signals = EndSignals::listen();
        tokio::spawn(async move {
            let Some(mut signals) = signals else {
                return std::future::pending().await; // without a handler there is nothing to count
            };
            while signals.next().await {
                count.send_modify(|count| *count += 1);
            }
        });
        Self {
            counted,
            uncounted,
            has_seen: AtomicBool::default(),
        }
    }

    /// Without handlers.
    #[cfg(test)]
    pub(super) fn counted_by(counted: watch::Receiver<usize>) -> Self {
        Self {
            counted,
            uncounted: Mutex::default(),
            has_seen: AtomicBool::default(),
        }
    }

    /// Waits for the first signal.
    pub(crate) async fn first(&self) {
        self.nth(1).await;
    }

    /// Returns whether there was a signal.
    pub(crate) fn has_any(&self) -> bool {
        let uncounted = self.uncounted.lock();
        let mut uncounted = uncounted.unwrap_or_else(PoisonError::into_inner);
        if uncounted.as_mut().is_some_and(EndSignals::is_received) {
            self.has_seen.store(true, Ordering::Relaxed);
        }
        self.has_seen.load(Ordering::Relaxed) || *self.counted.borrow() > 0
    }

    /// Waits for a future that ends the command in order, or for the next signal, but for no third one: a user who signals
    /// twice does not want to wait for child processes, which are then killed.
    pub(crate) async fn until_second(&self, future: impl Future<Output = ()>) {
        let next = if self.has_any() { 2 } else { 1 };
        tokio::select! {
            biased;
            // First, so that nothing is begun after the second one.
            () = self.nth(next) => {}
            () = future => {}
        }
    }

    async fn nth(&self, wanted: usize) {
        let mut counted = self.counted.clone();
        if counted.wait_for(|count| *count >= wanted).await.is_err() {
            std::future::pending().await // no more are counted
        }
    }
}

#[cfg(unix)]
#[derive(Debug)]
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

    /// Returns whether one has been received since it was last called.
    fn is_received(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let terminate = self.terminate.poll_recv(&mut cx).is_ready();
        self.interrupt.poll_recv(&mut cx).is_ready() || terminate
    }
}

#[cfg(not(unix))]
#[derive(Debug)]
struct EndSignals;

#[cfg(not(unix))]
impl EndSignals {
    fn listen() -> Option<Self> {
        Some(Self)
    }

    async fn next(&mut self) -> bool {
        tokio::signal::ctrl_c().await.is_ok()
    }

    /// Never known here before it is counted.
    fn is_received(&mut self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_second_signal_interrupts_an_orderly_end() {
        let (count, counted) = watch::channel(1);
        let signals = Signals::counted_by(counted);
        let second = Duration::from_secs(1);

        let ending = signals.until_second(std::future::pending());
        let first = tokio::time::timeout(second, ending).await;
        let ending = signals.until_second(std::future::pending());
        count.send_replace(2);
        let both = tokio::time::timeout(second, ending).await;

        assert!(first.is_err());
        assert!(both.is_ok());
        drop(count);
        let ended = signals.until_second(std::future::ready(()));
        assert!(tokio::time::timeout(second, ended).await.is_ok());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_signal_that_is_not_counted_yet_is_the_first_one() {
        use tokio::signal::unix::{SignalKind, signal};

        // Nothing else in this process is sent this one.
        let kind = SignalKind::user_defined2();
        let listen = || signal(kind).unwrap();
        let (count, counted) = watch::channel(0);
        let uncounted = EndSignals {
            terminate: listen(),
            interrupt: signal(SignalKind::user_defined1()).unwrap(),
        };
        let mut signals = Signals::counted_by(counted);
        signals.uncounted = Mutex::new(Some(uncounted));
        let mut front = listen();
        assert!(!signals.has_any());

        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::USR2).unwrap();
        front.recv().await;
        assert!(signals.has_any());
        let ending = signals.until_second(std::future::pending());
        let mut ending = std::pin::pin!(ending);
        assert!(poll_once(ending.as_mut()).await.is_pending());
        count.send_replace(1); // late

        assert!(poll_once(ending.as_mut()).await.is_pending());
        count.send_replace(2);
        ending.await;
    }

    #[cfg(unix)]
    async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx))).await
    }
}
