//! `Liveness`, which detects dead HTTP/2 client connections by pings.
//!
//! ```text
//! New ──first pong──▶ Live ──request dropped, no bytes read for 100 ms──▶ Suspect ──pong──▶ Live
//!  │                   │                                                     │
//!  └───────────────────┴───────────────────── ping timed out ────────────────┴────────────▶ Lost
//!
//! New, Live, Suspect ──retired──▶ Retired ──ping timed out──▶ Lost
//! ```
//!
//! TCP reports a dead path only after many minutes, so the connection is pinged: when it is opened, when a request is
//! dropped after no bytes were read for 100 ms, and regularly while responses are awaited. Only an unanswered ping
//! fails a connection; a slow server still answers pings while its handlers run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The liveness of one connection.
pub(super) struct Liveness {
    opened_at: Instant,
    /// Milliseconds between `opened_at` and the last read.
    last_read: AtomicU64,
    status: watch::Sender<LivenessStatus>,
    ping_wanted: Notify,
    /// Cloned by each request in flight; its strong count is the number of requests plus one.
    in_flight: Arc<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LivenessStatus {
    /// The first ping is unanswered. The first pong arrives after the server's SETTINGS; until then the limit on
    /// streams is unknown.
    New,
    Live,
    /// A request was dropped and no bytes were read meanwhile; the ping that followed is unanswered.
    Suspect(Instant),
    /// Takes no further requests; those in flight continue.
    Retired,
    /// A ping timed out.
    Lost,
}

/// A ping timed out: the path or the peer is dead.
#[derive(Debug, thiserror::Error)]
#[error("the server did not answer an HTTP/2 ping within {PING_TIMEOUT:?}")]
pub(super) struct PingUnanswered;

impl Liveness {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            opened_at: Instant::now(),
            last_read: AtomicU64::new(0),
            status: watch::Sender::new(LivenessStatus::New),
            ping_wanted: Notify::new(),
            in_flight: Arc::default(),
        })
    }

    pub(super) fn status(&self) -> LivenessStatus {
        *self.status.borrow()
    }

    pub(super) fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// Returns until when a request should wait for this connection rather than open another: a pong takes one round
    /// trip, a new connection two or three. `None` if no pong is awaited, or it is late.
    pub(super) fn undecided_until(&self) -> Option<Instant> {
        let since = match self.status() {
            LivenessStatus::New => self.opened_at,
            LivenessStatus::Suspect(since) => since,
            LivenessStatus::Live | LivenessStatus::Retired | LivenessStatus::Lost => return None,
        };
        Some(since + MAX_PONG_WAIT).filter(|until| *until > Instant::now())
    }

    /// Waits until a pong has decided whether the connection takes requests, or until `until`.
    ///
    /// # Cancel safety
    ///
    /// Safe: it changes no state.
    pub(super) async fn wait_until_decided(&self, until: Instant) {
        let mut status = self.status.subscribe();
        let decided =
            status.wait_for(|now| !matches!(now, LivenessStatus::New | LivenessStatus::Suspect(_)));
        // The caller checks the status again, whether this ended early or timed out.
        let _ = tokio::time::timeout_at(until, decided).await;
    }

    /// Makes the connection take no further requests.
    pub(super) fn retire(&self) {
        self.status.send_if_modified(|status| {
            let has_changed = !matches!(status, LivenessStatus::Retired | LivenessStatus::Lost);
            if has_changed {
                *status = LivenessStatus::Retired;
            }
            has_changed
        });
    }

    /// Called when a request that was sent at `sent` is dropped. Pings the peer if no bytes were read for
    /// [`SUSPECT_AFTER`], counted from `sent` at the earliest.
    fn suspect(&self, sent: Instant) {
        let now = Instant::now();
        let idle_since = self.last_read().max(sent);
        if now.saturating_duration_since(idle_since) < SUSPECT_AFTER {
            return;
        }
        let has_changed = self.status.send_if_modified(|status| {
            let is_live = *status == LivenessStatus::Live;
            if is_live {
                *status = LivenessStatus::Suspect(now);
            }
            is_live
        });
        if has_changed {
            self.ping_wanted.notify_one();
        }
    }

    fn record_pong(&self) {
        self.status.send_if_modified(|status| {
            let was_undecided = matches!(status, LivenessStatus::New | LivenessStatus::Suspect(_));
            if was_undecided {
                *status = LivenessStatus::Live;
            }
            was_undecided
        });
    }

    fn last_read(&self) -> Instant {
        self.opened_at + Duration::from_millis(self.last_read.load(Ordering::Relaxed))
    }

    pub(super) fn record_read(&self) {
        let age = self.opened_at.elapsed().as_millis();
        let age = u64::try_from(age).unwrap_or(u64::MAX);
        self.last_read.store(age, Ordering::Relaxed);
    }

    /// Pings the peer when a ping is due. Returns when a ping times out.
    ///
    /// # Cancel safety
    ///
    /// Dropping it stops the pings.
    pub(super) async fn run_pings(&self, mut pings: PingPong) {
        loop {
            let sent = Instant::now();
            if pings.send_ping(Ping::opaque()).is_err() {
                return std::future::pending().await; // closed; the connection's own future reports it
            }
            loop {
                let pong = std::future::poll_fn(|cx| pings.poll_pong(cx));
                match tokio::time::timeout(PING_TIMEOUT, pong).await {
                    Ok(Ok(_)) => break,
                    Ok(Err(_)) => return std::future::pending().await,
                    // Bytes still arrive: the pong may be queued behind a large response.
                    Err(_)
                        if self.last_read() > sent && self.last_read().elapsed() < PING_TIMEOUT => {
                    }
                    Err(_) => {
                        self.status.send_replace(LivenessStatus::Lost);
                        return;
                    }
                }
            }
            self.record_pong();
            self.ping_due().await;
        }
    }

    async fn ping_due(&self) {
        loop {
            let next = tokio::time::sleep(PING_INTERVAL);
            tokio::select! {
                // `biased` avoids the random start of `select!` (invariant 7 of ARCHITECTURE.md).
                biased;
                () = self.ping_wanted.notified() => return,
                () = next => {}
            }
            if self.in_flight() > 0 && self.last_read().elapsed() >= PING_INTERVAL {
                return;
            }
        }
    }
}

/// A request that has a stream. Dropping it after it was sent and before it is over pings the peer if no bytes were read
/// for a while.
pub(super) struct InFlightGuard {
    liveness: Arc<Liveness>,
    sent: Instant,
    pub(super) is_over: bool,
    _counted: Arc<()>,
}

impl InFlightGuard {
    /// Counts a request that is not sent yet.
    pub(super) fn reserve(liveness: &Arc<Liveness>) -> Self {
        Self {
            liveness: liveness.clone(),
            sent: Instant::now(),
            is_over: true,
            _counted: liveness.in_flight.clone(),
        }
    }

    /// Records that the request was sent.
    pub(super) fn begin(&mut self) {
        (self.sent, self.is_over) = (Instant::now(), false);
    }

    /// Makes the connection take no further requests.
    pub(super) fn retire(&self) {
        self.liveness.retire();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.liveness.status() == LivenessStatus::Lost
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if !self.is_over {
            self.liveness.suspect(self.sent);
        }
    }
}

/// How long a connection with requests in flight may be without input before it is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// A request dropped sooner than this after it was sent, or after the last read, is no reason for a ping.
const SUSPECT_AFTER: Duration = Duration::from_millis(100);
const MAX_PONG_WAIT: Duration = Duration::from_millis(500);
