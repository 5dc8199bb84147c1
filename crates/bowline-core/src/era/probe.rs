//! Which era does a server speak? A verdict on what came back from the first attempt.
//!
//! A client that speaks both eras sends `server/discover` first. On a duplex wire whatever is not modern
//! is legacy: old servers answer a request before `initialize` with any error, with silence, or by going
//! away. Over HTTP an outage and a locked door look alike for both eras and prove nothing.

use bowline_types::{ErrorCode, Json, RpcError};
use serde::Deserialize;

use super::{Dialect, Dialects};
use crate::Outcome;

/// What came back over a duplex wire.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a prober must say which of these happened"
)]
pub enum DuplexReply<'a> {
    /// An answer.
    Outcome(&'a Outcome),
    /// Nothing, for as long as one is willing to wait.
    Silence,
    /// The end of the stream, or of the child process. It must be started again before going on.
    Gone,
}

/// What came back over HTTP.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a prober must say which of these happened"
)]
pub enum HttpReply<'a> {
    /// A response with a JSON-RPC answer in it.
    Outcome {
        /// The HTTP status.
        status: u16,
        /// The answer.
        outcome: &'a Outcome,
    },
    /// A response without any, and its HTTP status.
    Status(u16),
    /// Nothing, for as long as one is willing to wait.
    Silence,
    /// No connection, or one that broke.
    Unreachable,
}

