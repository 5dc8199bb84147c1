//! What is held and what was refused, to be read by telemetry.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{Held, Limit, LimitReached};

/// What a server holds for its peers at the moment, and what it has refused since it was made.
///
/// # Examples
///
/// ```
/// use bowline::{Limit, Server};
///
/// let usage = Server::new("idle", "1.0.0").usage();
/// assert_eq!(usage.requests, 0);
/// assert_eq!(usage.refused(Limit::TotalBytes), 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Requests being read or answered.
    pub requests: usize,
    /// Bytes of these requests.
    pub request_bytes: usize,
    /// Bytes of answers and notifications that peers have not read.
    pub output_bytes: usize,
    /// Bytes of events that legacy sessions keep for resumption.
    pub event_bytes: usize,
    /// HTTP connections of `serve_http`.
    pub connections: usize,
    /// Legacy sessions over HTTP.
    pub sessions: usize,
    refused: [u64; Limit::ALL.len()],
}

impl Usage {
    /// How often something was refused, dropped or closed because this limit was reached.
    #[must_use]
    pub fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit.index()]
    }

    /// All bytes together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.request_bytes + self.output_bytes + self.event_bytes
    }
}

/// The counters behind [`Usage`], shared by everything that serves for one server.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    bytes: [AtomicUsize; 3],
    gauges: [AtomicUsize; 2],
    refused: [AtomicU64; Limit::ALL.len()],
}

/// Something that is counted while it exists, besides charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gauge {
    Connections,
    Sessions,
}

impl Meters {
    /// Counts a refusal, and passes its reason on.
    pub(crate) fn refuse(&self, limit: Limit, max: usize) -> LimitReached {
        self.refused[limit.index()].fetch_add(1, Ordering::Relaxed);
        LimitReached::new(limit, max)
    }

    pub(crate) fn gauge(&self, gauge: Gauge) -> &AtomicUsize {
        &self.gauges[gauge as usize]
    }

    pub(crate) fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit.index()].load(Ordering::Relaxed)
    }

    /// How many bytes of a kind are held for all peers.
    pub(crate) fn held(&self, held: Held) -> usize {
        self.bytes(held).load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self, held: Held) -> &AtomicUsize {
        &self.bytes[held as usize]
    }

    /// All of it, with the requests of the total account.
    pub(super) fn usage(&self, requests: usize) -> Usage {
        Usage {
            requests,
            request_bytes: self.held(Held::Request),
            output_bytes: self.held(Held::Output),
            event_bytes: self.held(Held::Event),
            connections: self.gauge(Gauge::Connections).load(Ordering::Relaxed),
            sessions: self.gauge(Gauge::Sessions).load(Ordering::Relaxed),
            refused: Limit::ALL.map(|limit| self.refused(limit)),
        }
    }
}
