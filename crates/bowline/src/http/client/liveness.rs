//! Whether the peer of an HTTP/2 connection is still there.
//!
//! ```text
//! New ──first pong──▶ Live ──a request was given up in silence──▶ Suspect ──pong──▶ Live
//!  └──────────────────────────── ping unanswered ─────────────────────┴──────────▶ Lost
//! ```
//!
//! TCP reports a path that swallows everything after many minutes, so the connection is pinged instead: once at its
//! start, when a request was dropped in silence, and regularly while responses are awaited. Only an unanswered ping
//! condemns a connection; a slow server answers pings while its handlers run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// What is known about the peer of one connection.
pub(super) struct Liveness {
    made: Instant,
    /// In milliseconds after `made`.
    last_read: AtomicU64,
    status: watch::Sender<Status>,
    ping_wanted: Notify,
    /// Has a clone for each request in flight.
    in_flight: Arc<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// The first ping is unanswered. Its pong follows the server's SETTINGS, so until then nobody knows how many
    /// requests the server takes at once.
    New,
    Live,
    /// A request was dropped in silence, and the ping that followed is unanswered.
    Suspect(Instant),
    /// Takes no further requests; those in flight go on.
    Retired,
    /// A ping was not answered in time.
    Lost,
}

/// No answer to a ping: the path is dead, or the peer is.
#[derive(Debug, thiserror::Error)]
#[error("the server did not answer an HTTP/2 ping within {PING_TIMEOUT:?}")]
pub(super) struct PingUnanswered;

impl Liveness {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            made: Instant::now(),
            last_read: AtomicU64::new(0),
            status: watch::Sender::new(Status::New),
            ping_wanted: Notify::new(),
            in_flight: Arc::default(),
        })
    }

    pub(super) fn status(&self) -> Status {
        *self.status.borrow()
    }

    pub(super) fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// Until when a request should rather wait for this connection than make another: what is being decided takes one
    /// round trip, a new connection two or three.
    pub(super) fn undecided_until(&self) -> Option<Instant> {
        let since = match self.status() {
            Status::New => self.made,
            Status::Suspect(since) => since,
            Status::Live | Status::Retired | Status::Lost => return None,
        };
        Some(since + PATIENCE).filter(|until| *until > Instant::now())
    }

    /// Waits until it is decided whether the connection takes requests, or until `until`.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub(super) async fn decided(&self, until: Instant) {
        let mut status = self.status.subscribe();
        let decided = status.wait_for(|now| !matches!(now, Status::New | Status::Suspect(_)));
        // Neither an early end nor a late one needs an answer: the caller looks again.
        let _ = tokio::time::timeout_at(until, decided).await;
    }

    /// Has the connection take no further requests.
    pub(super) fn retire(&self) {
        self.status.send_if_modified(|status| {
            let is_new = !matches!(status, Status::Retired | Status::Lost);
            if is_new {
                *status = Status::Retired;
            }
            is_new
        });
    }

    /// Pings the peer now, if it has been silent since `sent`.
    fn suspect(&self, sent: Instant) {
        let now = Instant::now();
        let silent_since = self.last_read().max(sent);
        if now.saturating_duration_since(silent_since) < SUSPICIOUS {
            return;
        }
        let is_new = self.status.send_if_modified(|status| {
            let is_live = *status == Status::Live;
            if is_live {
                *status = Status::Suspect(now);
            }
            is_live
        });
        if is_new {
            self.ping_wanted.notify_one();
        }
    }

    fn answered(&self) {
        self.status.send_if_modified(|status| {
            let is_decided = matches!(status, Status::New | Status::Suspect(_));
            if is_decided {
                *status = Status::Live;
            }
            is_decided
        });
    }

    fn last_read(&self) -> Instant {
        self.made + Duration::from_millis(self.last_read.load(Ordering::Relaxed))
    }

    pub(super) fn note_read(&self) {
        let age = self.made.elapsed().as_millis();
        let age = u64::try_from(age).unwrap_or(u64::MAX);
        self.last_read.store(age, Ordering::Relaxed);
    }

    /// Pings the peer whenever there is a reason to. Returns once a ping has not been answered in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping it stops the pings.
    pub(super) async fn patrol(&self, mut pings: PingPong) {
        loop {
            let sent = Instant::now();
            if pings.send_ping(Ping::opaque()).is_err() {
                return std::future::pending().await; // the connection is at its end, and says so itself
            }
            loop {
                let pong = std::future::poll_fn(|cx| pings.poll_pong(cx));
                match tokio::time::timeout(PING_TIMEOUT, pong).await {
                    Ok(Ok(_)) => break,
                    Ok(Err(_)) => return std::future::pending().await,
                    // A pong may stand behind megabytes that still arrive.
                    Err(_)
                        if self.last_read() > sent && self.last_read().elapsed() < PING_TIMEOUT => {
                    }
                    Err(_) => {
                        self.status.send_replace(Status::Lost);
                        return;
                    }
                }
            }
            self.answered();
            self.ping_due().await;
        }
    }

    async fn ping_due(&self) {
        loop {
            let next = tokio::time::sleep(KEEP_ALIVE);
            tokio::select! {
                // No order matters here; this one costs less.
                biased;
                () = self.ping_wanted.notified() => return,
                () = next => {}
            }
            if self.in_flight() > 0 && self.last_read().elapsed() >= KEEP_ALIVE {
                return;
            }
        }
    }
}

/// One request in flight. If it is dropped before it is over and the peer was silent meanwhile, the peer is pinged.
pub(super) struct InFlight {
    liveness: Arc<Liveness>,
    sent: Instant,
    pub(super) is_over: bool,
    _counted: Arc<()>,
}

impl InFlight {
    pub(super) fn new(liveness: &Arc<Liveness>) -> Self {
        Self {
            liveness: liveness.clone(),
            sent: Instant::now(),
            is_over: false,
            _counted: liveness.in_flight.clone(),
        }
    }

    /// Has the connection take no further requests.
    pub(super) fn retire(&self) {
        self.liveness.retire();
    }

    pub(super) fn is_lost(&self) -> bool {
        self.liveness.status() == Status::Lost
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.is_over {
            self.liveness.suspect(self.sent);
        }
    }
}

/// How long a connection with requests in flight may be silent before it is pinged.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// A request that was dropped after less silence than this tells nothing about the path.
const SUSPICIOUS: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_millis(500);
