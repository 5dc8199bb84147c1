//! Detection of a server's era from its reply to the client's first request, the probe.
//!
//! A client that supports both eras sends `server/discover` first. On a duplex wire every reply that is not modern
//! means legacy: legacy servers react to a request before `initialize` with any error, with no response, or by
//! exiting. Over HTTP, an outage or a missing authorization looks the same in both eras and is inconclusive.

use bowline_types::{ErrorCode, Json, RpcError};
use serde::Deserialize;

use super::{Dialect, Dialects};
use crate::Outcome;

/// The reply to a probe over a duplex wire.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "these are all the possible replies"
)]
pub enum DuplexReply<'a> {
    /// A response.
    Outcome(&'a Outcome),
    /// No reply before the timeout.
    TimedOut,
    /// The stream or the child process ended, and must be restarted before the next attempt.
    Closed,
}

/// The reply to a probe over HTTP.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::exhaustive_enums,
    reason = "these are all the possible replies"
)]
pub enum HttpReply<'a> {
    /// An HTTP response with a JSON-RPC response.
    Outcome {
        /// The HTTP status.
        status: u16,
        /// The outcome in the JSON-RPC response.
        outcome: &'a Outcome,
    },
    /// The status of an HTTP response without a JSON-RPC response.
    Status(u16),
    /// No reply before the timeout.
    TimedOut,
    /// The connection failed.
    Unreachable,
}

