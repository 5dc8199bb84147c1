//! The endpoints of a cell: a protocol revision over a wire.

use std::fmt;

/// A protocol revision, the newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revision {
    V2026_07_28,
    V2025_11_25,
    V2025_06_18,
    V2025_03_26,
    V2024_11_05,
}

/// How the bytes of messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Stdio,
    /// Streamable HTTP.
    Http,
    HttpSse,
}

/// A revision over a wire: one side of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) revision: Revision,
    pub(crate) wire: Wire,
}

impl Revision {
    const ALL: [Self; 5] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
        Self::V2024_11_05,
    ];

    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V2026_07_28 => "2026-07-28",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2024_11_05 => "2024-11-05",
        }
    }

    pub(crate) fn is_modern(self) -> bool {
        self == Self::V2026_07_28
    }

    pub(crate) fn has_elicitation(self) -> bool {
        !matches!(self, Self::V2025_03_26 | Self::V2024_11_05)
    }

    /// Whether tool results may have `structuredContent`, and HTTP requests have `MCP-Protocol-Version`.
    pub(crate) fn has_structured_content(self) -> bool {
        self.has_elicitation()
    }

    pub(crate) fn has_tasks(self) -> bool {
        matches!(self, Self::V2026_07_28 | Self::V2025_11_25)
    }

    /// Whether a server declares that it completes arguments; before, `completion/complete` had no capability.
    pub(crate) fn declares_completions(self) -> bool {
        self != Self::V2024_11_05
    }
}

impl Endpoint {
    /// Every endpoint: each revision over each wire that it defines.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Revision::ALL.into_iter().flat_map(|revision| {
            let http = match revision {
                Revision::V2024_11_05 => Wire::HttpSse,
                _ => Wire::Http,
            };
            [Wire::Stdio, http].map(|wire| Self { revision, wire })
        })
    }

    /// Whether a call is cancelled by closing its response, and not by a message.
    pub(crate) fn cancels_by_close(self) -> bool {
        self.revision.is_modern() && self.wire == Wire::Http
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = match self.wire {
            Wire::Stdio => "stdio",
            Wire::Http => "HTTP",
            Wire::HttpSse => "HTTP+SSE",
        };
        write!(f, "{} {wire}", self.revision.name())
    }
}
