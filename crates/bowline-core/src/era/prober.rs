//! Decides how a client opens a connection: which protocol version it uses, and whether it sends `initialize` first.
//!
//! The prober does no I/O. Its driver performs each [`OpeningStep`] and reports the reply:
//!
//! ```text
//! start ──▶ Discover ──reply──▶ Ready        modern server: no handshake
//!   │          ▲  │
//!   │          └──┴─▶ Discover                modern server that refused the version
//!   │             └──▶ Initialize             legacy server
//!   └─▶ Ready, Initialize or Failed           no probe is needed
//! ```

use super::probe::{self, DuplexReply, HttpReply, InconclusiveReply, ProbeVerdict};
use super::{Dialect, Dialects};

/// Finds the protocol version of a server that may be of either era.
#[derive(Clone, Debug)]
pub struct Prober<'a> {
    ours: &'a Dialects,
    /// The versions of the probes so far, the latest last.
    tried: Vec<&'static Dialect>,
}

/// What the driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a driver must perform every step")]
pub enum OpeningStep {
    /// Send `server/discover` in this version and report the reply.
    Discover(&'static Dialect),
    /// Use this version; it has no handshake.
    Ready(&'static Dialect),
    /// Send `initialize`, offering this version.
    Initialize(&'static Dialect),
    /// Give up.
    Failed(OpeningFailure),
}

/// Why no version could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpeningFailure {
    /// The client and the server have no version in common. The list is what the server reported; it may be empty.
    #[error("no protocol version in common with the server{}", ServerVersions(.0))]
    Incompatible(Vec<String>),
    /// The server requires authorization.
    #[error("the server requires authorization")]
    Unauthorized,
    /// The reply does not show which era the server is of.
    #[error(transparent)]
    Inconclusive(#[from] InconclusiveReply),
}

impl<'a> Prober<'a> {
    /// A prober for a client that supports the versions `ours`.
    #[must_use]
    pub fn new(ours: &'a Dialects) -> Self {
        Self {
            ours,
            tried: Vec::new(),
        }
    }

    /// Returns the first step. A modern-only client sends no probe, unless `must_probe`: where a legacy server might
    /// execute the first request before it turns out to be legacy.
    pub fn start(&mut self, must_probe: bool) -> OpeningStep {
        match (self.ours.latest_modern(), self.ours.latest_legacy()) {
            (Some(modern), None) if !must_probe && self.ours.iter().count() == 1 => {
                OpeningStep::Ready(modern)
            }
            (Some(modern), _) => self.discover(modern),
            (None, Some(legacy)) => OpeningStep::Initialize(legacy),
            (None, None) => OpeningStep::Failed(OpeningFailure::Incompatible(Vec::new())),
        }
    }

    /// Returns the step after a reply on a duplex wire.
    pub fn handle_duplex(&mut self, reply: DuplexReply<'_>) -> OpeningStep {
        let verdict = probe::judge_duplex(reply, self.ours, &self.tried);
        self.next_step(verdict)
    }

    /// Returns the step after a reply over HTTP.
    pub fn handle_http(&mut self, reply: HttpReply<'_>) -> OpeningStep {
        let verdict = probe::judge_http("server/discover", reply, self.ours, &self.tried);
        self.next_step(verdict)
    }

    fn next_step(&mut self, verdict: ProbeVerdict) -> OpeningStep {
        let failure = match verdict {
            ProbeVerdict::Modern(dialect) => return OpeningStep::Ready(dialect),
            ProbeVerdict::Legacy(dialect) => return OpeningStep::Initialize(dialect),
            // Not for ever: each version is tried twice at most.
            ProbeVerdict::Retry(dialect) => return self.discover(dialect),
            ProbeVerdict::Incompatible(versions) => OpeningFailure::Incompatible(versions),
            ProbeVerdict::Unauthorized => OpeningFailure::Unauthorized,
            ProbeVerdict::Inconclusive(why) => OpeningFailure::Inconclusive(why),
        };
        OpeningStep::Failed(failure)
    }

    fn discover(&mut self, dialect: &'static Dialect) -> OpeningStep {
        self.tried.push(dialect);
        OpeningStep::Discover(dialect)
    }
}

struct ServerVersions<'a>(&'a [String]);

impl std::fmt::Display for ServerVersions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            [] => Ok(()),
            versions => write!(f, ", which supports {}", versions.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_types::{ErrorCode, Json, RpcError};

    use super::*;
    use crate::Outcome;

    fn refusal(supported: &str) -> Outcome {
        let mut error = RpcError::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, "no");
        error.data = Some(Json::parse(format!(r#"{{"supported":[{supported}]}}"#)).unwrap());
        Err(error)
    }

    #[test]
    fn a_client_with_one_modern_version_probes_only_if_it_must() {
        let modern = Dialects::only(|dialect| std::ptr::eq(dialect, Dialect::LATEST));

        assert_eq!(
            Prober::new(&modern).start(false),
            OpeningStep::Ready(Dialect::LATEST)
        );
        assert_eq!(
            Prober::new(&modern).start(true),
            OpeningStep::Discover(Dialect::LATEST)
        );
    }

    #[test]
    fn a_legacy_client_sends_initialize_and_one_without_versions_fails() {
        let legacy = Dialects::all().without_modern();
        let none = Dialects::only(|_| false);

        assert_eq!(
            Prober::new(&legacy).start(true),
            OpeningStep::Initialize(Dialect::LATEST_LEGACY)
        );
        assert!(matches!(
            Prober::new(&none).start(true),
            OpeningStep::Failed(_)
        ));
    }

    #[test]
    fn a_timeout_means_legacy_on_a_wire_and_is_inconclusive_over_http() {
        let ours = Dialects::all();
        let (mut wire, mut http) = (Prober::new(&ours), Prober::new(&ours));
        wire.start(true);
        http.start(true);

        assert_eq!(
            wire.handle_duplex(DuplexReply::TimedOut),
            OpeningStep::Initialize(Dialect::LATEST_LEGACY)
        );
        assert_eq!(
            http.handle_http(HttpReply::TimedOut),
            OpeningStep::Failed(OpeningFailure::Inconclusive(InconclusiveReply::TimedOut))
        );
    }

    #[test]
    fn a_server_that_refuses_a_version_it_supports_is_probed_twice() {
        let ours = Dialects::only(Dialect::is_modern);
        let refusal = refusal(&format!("\"{}\"", Dialect::LATEST.version));
        let mut prober = Prober::new(&ours);
        let mut step = prober.start(true);
        let mut probes = 0;

        while let OpeningStep::Discover(_) = step {
            probes += 1;
            step = prober.handle_duplex(DuplexReply::Outcome(&refusal));
        }

        assert_eq!(probes, 2);
        assert!(matches!(step, OpeningStep::Failed(_)), "{step:?}");
    }

    #[test]
    fn the_versions_of_the_server_are_in_the_error_if_they_are_known() {
        let known = OpeningFailure::Incompatible(vec!["1".to_owned(), "2".to_owned()]);
        let unknown = OpeningFailure::Incompatible(Vec::new());

        assert!(known.to_string().ends_with("which supports 1, 2"));
        assert!(unknown.to_string().ends_with("with the server"));
    }
}
