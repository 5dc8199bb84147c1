//! [`Usage`], a snapshot of resource usage for telemetry, and [`UsageCounters`], its counters.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{ChargeKind, Limit, LimitReached};

/// A snapshot of the resources that a server uses for its peers, and of its refusals since its creation.
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
    /// Requests in progress.
    pub requests: usize,
    /// Bytes of these requests.
    pub request_bytes: usize,
    /// Bytes of queued answers and notifications.
    pub output_bytes: usize,
    /// Bytes of events that legacy sessions store for resumption.
    pub event_bytes: usize,
    /// Bytes that are kept for legacy clients between their requests: capabilities beyond 4 KiB, subscriptions.
    pub kept_bytes: usize,
    /// HTTP connections of `serve_http`.
    pub connections: usize,
    /// Legacy sessions over HTTP.
    pub sessions: usize,
    refused: [u64; Limit::ALL.len()],
}

impl Usage {
    /// Returns how often this limit caused a refusal, a dropped message or a closed connection.
    #[must_use]
    pub fn refused(&self, limit: Limit) -> u64 {
        self.refused[limit.index()]
    }

    /// Returns the sum of all bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.request_bytes + self.output_bytes + self.event_bytes + self.kept_bytes
    }
}

/// The counters of [`Usage`], shared by all accounts of one server.
#[derive(Debug, Default)]
pub(crate) struct UsageCounters {
    bytes: [AtomicUsize; 4],
    gauges: [AtomicUsize; 2],
    refused: [AtomicU64; Limit::ALL.len()],
}

/// A count that is not made of charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gauge {
    Connections,
    Sessions,
}

impl UsageCounters {
    /// Counts a refusal, and returns its error.
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

    /// Returns the bytes of this kind that are held for all peers.
    pub(crate) fn charged_bytes(&self, kind: ChargeKind) -> usize {
        self.bytes(kind).load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self, kind: ChargeKind) -> &AtomicUsize {
        &self.bytes[match kind {
            ChargeKind::Request => 0,
            ChargeKind::Output | ChargeKind::Unread => 1,
            ChargeKind::Event => 2,
            ChargeKind::Kept => 3,
        }]
    }

    /// Returns a snapshot, with the requests of the total account.
    pub(super) fn usage(&self, requests: usize) -> Usage {
        Usage {
            requests,
            request_bytes: self.charged_bytes(ChargeKind::Request),
            output_bytes: self.charged_bytes(ChargeKind::Output),
            event_bytes: self.charged_bytes(ChargeKind::Event),
            kept_bytes: self.charged_bytes(ChargeKind::Kept),
            connections: self.gauge(Gauge::Connections).load(Ordering::Relaxed),
            sessions: self.gauge(Gauge::Sessions).load(Ordering::Relaxed),
            refused: Limit::ALL.map(|limit| self.refused(limit)),
        }
    }
}
