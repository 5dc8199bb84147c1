//! [`Shutdown`]: the drain of a server, shared by its connections and its handlers.
//!
//! The phases and their times are those of [`DrainState`]; this adds the clock, wakers, the settings and the counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use bowline_core::drain::DrainPhase;
use bowline_core::drain::{self, DrainState};
use bowline_types::RpcError;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::signal::{Signal, SignalRaised};
use crate::sync::Mutex;

/// What a drain of a server did so far; see [`Server::drain_report`](crate::Server::drain_report).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::server::{DrainPhase, ListKind};
/// use bowline::{Client, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let server = Server::new("calculator", "1.0.0").advertise(ListKind::Tools);
/// let client = Client::in_process(&server).await?;
/// server.shut_down(Duration::from_secs(10));
/// assert!(client.list_tools().await.is_err());
///
/// let report = server.drain_report();
/// assert_eq!(report.phase, DrainPhase::Refusing);
/// assert_eq!((report.refused, report.cancelled), (1, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainReport {
    /// The current phase.
    pub phase: DrainPhase,
    /// Requests that were refused because the server drains. They were not executed.
    pub refused: usize,
    /// Requests that did not finish within the grace period, or were running at a second signal. They were cancelled.
    pub cancelled: usize,
}

/// The drain of a server. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown(pub(crate) Arc<ShutdownShared>);

#[derive(Debug, Default)]
pub(crate) struct ShutdownShared {
    /// Raised when the drain begins, so that a server that serves reads only this flag.
    begun: Arc<Signal>,
    state: Mutex<DrainState>,
    /// Notified when the times of a drain that has begun move.
    moved: Notify,
    settings: Mutex<DrainSettings>,
    refused: AtomicUsize,
    cancelled: AtomicUsize,
}

/// The default times of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DrainSettings {
    pub(crate) delay: Duration,
    pub(crate) grace: Duration,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            delay: DEFAULT_DRAIN_DELAY,
            grace: DEFAULT_GRACE,
        }
    }
}

impl Shutdown {
    pub(crate) fn settings(&self) -> DrainSettings {
        *self.0.settings.lock()
    }

    /// Changes the settings, for a drain that begins later.
    pub(crate) fn change_settings(&self, change: impl FnOnce(&mut DrainSettings)) {
        change(&mut self.0.settings.lock());
    }

    /// Begins the drain with the delay and the grace period of the settings.
    pub(crate) fn drain(&self) {
        let DrainSettings { delay, grace } = self.settings();
        self.begin(delay, grace);
    }

    /// Begins the drain without a delay: new requests are refused now, and handlers may run for another `grace`.
    pub(crate) fn request(&self, grace: Duration) {
        self.begin(Duration::ZERO, grace);
    }

    fn begin(&self, delay: Duration, grace: Duration) {
        let now = Instant::now().into_std();
        let has_changed = self.0.state.lock().begin(now, delay, grace);
        self.0.begun.raise();
        if has_changed {
            self.0.moved.notify_waiters();
        }
    }

    pub(crate) fn phase(&self) -> DrainPhase {
        match self.0.begun.is_raised() {
            false => DrainPhase::Serving,
            true => self.0.state.lock().phase(Instant::now().into_std()),
        }
    }

    /// Returns whether the drain has begun, so that the server is not ready.
    pub(crate) fn is_draining(&self) -> bool {
        self.0.begun.is_raised()
    }

    /// Returns whether new requests are refused.
    pub(crate) fn is_refusing(&self) -> bool {
        self.phase() >= DrainPhase::Refusing
    }

    /// Counts a request that is refused, and returns its error.
    pub(crate) fn refuse(&self) -> RpcError {
        self.count_refused();
        drain::refusal()
    }

    pub(crate) fn count_refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts requests that are cancelled because they did not finish in time.
    pub(crate) fn count_cancelled(&self, requests: usize) {
        self.0.cancelled.fetch_add(requests, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> DrainReport {
        DrainReport {
            phase: self.phase(),
            refused: self.0.refused.load(Ordering::Relaxed),
            cancelled: self.0.cancelled.load(Ordering::Relaxed),
        }
    }

    /// Returns a future of the beginning of the drain that owns what it waits for.
    pub(crate) fn begun(&self) -> SignalRaised<Arc<Signal>> {
        self.0.begun.clone().wait_owned()
    }

    /// Waits until the drain begins.
    ///
    /// # Cancel safety
    ///
    /// Safe: the state is not consumed.
    pub(crate) async fn draining(&self) {
        self.0.begun.wait().await;
    }

    /// Waits until new requests are refused.
    ///
    /// # Cancel safety
    ///
    /// Safe: the state is not consumed.
    pub(crate) async fn refusing(&self) {
        self.0.begun.wait().await;
        // Boxed, because every connection and handler holds this future, and few of them see a drain.
        Box::pin(self.reach(DrainPhase::Refusing)).await;
    }

    /// Waits until the grace period is over.
    ///
    /// # Cancel safety
    ///
    /// Safe: the state is not consumed.
    pub(crate) async fn closed(&self) {
        self.0.begun.wait().await;
        Box::pin(self.reach(DrainPhase::Closed)).await;
    }

    async fn reach(&self, phase: DrainPhase) {
        loop {
            // Created before the times are read: it is notified of every later change.
            let moved = self.0.moved.notified();
            let start = self.0.state.lock().start_of(phase);
            let Some(start) = start.map(Instant::from_std) else {
                return; // cannot happen: the drain has begun
            };
            if Instant::now() >= start {
                return;
            }
            tokio::select! {
                // The change first: it may have made the timer wrong.
                biased;
                () = moved => {}
                () = tokio::time::sleep_until(start) => return,
            }
        }
    }
}

/// Long enough for a load balancer that probes every two seconds to see two failures.
pub(crate) const DEFAULT_DRAIN_DELAY: Duration = Duration::from_secs(5);
/// With the delay and a second to write responses, within the 30 s that Kubernetes gives by default.
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn each_phase_is_reached_at_its_time() {
        let (shutdown, start) = (Shutdown::default(), Instant::now());
        shutdown.drain();

        shutdown.draining().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(shutdown.is_draining() && !shutdown.is_refusing());
        shutdown.refusing().await;
        assert_eq!(start.elapsed(), DEFAULT_DRAIN_DELAY);
        assert!(shutdown.is_refusing());
        shutdown.closed().await;
        assert_eq!(start.elapsed(), DEFAULT_DRAIN_DELAY + DEFAULT_GRACE);
        assert_eq!(shutdown.report().phase, DrainPhase::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_notice_that_a_drain_is_shortened() {
        let (shutdown, start) = (Shutdown::default(), Instant::now());
        shutdown.drain();
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move {
                shutdown.refusing().await;
                let refused = start.elapsed();
                shutdown.closed().await;
                (refused, start.elapsed())
            }
        });
        tokio::task::yield_now().await; // the task waits for the times that it knows
        tokio::time::advance(2 * SECOND).await;

        shutdown.request(3 * SECOND);

        assert_eq!(waiting.await.unwrap(), (2 * SECOND, 5 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn settings_apply_to_a_later_drain() {
        let (shutdown, start) = (Shutdown::default(), Instant::now());
        shutdown.change_settings(|it| (it.delay, it.grace) = (SECOND, 2 * SECOND));

        shutdown.drain();
        shutdown.closed().await;

        assert_eq!(start.elapsed(), 3 * SECOND);
    }
}
