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
    /// The server is modern but wants another version; probe again with this one.
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

/// A version that was refused once is not tried again, whatever the server says it supports.
fn choose_again(theirs: Vec<String>, ours: &Dialects, tried: &[&'static Dialect]) -> Verdict {
    let untried = |dialect: &&'static Dialect| names(&theirs, dialect) && !tried.contains(dialect);
    match ours.iter().find(untried) {
        Some(dialect) if dialect.is_modern() => Verdict::Retry(dialect),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MODERN: &Dialect = Dialect::LATEST;
    const LEGACY: &Dialect = Dialect::LATEST_LEGACY;

    fn discovery(versions: &[&str]) -> Outcome {
        Ok(
            json!({"resultType": "complete", "supportedVersions": versions, "capabilities": {}})
                .into(),
        )
    }

    fn error(code: i64) -> Outcome {
        Err(RpcError::new(ErrorCode(code), "no"))
    }

    fn unsupported(versions: &[&str]) -> Outcome {
        let error = RpcError::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, "no");
        Err(error.with_data(json!({"supported": versions, "requested": "x"})))
    }

    fn strings(versions: &[&str]) -> Vec<String> {
        versions.iter().map(|&version| version.to_owned()).collect()
    }

    /// Answers that mean the same on every transport.
    fn proofs() -> Vec<(Outcome, Verdict)> {
        let old = Dialect::of("2025-06-18").unwrap();
        vec![
            (discovery(&["2026-07-28"]), Verdict::Modern(MODERN)),
            (
                discovery(&["2025-11-25", "2026-07-28", "2099-01-01"]),
                Verdict::Modern(MODERN),
            ),
            (
                Ok(json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}).into()),
                Verdict::Modern(MODERN),
            ),
            (
                discovery(&["2025-06-18", "2024-11-05"]),
                Verdict::Legacy(old),
            ),
            (
                discovery(&["2099-01-01"]),
                Verdict::Incompatible(strings(&["2099-01-01"])),
            ),
            (discovery(&[]), Verdict::Incompatible(vec![])),
            (error(-32020), Verdict::Modern(MODERN)),
            (error(-32021), Verdict::Modern(MODERN)),
            (
                unsupported(&["2025-11-25", "2025-06-18"]),
                Verdict::Legacy(LEGACY),
            ),
            (
                unsupported(&["2099-01-01"]),
                Verdict::Incompatible(strings(&["2099-01-01"])),
            ),
            (
                unsupported(&["2026-07-28"]),
                Verdict::Incompatible(strings(&["2026-07-28"])),
            ),
        ]
    }

    /// Answers that a modern server never gives to `server/discover`.
    fn oddities() -> Vec<Outcome> {
        vec![
            error(-32601),
            error(-32602),
            error(-32600),
            error(-32700),
            error(-32603),
            error(-32000),
            error(-32001),
            error(-32002),
            error(0),
            // Without a list of versions it is not the modern error of that code.
            error(-32022),
            Err(
                RpcError::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, "no")
                    .with_data(json!({"supported": "2026-07-28"})),
            ),
            Ok(json!({}).into()),
            Ok(json!([]).into()),
            Ok(json!({"tools": []}).into()),
            Ok(json!({"supportedVersions": "2026-07-28", "capabilities": {}}).into()),
            Ok(json!({"supportedVersions": ["2026-07-28"]}).into()),
            Ok(json!({"supportedVersions": ["2026-07-28"], "capabilities": []}).into()),
            Ok(json!({"resultType": "input_required", "supportedVersions": ["2026-07-28"], "capabilities": {}}).into()),
        ]
    }

    /// COMPAT-4: "Treat a recognised modern JSON-RPC error as proof of a modern server".
    #[test]
    fn what_only_a_modern_server_says_proves_it_on_every_transport() {
        for (outcome, expected) in proofs() {
            let duplex = judge_duplex(DuplexReply::Outcome(&outcome), &Dialects::all(), &[MODERN]);
            assert_eq!(duplex, expected, "{outcome:?}");

            for status in [200, 400, 404, 500] {
                let reply = HttpReply::Outcome {
                    status,
                    outcome: &outcome,
                };
                let http = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);
                assert_eq!(http, expected, "{status} {outcome:?}");
            }
        }
    }

    /// COMPAT-7: "Key the stdio fallback to a particular error code": a client MUST NOT.
    #[test]
    fn on_a_duplex_wire_any_other_answer_means_legacy() {
        for outcome in oddities() {
            let verdict = judge_duplex(DuplexReply::Outcome(&outcome), &Dialects::all(), &[MODERN]);

            assert_eq!(verdict, Verdict::Legacy(LEGACY), "{outcome:?}");
        }
    }

    #[test]
    fn on_a_duplex_wire_silence_and_exit_mean_legacy() {
        for reply in [DuplexReply::Silence, DuplexReply::Gone] {
            let verdict = judge_duplex(reply, &Dialects::all(), &[MODERN]);

            assert_eq!(verdict, Verdict::Legacy(LEGACY), "{reply:?}");
        }
    }

    /// COMPAT-8: a modern-only client still probes, "so a legacy server fails deterministically".
    #[test]
    fn a_modern_only_client_never_falls_back() {
        for outcome in oddities() {
            let reply = DuplexReply::Outcome(&outcome);
            let verdict = judge_duplex(reply, &Dialects::modern(), &[MODERN]);

            assert_eq!(verdict, Verdict::Incompatible(vec![]), "{outcome:?}");
        }
        let legacy_only = discovery(&["2025-11-25"]);
        let verdict = judge_duplex(
            DuplexReply::Outcome(&legacy_only),
            &Dialects::modern(),
            &[MODERN],
        );
        assert_eq!(verdict, Verdict::Incompatible(strings(&["2025-11-25"])));
    }

    /// COMPAT-10: "empty/unrecognised → `initialize`".
    #[test]
    fn over_http_an_unrecognised_answer_means_legacy() {
        for outcome in oddities() {
            for status in [200, 400, 404, 405, 406, 415, 422] {
                let reply = HttpReply::Outcome {
                    status,
                    outcome: &outcome,
                };
                let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

                assert_eq!(verdict, Verdict::Legacy(LEGACY), "{status} {outcome:?}");
            }
        }
        for status in [200, 202, 204, 400, 404, 405, 406, 415] {
            let reply = HttpReply::Status(status);
            let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

            assert_eq!(verdict, Verdict::Legacy(LEGACY), "{status}");
        }
    }

    #[test]
    fn over_http_a_locked_door_is_no_evidence() {
        let refusal = error(-32601);
        for status in [401, 403] {
            for reply in [
                HttpReply::Status(status),
                HttpReply::Outcome {
                    status,
                    outcome: &refusal,
                },
            ] {
                let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

                assert_eq!(verdict, Verdict::Unauthorized, "{reply:?}");
            }
        }
    }

    #[test]
    fn over_http_an_outage_is_no_evidence() {
        let table = [
            (HttpReply::Silence, Undecided::Silence),
            (HttpReply::Unreachable, Undecided::Unreachable),
            (HttpReply::Status(500), Undecided::Status(500)),
            (HttpReply::Status(502), Undecided::Status(502)),
            (HttpReply::Status(503), Undecided::Status(503)),
            (HttpReply::Status(504), Undecided::Status(504)),
            (HttpReply::Status(408), Undecided::Status(408)),
            (HttpReply::Status(429), Undecided::Status(429)),
            (HttpReply::Status(302), Undecided::Status(302)),
        ];
        for (reply, why) in table {
            let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

            assert_eq!(verdict, Verdict::Undecided(why), "{reply:?}");
        }
        let outcome = error(-32603);
        let reply = HttpReply::Outcome {
            status: 500,
            outcome: &outcome,
        };
        let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);
        assert_eq!(verdict, Verdict::Undecided(Undecided::Status(500)));
    }

    #[test]
    fn over_http_an_unknown_method_is_modern_unless_it_is_the_probe() {
        let outcome = error(-32601);
        let reply = HttpReply::Outcome {
            status: 404,
            outcome: &outcome,
        };

        let other = judge_http("com.example/own", reply, &Dialects::all(), &[MODERN]);
        let probe = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

        assert_eq!(other, Verdict::Modern(MODERN));
        assert_eq!(probe, Verdict::Legacy(LEGACY));
    }

    /// VER-2: "Pick a mutually supported version from `supported` and retry, else surface an error".
    #[test]
    fn another_modern_version_is_tried_once() {
        let outcome = unsupported(&["2026-07-28", "2025-11-25"]);
        let reply = DuplexReply::Outcome(&outcome);

        let first = judge_duplex(reply, &Dialects::all(), &[]);
        let second = judge_duplex(reply, &Dialects::all(), &[MODERN]);

        assert_eq!(first, Verdict::Retry(MODERN));
        assert_eq!(second, Verdict::Legacy(LEGACY));
    }

    #[test]
    fn a_handshake_that_is_refused_for_its_version_reveals_a_modern_server() {
        let refused =
            |outcome: Outcome| judge_refused_handshake(&outcome.unwrap_err(), &Dialects::all());

        assert_eq!(refused(unsupported(&["2026-07-28"])), Some(MODERN));
        assert_eq!(refused(unsupported(&["2025-11-25"])), None);
        assert_eq!(refused(unsupported(&["2099-01-01"])), None);
        assert_eq!(refused(error(-32022)), None);
        assert_eq!(refused(error(-32602)), None);
    }

    /// COMPAT-11: "after 400/404/405 with no recognised modern error body, open GET on the URL".
    #[test]
    fn a_refused_handshake_may_mean_two_endpoints() {
        for status in [400, 404, 405] {
            assert!(suggests_two_endpoints(status), "{status}");
        }
        for status in [200, 401, 403, 406, 500] {
            assert!(!suggests_two_endpoints(status), "{status}");
        }
    }
}