/// What to make of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a prober must act on every verdict"
)]
pub enum Verdict {
    /// The server is modern; speak this version.
    Modern(&'static Dialect),
    /// The server is modern but refused the version; probe again with this one.
    Retry(&'static Dialect),
    /// The server is legacy; offer this version in `initialize`.
    Legacy(&'static Dialect),
    /// There is no version that both sides speak; the server told, or is taken, to speak these.
    Incompatible(Vec<String>),
    /// The server wants credentials first; then probe again.
    Unauthorized,
    /// The reply is no evidence for either era.
    Undecided(Undecided),
}

/// Why a reply is no evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undecided {
    /// There was no reply.
    #[error("the server did not answer in time")]
    Silence,
    /// There was no connection.
    #[error("the server cannot be reached")]
    Unreachable,
    /// The server is out of order, or too busy to tell.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
}

/// Judges what came back over a duplex wire; `tried` are the versions that were probed with, the latest
/// last.
#[must_use]
pub fn judge_duplex(
    reply: DuplexReply<'_>,
    ours: &Dialects,
    tried: &[&'static Dialect],
) -> Verdict {
    match reply {
        DuplexReply::Outcome(outcome) => {
            judge_outcome(outcome, ours, tried).unwrap_or_else(|| fall_back(ours))
        }
        DuplexReply::Silence | DuplexReply::Gone => fall_back(ours),
    }
}

/// Judges what came back over HTTP from a request for `method`, which need not be the probe.
#[must_use]
pub fn judge_http(
    method: &str,
    reply: HttpReply<'_>,
    ours: &Dialects,
    tried: &[&'static Dialect],
) -> Verdict {
    let (status, outcome) = match reply {
        HttpReply::Silence => return Verdict::Undecided(Undecided::Silence),
        HttpReply::Unreachable => return Verdict::Undecided(Undecided::Unreachable),
        HttpReply::Status(status) => (status, None),
        HttpReply::Outcome { status, outcome } => (status, Some(outcome)),
    };
    if matches!(status, 401 | 403) {
        return Verdict::Unauthorized;
    }
    if let Some(verdict) = outcome.and_then(|outcome| judge_outcome(outcome, ours, tried)) {
        return verdict;
    }
    if let (404, Some(Err(error)), [.., asked]) = (status, outcome, tried) {
        // A modern server has every right not to know a method, but must know this one.
        if error.code == ErrorCode::METHOD_NOT_FOUND && method != "server/discover" {
            return Verdict::Modern(asked);
        }
    }
    match status {
        // Like 5xx, a timeout and an overload say nothing about what the server speaks.
        408 | 429 | 300..=399 | 500.. => Verdict::Undecided(Undecided::Status(status)),
        _ => fall_back(ours),
    }
}

/// Judges the error that `initialize` ended with, after falling back too early: a server that was slow to
/// start may turn out to be modern after all.
#[must_use]
pub fn judge_refused_handshake(error: &RpcError, ours: &Dialects) -> Option<&'static Dialect> {
    let supported = supported_by(error)?;
    ours.iter()
        .find(|dialect| dialect.is_modern() && names(&supported, dialect))
}

/// Whether a refused `initialize` suggests that the server speaks the old HTTP+SSE transport.
#[must_use]
pub fn suggests_two_endpoints(status: u16) -> bool {
    matches!(status, 400 | 404 | 405)
}

/// What an answer proves, if anything: a valid discovery, or an error that only modern servers know.
fn judge_outcome(
    outcome: &Outcome,
    ours: &Dialects,
    tried: &[&'static Dialect],
) -> Option<Verdict> {
    match outcome {
        Ok(result) => discovered(result).map(|theirs| choose(theirs, ours)),
        Err(error) => match error.code {
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                supported_by(error).map(|theirs| choose_again(theirs, ours, tried))
            }
            // A modern server that dislikes the request.
            ErrorCode::HEADER_MISMATCH | ErrorCode::MISSING_CLIENT_CAPABILITY => {
                tried.last().map(|asked| Verdict::Modern(asked))
            }
            _ => None,
        },
    }
}

fn choose(theirs: Vec<String>, ours: &Dialects) -> Verdict {
    let shared = |dialect: &&'static Dialect| names(&theirs, dialect);
    match ours.iter().find(shared) {
        Some(dialect) if dialect.is_modern() => Verdict::Modern(dialect),
        // A modern answer that names legacy versions only: those are spoken through `initialize`.
        Some(dialect) => Verdict::Legacy(dialect),
        None => Verdict::Incompatible(theirs),
    }
}

/// A version that was refused although the server names it is tried once more: it was another replica that
/// refused it, or an earlier one. But what was not tried yet comes first.
fn choose_again(theirs: Vec<String>, ours: &Dialects, tried: &[&'static Dialect]) -> Verdict {
    let attempts = |dialect: &'static Dialect| tried.iter().filter(|it| **it == dialect).count();
    let shared = || ours.iter().filter(|dialect| names(&theirs, dialect));
    let again = shared()
        .filter(|dialect| dialect.is_modern() && attempts(dialect) < MOST_ATTEMPTS)
        .min_by_key(|dialect| attempts(dialect));
    if let Some(dialect) = again {
        return Verdict::Retry(dialect);
    }
    match shared().find(|dialect| !dialect.is_modern()) {
        Some(dialect) => Verdict::Legacy(dialect),
        None => Verdict::Incompatible(theirs),
    }
}

fn fall_back(ours: &Dialects) -> Verdict {
    match ours.latest_legacy() {
        Some(dialect) => Verdict::Legacy(dialect),
        None => Verdict::Incompatible(Vec::new()),
    }
}

fn names(versions: &[String], dialect: &Dialect) -> bool {
    versions.iter().any(|version| version == dialect.version)
}

/// The versions in a result of `server/discover`, if it is one.
fn discovered(result: &Json) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovery {
        #[serde(default)]
        result_type: Option<String>,
        supported_versions: Vec<String>,
        capabilities: Json,
    }

    if !result.is_object() {
        return None;
    }
    let discovery: Discovery = result.decode().ok()?;
    let is_complete = discovery.result_type.is_none_or(|of| of == "complete");
    (is_complete && discovery.capabilities.is_object()).then_some(discovery.supported_versions)
}

/// The versions in the data of an unsupported-version error, if it is one.
fn supported_by(error: &RpcError) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Supported {
        supported: Vec<String>,
    }

    if error.code != ErrorCode::UNSUPPORTED_PROTOCOL_VERSION {
        return None;
    }
    let data = error.data.as_ref().filter(|data| data.is_object())?;
    data.decode().ok().map(|Supported { supported }| supported)
}

/// How often a version is tried that the server refuses and supports.
const MOST_ATTEMPTS: usize = 2;

#[cfg(test)]
mod tests;
