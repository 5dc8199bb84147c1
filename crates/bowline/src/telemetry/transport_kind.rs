//! [`TransportKind`], what a request is carried by, as telemetry names it.

/// What carries the messages of a connection, as telemetry names it.
///
/// # Examples
///
/// ```
/// use bowline::telemetry::TransportKind;
///
/// assert_eq!(TransportKind::Http.network_transport(), Some("tcp"));
/// assert_eq!(TransportKind::Http.network_protocol(), Some("http"));
/// assert_eq!(TransportKind::Pipe.network_transport(), Some("pipe"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportKind {
    /// No network: both ends are in one process.
    InProcess,
    /// Standard input and output, of this process or of a child.
    Pipe,
    /// Lines over TCP.
    Tcp,
    /// Lines over a Unix socket.
    Unix,
    /// HTTP.
    Http,
    /// Not known, as for a [`Wire`](crate::wire::Wire) of another crate.
    #[default]
    Other,
}

impl TransportKind {
    /// Returns the value of `network.transport`, if it is known.
    #[must_use]
    pub fn network_transport(self) -> Option<&'static str> {
        match self {
            Self::InProcess => Some("inproc"),
            Self::Pipe => Some("pipe"),
            Self::Tcp | Self::Http => Some("tcp"),
            Self::Unix => Some("unix"),
            Self::Other => None,
        }
    }

    /// Returns the value of `network.protocol.name`: `http` over HTTP.
    #[must_use]
    pub fn network_protocol(self) -> Option<&'static str> {
        (self == Self::Http).then_some("http")
    }
}
