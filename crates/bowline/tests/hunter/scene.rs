//! The scenes: which transports, protocol versions and faults the schedules of a seed use.

use std::fmt;

use bowline_core::era::{Dialect, HttpTransportKind};

use crate::seeded_random::SeededRandom;

/// The kind of fault that a schedule injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// In a quarter of the schedules, clients close, the server shuts down and pipes break.
    Teardown,
    /// The server is replaced by a new one, and every connection to it is cut.
    Restart,
    /// The server deletes the session of a legacy client that still uses it.
    SessionDeleted,
    /// A connection is shut down gracefully, with GOAWAY over HTTP/2, while the server keeps running.
    GracefulShutdown,
    /// One direction of a connection stops delivering, without an error at either end.
    HalfOpen,
    /// One end of a connection stops reading, for a while or for good.
    StalledReader,
    /// Notifications arrive faster than their listener reads them.
    Burst,
    /// A legacy client posts batches, which [`bowline::Client`] never does.
    Batches,
}

/// The configuration of one schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleConfig {
    pub(crate) transport: TransportKind,
    pub(crate) dialect: &'static Dialect,
    pub(crate) fault: Fault,
    /// The number of bytes that each direction of a pipe buffers.
    pub(crate) capacity: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportKind {
    Lines,
    Http1,
    Http2,
}

/// A set of configurations. Consecutive seeds belong to consecutive scenes.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    fault: Fault,
    transports: &'static [TransportKind],
    eras: &'static [Era],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Modern,
    /// The legacy versions; over HTTP, those with Streamable HTTP.
    Legacy,
    /// The HTTP+SSE transport of 2024-11-05.
    HttpSse,
}

const HTTP: &[TransportKind] = &[TransportKind::Http1, TransportKind::Http2];
const ANY: &[TransportKind] = &[
    TransportKind::Lines,
    TransportKind::Http1,
    TransportKind::Http2,
];
const BOTH: &[Era] = &[Era::Modern, Era::Legacy];
const ALL: &[Era] = &[Era::Modern, Era::Legacy, Era::HttpSse];

/// All scenes, indexed by the seed modulo their number.
pub(crate) const SCENES: &[Scene] = &[
    scene(
        "lines-modern",
        Fault::Teardown,
        &[TransportKind::Lines],
        &[Era::Modern],
    ),
    scene(
        "lines-legacy",
        Fault::Teardown,
        &[TransportKind::Lines],
        &[Era::Legacy],
    ),
    scene(
        "http1-modern",
        Fault::Teardown,
        &[TransportKind::Http1],
        &[Era::Modern],
    ),
    scene(
        "http1-legacy",
        Fault::Teardown,
        &[TransportKind::Http1],
        &[Era::Legacy],
    ),
    scene(
        "http2-modern",
        Fault::Teardown,
        &[TransportKind::Http2],
        &[Era::Modern],
    ),
    scene(
        "http2-legacy",
        Fault::Teardown,
        &[TransportKind::Http2],
        &[Era::Legacy],
    ),
    scene("http-sse", Fault::Teardown, HTTP, &[Era::HttpSse]),
    scene("restart", Fault::Restart, HTTP, BOTH),
    scene(
        "session-deleted",
        Fault::SessionDeleted,
        HTTP,
        &[Era::Legacy],
    ),
    scene("graceful-shutdown", Fault::GracefulShutdown, HTTP, BOTH),
    scene("half-open", Fault::HalfOpen, ANY, ALL),
    scene("stalled-reader", Fault::StalledReader, ANY, ALL),
    scene("burst", Fault::Burst, ANY, ALL),
    scene(
        "batches",
        Fault::Batches,
        &[TransportKind::Http1],
        &[Era::Legacy],
    ),
];

const fn scene(
    name: &'static str,
    fault: Fault,
    transports: &'static [TransportKind],
    eras: &'static [Era],
) -> Scene {
    Scene {
        name,
        fault,
        transports,
        eras,
    }
}

impl Scene {
    /// Returns the scene of a seed.
    pub(crate) fn of(seed: u64) -> &'static Self {
        &SCENES[(seed % SCENES.len() as u64) as usize]
    }
}

impl ScheduleConfig {
    /// Draws a configuration from the scene of this seed.
    pub(crate) fn of(seed: u64, random: &SeededRandom) -> Self {
        let scene = Scene::of(seed);
        let transport = *random.pick(scene.transports);
        let era = *random.pick(scene.eras);
        let dialects = Dialect::ALL.iter().copied().filter(|dialect| {
            let is_http_sse = dialect.http.transport == HttpTransportKind::HttpSse;
            match era {
                Era::Modern => dialect.is_modern(),
                Era::Legacy => {
                    !dialect.is_modern() && (!is_http_sse || transport == TransportKind::Lines)
                }
                Era::HttpSse => is_http_sse,
            }
        });
        let is_narrow = transport == TransportKind::Lines && random.one_in(4);
        Self {
            transport,
            dialect: *random.pick(&dialects.collect::<Vec<_>>()),
            fault: scene.fault,
            capacity: if is_narrow { 100 } else { FULL_CAPACITY },
        }
    }

    /// Whether a client cancels a request by closing its POST.
    pub(crate) fn cancels_by_closing(&self) -> bool {
        self.transport != TransportKind::Lines && self.dialect.is_modern()
    }

    /// Whether the server ends the POST of a cancelled request with an error response.
    pub(crate) fn ends_cancelled_posts(&self) -> bool {
        self.is_legacy_http() && !self.is_http_sse()
    }

    /// Whether a POST may be lost although its cancel arrives. The server then applies the cancel to a later request
    /// with the same id.
    pub(crate) fn can_lose_posts(&self) -> bool {
        !matches!(self.fault, Fault::Teardown | Fault::Burst | Fault::Batches)
    }

    pub(crate) fn is_legacy_http(&self) -> bool {
        self.transport != TransportKind::Lines && !self.dialect.is_modern()
    }

    /// Whether all responses arrive on one SSE stream, whose end is the end of the wire.
    pub(crate) fn is_http_sse(&self) -> bool {
        self.transport != TransportKind::Lines
            && self.dialect.http.transport == HttpTransportKind::HttpSse
    }

    /// Returns how many of `max` bytes one read or write transfers.
    pub(crate) fn chunk_size(&self, max: usize, random: &SeededRandom) -> usize {
        match self.transport {
            // The length of a compressed header block depends on its date and its random ids. Splitting it would make
            // the schedule depend on them too.
            TransportKind::Http2 => max,
            TransportKind::Lines | TransportKind::Http1 => random.some_of(max),
        }
    }

    pub(crate) fn supports_elicitation(&self) -> bool {
        self.dialect.is_modern() || self.dialect.knows_server_request("elicitation/create")
    }

    /// Whether a pipe takes whatever is written, so that no message waits in its writer.
    pub(crate) fn has_full_capacity(&self) -> bool {
        self.capacity == FULL_CAPACITY
    }
}

impl fmt::Display for ScheduleConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            transport,
            dialect,
            fault,
            ..
        } = self;
        write!(f, "{transport:?} at {}, {fault:?}", dialect.version)
    }
}

/// The name of the client that posts batches.
pub(crate) const BATCH_PARTY: char = 'r';
pub(crate) const FULL_CAPACITY: usize = 1024 * 1024;
