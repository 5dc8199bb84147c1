//! The scenes: which transports and versions are on both sides of the bridge, and which faults there are.

use std::fmt;

use bowline_core::era::{Dialect, HttpTransportKind};

use crate::scene::{FULL_CAPACITY, Fault, ScheduleConfig, TransportKind};
use crate::seeded_random::SeededRandom;

/// The kind of fault that a schedule injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BridgeFault {
    None,
    /// Clients close, pipes on either side of the bridge break, and the server shuts down.
    Teardown,
    /// The server is replaced by a new one, and every connection to it is cut.
    Restart,
}

/// The configuration of one schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorldConfig {
    /// Between the clients and the bridge.
    pub(crate) front: ScheduleConfig,
    /// Between the bridge and the server.
    pub(crate) upstream: ScheduleConfig,
    pub(crate) fault: BridgeFault,
}

/// A set of configurations. Consecutive seeds belong to consecutive scenes.
pub(crate) struct BridgeScene {
    pub(crate) name: &'static str,
    front: &'static [Era],
    upstream: &'static [Era],
    fault: BridgeFault,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Modern,
    Legacy,
}

const MODERN: &[Era] = &[Era::Modern];
const LEGACY: &[Era] = &[Era::Legacy];
const BOTH: &[Era] = &[Era::Modern, Era::Legacy];

/// All scenes, indexed by the seed modulo their number.
pub(crate) const SCENES: &[BridgeScene] = &[
    scene("modern-to-modern", MODERN, MODERN, BridgeFault::None),
    scene("modern-to-legacy", MODERN, LEGACY, BridgeFault::None),
    scene("legacy-to-modern", LEGACY, MODERN, BridgeFault::None),
    scene("legacy-to-legacy", LEGACY, LEGACY, BridgeFault::None),
    scene("teardown", BOTH, BOTH, BridgeFault::Teardown),
    scene("restart", BOTH, BOTH, BridgeFault::Restart),
];

const fn scene(
    name: &'static str,
    front: &'static [Era],
    upstream: &'static [Era],
    fault: BridgeFault,
) -> BridgeScene {
    BridgeScene {
        name,
        front,
        upstream,
        fault,
    }
}

impl BridgeScene {
    /// Returns the scene of a seed.
    pub(crate) fn of(seed: u64) -> &'static Self {
        &SCENES[(seed % SCENES.len() as u64) as usize]
    }

    pub(crate) fn has_faults(&self) -> bool {
        self.fault != BridgeFault::None
    }
}

impl WorldConfig {
    /// Draws a configuration from the scene of this seed.
    pub(crate) fn of(seed: u64, random: &SeededRandom) -> Self {
        let scene = BridgeScene::of(seed);
        let front = *random.pick(scene.front);
        let upstream = *random.pick(scene.upstream);
        Self {
            front: side(front, random),
            upstream: side(upstream, random),
            fault: scene.fault,
        }
    }

    /// Whether a question of the server parks the call.
    pub(crate) fn parks_calls(&self) -> bool {
        self.front.dialect.is_modern() && !self.upstream.dialect.is_modern()
    }

    /// Whether calls may ask the client. The version of the server decides whether it can.
    pub(crate) fn supports_elicitation(&self) -> bool {
        self.front.supports_elicitation() && self.upstream.supports_elicitation()
    }
}

fn side(era: Era, random: &SeededRandom) -> ScheduleConfig {
    let transports = [
        TransportKind::Lines,
        TransportKind::Http1,
        TransportKind::Http2,
    ];
    let transport = *random.pick(&transports);
    let dialects = Dialect::ALL.iter().copied();
    let dialects = dialects.filter(|it| it.is_modern() == (era == Era::Modern));
    let dialect = *random.pick(&dialects.collect::<Vec<_>>());
    let is_http_sse = dialect.http.transport == HttpTransportKind::HttpSse;
    ScheduleConfig {
        transport: match transport {
            // HTTP+SSE over HTTP/2 is the same to a bridge.
            TransportKind::Http2 if is_http_sse => TransportKind::Http1,
            transport => transport,
        },
        dialect,
        fault: Fault::Teardown,
        capacity: FULL_CAPACITY,
    }
}

impl fmt::Display for WorldConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [front, upstream] = [self.front, self.upstream]
            .map(|side| format!("{:?} at {}", side.transport, side.dialect.version));
        write!(f, "{front} to {upstream}, {:?}", self.fault)
    }
}
