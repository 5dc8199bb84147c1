//! The columns: how a client reaches the bridge, and how the bridge reaches the server.

use std::fmt;

/// The wire and the version of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Http(&'static str),
    Http2(&'static str),
    HttpSse,
    Wire(&'static str),
}

/// The wire and the version of the server behind the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    Wire(&'static str),
    Http(&'static str),
    Http2(&'static str),
    HttpSse,
    /// A child process, over its stdin and stdout.
    Child(&'static str),
}

/// How a server learns that a call is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelForm {
    /// One `notifications/cancelled`.
    Message,
    /// The same, in a POST of its own; the response of the call ends with error -32800.
    PostedMessage,
    /// The response of the call is closed.
    Close,
}

impl Front {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Http(MODERN),
        Self::Http(LEGACY),
        Self::Http2(MODERN),
        Self::Http2(LEGACY),
        Self::HttpSse,
        Self::Wire(MODERN),
        Self::Wire(LEGACY),
    ];

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Http(version) | Self::Http2(version) | Self::Wire(version) => version,
            Self::HttpSse => "2024-11-05",
        }
    }

    pub(crate) fn is_modern(self) -> bool {
        self.version() == MODERN
    }

    /// Whether its cancel carries a reason: over HTTP of the modern version it is the end of the response.
    pub(crate) fn carries_reason(self) -> bool {
        !matches!(self, Self::Http(MODERN) | Self::Http2(MODERN))
    }

    pub(crate) fn has_elicitation(self) -> bool {
        self != Self::HttpSse
    }
}

impl Upstream {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Wire(MODERN),
        Self::Wire(LEGACY),
        Self::Http(MODERN),
        Self::Http(LEGACY),
        Self::Http2(MODERN),
        Self::Http2(LEGACY),
        Self::HttpSse,
        Self::Child(MODERN),
        Self::Child(LEGACY),
    ];

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Wire(version)
            | Self::Http(version)
            | Self::Http2(version)
            | Self::Child(version) => version,
            Self::HttpSse => "2024-11-05",
        }
    }

    /// Whether the server is another process, so that the clock must run.
    pub(crate) fn is_process(self) -> bool {
        matches!(self, Self::Child(_))
    }

    pub(crate) fn has_elicitation(self) -> bool {
        self != Self::HttpSse
    }

    pub(crate) fn is_modern(self) -> bool {
        self.version() == MODERN
    }

    pub(crate) fn cancel_form(self) -> CancelForm {
        match self {
            Self::Wire(_) | Self::Child(_) | Self::HttpSse => CancelForm::Message,
            Self::Http(MODERN) | Self::Http2(MODERN) => CancelForm::Close,
            Self::Http(_) | Self::Http2(_) => CancelForm::PostedMessage,
        }
    }
}

impl fmt::Display for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(version) => write!(f, "{version} over HTTP/1.1"),
            Self::Http2(version) => write!(f, "{version} over HTTP/2"),
            Self::HttpSse => write!(f, "2024-11-05 over HTTP+SSE"),
            Self::Wire(version) => write!(f, "{version} over a wire"),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(version) => write!(f, "{version} over a wire"),
            Self::Http(version) => write!(f, "{version} over HTTP/1.1"),
            Self::Http2(version) => write!(f, "{version} over HTTP/2"),
            Self::HttpSse => write!(f, "2024-11-05 over HTTP+SSE"),
            Self::Child(version) => write!(f, "{version} in a child process"),
        }
    }
}

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
