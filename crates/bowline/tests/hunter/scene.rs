//! The scenes that schedules are set in: what is spoken, over what, and what goes wrong.

use std::fmt;

use bowline_core::era::{Dialect, HttpTransport};

use crate::chance::Chance;

/// What goes wrong in a schedule that no application did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing in most schedules; in some, pipes break and parties leave.
    Plain,
    /// The server is replaced by a new one, and every connection to it is cut.
    Restart,
    /// The server forgets a legacy client that is still there.
    Forgotten,
    /// A connection is shut down in good order, with GOAWAY over HTTP/2, while the server goes on.
    Goodbye,
    /// One direction of a connection delivers nothing any more, and nothing breaks.
    HalfDead,
    /// One end of a connection stops reading, for a while or for good.
    Unread,
    /// Notifications come faster than their listener reads.
    Burst,
    /// A legacy client posts batches, which our own never does.
    Batches,
}

/// What is spoken, over what, and what goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) carrier: Carrier,
    pub(crate) dialect: &'static Dialect,
    pub(crate) trouble: Trouble,
    /// How many bytes a direction of a pipe holds.
    pub(crate) room: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Lines,
    Http1,
    Http2,
}

/// A family of schedules that the seeds take turns among.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    trouble: Trouble,
    carriers: &'static [Carrier],
    eras: &'static [Era],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    Modern,
    /// Legacy, on Streamable HTTP where it is on HTTP.
    Legacy,
    /// The two endpoints of 2024-11-05.
    HttpSse,
}

const HTTP: &[Carrier] = &[Carrier::Http1, Carrier::Http2];
const ANY: &[Carrier] = &[Carrier::Lines, Carrier::Http1, Carrier::Http2];
const BOTH: &[Era] = &[Era::Modern, Era::Legacy];
const ALL: &[Era] = &[Era::Modern, Era::Legacy, Era::HttpSse];

/// Every scene. The seed modulo their number is the index here.
pub(crate) const SCENES: &[Scene] = &[
    scene(
        "lines-modern",
        Trouble::Plain,
        &[Carrier::Lines],
        &[Era::Modern],
    ),
    scene(
        "lines-legacy",
        Trouble::Plain,
        &[Carrier::Lines],
        &[Era::Legacy],
    ),
    scene(
        "http1-modern",
        Trouble::Plain,
        &[Carrier::Http1],
        &[Era::Modern],
    ),
    scene(
        "http1-legacy",
        Trouble::Plain,
        &[Carrier::Http1],
        &[Era::Legacy],
    ),
    scene(
        "http2-modern",
        Trouble::Plain,
        &[Carrier::Http2],
        &[Era::Modern],
    ),
    scene(
        "http2-legacy",
        Trouble::Plain,
        &[Carrier::Http2],
        &[Era::Legacy],
    ),
    scene("http-sse", Trouble::Plain, HTTP, &[Era::HttpSse]),
    scene("restart", Trouble::Restart, HTTP, BOTH),
    scene("forgotten", Trouble::Forgotten, HTTP, &[Era::Legacy]),
    scene("goodbye", Trouble::Goodbye, HTTP, BOTH),
    scene("half-dead", Trouble::HalfDead, ANY, ALL),
    scene("unread", Trouble::Unread, ANY, ALL),
    scene("burst", Trouble::Burst, ANY, ALL),
    scene(
        "batches",
        Trouble::Batches,
        &[Carrier::Http1],
        &[Era::Legacy],
    ),
];

const fn scene(
    name: &'static str,
    trouble: Trouble,
    carriers: &'static [Carrier],
    eras: &'static [Era],
) -> Scene {
    Scene {
        name,
        trouble,
        carriers,
        eras,
    }
}

impl Scene {
    /// The scene of a seed.
    pub(crate) fn of(seed: u64) -> &'static Self {
        &SCENES[(seed % SCENES.len() as u64) as usize]
    }
}

impl Column {
    /// What the scene of this seed leaves open is left to chance.
    pub(crate) fn of(seed: u64, chance: &Chance) -> Self {
        let scene = Scene::of(seed);
        let carrier = *chance.pick(scene.carriers);
        let era = *chance.pick(scene.eras);
        let dialects = Dialect::ALL.iter().copied().filter(|dialect| {
            let has_two_endpoints = dialect.http.transport == HttpTransport::TwoEndpoints;
            match era {
                Era::Modern => dialect.is_modern(),
                // Over HTTP the oldest has a transport of its own.
                Era::Legacy => {
                    !dialect.is_modern() && (!has_two_endpoints || carrier == Carrier::Lines)
                }
                Era::HttpSse => has_two_endpoints,
            }
        });
        let is_narrow = carrier == Carrier::Lines && chance.one_in(4);
        Self {
            carrier,
            dialect: *chance.pick(&dialects.collect::<Vec<_>>()),
            trouble: scene.trouble,
            room: if is_narrow { 100 } else { PLENTY },
        }
    }

    /// Whether a client cancels by closing its response.
    pub(crate) fn closing_is_cancelling(&self) -> bool {
        self.carrier != Carrier::Lines && self.dialect.is_modern()
    }

    /// Whether the POST of a cancelled request is ended by an error of its own.
    pub(crate) fn ends_its_posts(&self) -> bool {
        self.is_legacy_http() && !self.is_http_sse()
    }

    /// Whether a POST may be lost while its cancel arrives, and waits for another request with the same id.
    pub(crate) fn loses_posts(&self) -> bool {
        !matches!(
            self.trouble,
            Trouble::Plain | Trouble::Burst | Trouble::Batches
        )
    }

    pub(crate) fn is_legacy_http(&self) -> bool {
        self.carrier != Carrier::Lines && !self.dialect.is_modern()
    }

    /// Whether all answers come over one stream, whose end is the end of the wire.
    pub(crate) fn is_http_sse(&self) -> bool {
        self.carrier != Carrier::Lines && self.dialect.http.transport == HttpTransport::TwoEndpoints
    }

    /// How many of `most` bytes are written or read at once.
    pub(crate) fn piece(&self, most: usize, chance: &Chance) -> usize {
        match self.carrier {
            // How long a head is depends on what is in it, a date and random ids, for it is compressed. Where
            // it is cut must not depend on that, so it is not.
            Carrier::Http2 => most,
            Carrier::Lines | Carrier::Http1 => chance.some_of(most),
        }
    }

    /// Whether a handler can ask the client's user something.
    pub(crate) fn can_ask(&self) -> bool {
        self.dialect.is_modern() || self.dialect.knows_server_request("elicitation/create")
    }

    /// Whether what is written is on its way at once.
    pub(crate) fn has_room(&self) -> bool {
        self.room == PLENTY
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            carrier,
            dialect,
            trouble,
            ..
        } = self;
        write!(f, "{carrier:?} at {}, {trouble:?}", dialect.version)
    }
}

const PLENTY: usize = 1024 * 1024;