/// The conclusion from a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a client must handle every verdict"
)]
pub enum ProbeVerdict {
    /// The server is modern; use this version.
    Modern(&'static Dialect),
    /// The server is modern but rejected the version; probe again with this one.
    Retry(&'static Dialect),
    /// The server is legacy; send `initialize` with this version.
    Legacy(&'static Dialect),
    /// No version is supported by both sides. Contains the versions that the server listed, if any.
    Incompatible(Vec<String>),
    /// The server requires authorization; probe again after it.
    Unauthorized,
    /// The reply does not show the era.
    Inconclusive(InconclusiveReply),
}

/// Why a reply does not show the era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InconclusiveReply {
    /// No reply before the timeout.
    #[error("no response from the server before the timeout")]
    TimedOut,
    /// The connection failed.
    #[error("connection to the server failed")]
    Unreachable,
    /// A status that is independent of the era, such as 503.
    #[error("server responded with HTTP status {0}")]
    Status(u16),
}

/// Returns the verdict on a reply over a duplex wire; `tried` are the versions of the probes so far, the latest last.
#[must_use]
pub fn judge_duplex(
    reply: DuplexReply<'_>,
    ours: &Dialects,
    tried: &[&'static Dialect],
) -> ProbeVerdict {
    match reply {
        DuplexReply::Outcome(outcome) => {
            judge_outcome(outcome, ours, tried).unwrap_or_else(|| fall_back(ours))
        }
        DuplexReply::TimedOut | DuplexReply::Closed => fall_back(ours),
    }
}

/// Returns the verdict on a reply over HTTP to a request of `method`, which need not be `server/discover`.
#[must_use]
pub fn judge_http(
    method: &str,
    reply: HttpReply<'_>,
    ours: &Dialects,
    tried: &[&'static Dialect],
) -> ProbeVerdict {
    let (status, outcome) = match reply {
        HttpReply::TimedOut => return ProbeVerdict::Inconclusive(InconclusiveReply::TimedOut),
        HttpReply::Unreachable => {
            return ProbeVerdict::Inconclusive(InconclusiveReply::Unreachable);
        }
        HttpReply::Status(status) => (status, None),
        HttpReply::Outcome { status, outcome } => (status, Some(outcome)),
    };
    match status {
        401 => return ProbeVerdict::Unauthorized,
        // A `Host` or `Origin` that is not allowed, or a firewall: no token helps.
        403 => return ProbeVerdict::Inconclusive(InconclusiveReply::Status(status)),
        _ => {}
    }
    if let Some(verdict) = outcome.and_then(|outcome| judge_outcome(outcome, ours, tried)) {
        return verdict;
    }
    if let (404, Some(Err(error)), [.., asked]) = (status, outcome, tried) {
        // A modern server may lack any method except `server/discover`.
        if error.code == ErrorCode::METHOD_NOT_FOUND && method != "server/discover" {
            return ProbeVerdict::Modern(asked);
        }
    }
    match status {
        // Like 5xx, a timeout (408) and an overload (429) do not depend on the era.
        408 | 429 | 300..=399 | 500.. => {
            ProbeVerdict::Inconclusive(InconclusiveReply::Status(status))
        }
        _ => fall_back(ours),
    }
}

/// Returns the modern version to use if the error of `initialize` shows that the server is modern.
///
/// This occurs if a server was too slow to answer the probe, so that the client fell back to `initialize`.
#[must_use]
pub fn judge_rejected_initialize(error: &RpcError, ours: &Dialects) -> Option<&'static Dialect> {
    let supported = supported_versions(error)?;
    ours.iter()
        .find(|dialect| dialect.is_modern() && lists_version(&supported, dialect))
}

/// Returns whether the status of a rejected `initialize` suggests the HTTP+SSE transport of 2024-11-05.
#[must_use]
pub fn suggests_http_sse(status: u16) -> bool {
    matches!(status, 400 | 404 | 405)
}

/// Returns the verdict on a valid discovery, or on an error that only modern servers send; else `None`.
fn judge_outcome(
    outcome: &Outcome,
    ours: &Dialects,
    tried: &[&'static Dialect],
) -> Option<ProbeVerdict> {
    match outcome {
        Ok(result) => discovered_versions(result).map(|theirs| choose(theirs, ours)),
        Err(error) => match error.code {
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                supported_versions(error).map(|theirs| choose_retry(theirs, ours, tried))
            }
            // Only modern servers define these codes.
            ErrorCode::HEADER_MISMATCH | ErrorCode::MISSING_CLIENT_CAPABILITY => {
                tried.last().map(|asked| ProbeVerdict::Modern(asked))
            }
            _ => None,
        },
    }
}

fn choose(theirs: Vec<String>, ours: &Dialects) -> ProbeVerdict {
    let shared = |dialect: &&'static Dialect| lists_version(&theirs, dialect);
    match ours.iter().find(shared) {
        Some(dialect) if dialect.is_modern() => ProbeVerdict::Modern(dialect),
        // A modern result that lists legacy versions only; these need `initialize`.
        Some(dialect) => ProbeVerdict::Legacy(dialect),
        None => ProbeVerdict::Incompatible(theirs),
    }
}

/// Chooses the version of the next probe. A version that the server rejected and yet lists is tried a second time,
/// because another replica, or an older release of it, may have sent the rejection. Untried versions come first.
fn choose_retry(theirs: Vec<String>, ours: &Dialects, tried: &[&'static Dialect]) -> ProbeVerdict {
    let attempts = |dialect: &'static Dialect| tried.iter().filter(|it| **it == dialect).count();
    let shared = || {
        ours.iter()
            .filter(|dialect| lists_version(&theirs, dialect))
    };
    let again = shared()
        .filter(|dialect| dialect.is_modern() && attempts(dialect) < MAX_ATTEMPTS)
        .min_by_key(|dialect| attempts(dialect));
    if let Some(dialect) = again {
        return ProbeVerdict::Retry(dialect);
    }
    match shared().find(|dialect| !dialect.is_modern()) {
        Some(dialect) => ProbeVerdict::Legacy(dialect),
        None => ProbeVerdict::Incompatible(theirs),
    }
}

fn fall_back(ours: &Dialects) -> ProbeVerdict {
    match ours.latest_legacy() {
        Some(dialect) => ProbeVerdict::Legacy(dialect),
        None => ProbeVerdict::Incompatible(Vec::new()),
    }
}

fn lists_version(versions: &[String], dialect: &Dialect) -> bool {
    versions.iter().any(|version| version == dialect.version)
}

/// Returns the versions in a result of `server/discover`; `None` if it is not a valid one.
fn discovered_versions(result: &Json) -> Option<Vec<String>> {
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

/// Returns the versions in the data of an unsupported-version error; `None` for any other error.
fn supported_versions(error: &RpcError) -> Option<Vec<String>> {
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

/// The maximum number of probes with a version that the server both rejects and lists.
const MAX_ATTEMPTS: usize = 2;

#[cfg(test)]
mod tests;
