//! Tests of the verdict on every kind of reply to a probe.

use serde_json::json;

use super::*;

const MODERN: &Dialect = Dialect::LATEST;
const LEGACY: &Dialect = Dialect::LATEST_LEGACY;

fn discovery(versions: &[&str]) -> Outcome {
    Ok(json!({"resultType": "complete", "supportedVersions": versions, "capabilities": {}}).into())
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

/// Replies with the same verdict on every transport.
fn conclusive_replies() -> Vec<(Outcome, ProbeVerdict)> {
    let old = Dialect::of("2025-06-18").unwrap();
    vec![
        (discovery(&["2026-07-28"]), ProbeVerdict::Modern(MODERN)),
        (
            discovery(&["2025-11-25", "2026-07-28", "2099-01-01"]),
            ProbeVerdict::Modern(MODERN),
        ),
        (
            Ok(json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}).into()),
            ProbeVerdict::Modern(MODERN),
        ),
        (
            discovery(&["2025-06-18", "2024-11-05"]),
            ProbeVerdict::Legacy(old),
        ),
        (
            discovery(&["2099-01-01"]),
            ProbeVerdict::Incompatible(strings(&["2099-01-01"])),
        ),
        (discovery(&[]), ProbeVerdict::Incompatible(vec![])),
        (error(-32020), ProbeVerdict::Modern(MODERN)),
        (error(-32021), ProbeVerdict::Modern(MODERN)),
        (
            unsupported(&["2025-11-25", "2025-06-18"]),
            ProbeVerdict::Legacy(LEGACY),
        ),
        (
            unsupported(&["2099-01-01"]),
            ProbeVerdict::Incompatible(strings(&["2099-01-01"])),
        ),
        (unsupported(&["2026-07-28"]), ProbeVerdict::Retry(MODERN)),
    ]
}

/// Replies that a modern server never sends to `server/discover`.
fn unrecognized_replies() -> Vec<Outcome> {
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
        // Without a list of versions it is not the modern error with this code.
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
fn a_modern_reply_is_recognized_on_every_transport() {
    for (outcome, expected) in conclusive_replies() {
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
    for outcome in unrecognized_replies() {
        let verdict = judge_duplex(DuplexReply::Outcome(&outcome), &Dialects::all(), &[MODERN]);

        assert_eq!(verdict, ProbeVerdict::Legacy(LEGACY), "{outcome:?}");
    }
}

#[test]
fn on_a_duplex_wire_a_timeout_and_an_exit_mean_legacy() {
    for reply in [DuplexReply::TimedOut, DuplexReply::Closed] {
        let verdict = judge_duplex(reply, &Dialects::all(), &[MODERN]);

        assert_eq!(verdict, ProbeVerdict::Legacy(LEGACY), "{reply:?}");
    }
}

/// COMPAT-8: a modern-only client still probes, "so a legacy server fails deterministically".
#[test]
fn a_modern_only_client_never_falls_back() {
    for outcome in unrecognized_replies() {
        let reply = DuplexReply::Outcome(&outcome);
        let verdict = judge_duplex(reply, &Dialects::modern(), &[MODERN]);

        assert_eq!(verdict, ProbeVerdict::Incompatible(vec![]), "{outcome:?}");
    }
    let legacy_only = discovery(&["2025-11-25"]);
    let verdict = judge_duplex(
        DuplexReply::Outcome(&legacy_only),
        &Dialects::modern(),
        &[MODERN],
    );
    assert_eq!(
        verdict,
        ProbeVerdict::Incompatible(strings(&["2025-11-25"]))
    );
}

/// COMPAT-10: "empty/unrecognised → `initialize`".
#[test]
fn over_http_an_unrecognised_answer_means_legacy() {
    for outcome in unrecognized_replies() {
        for status in [200, 400, 404, 405, 406, 415, 422] {
            let reply = HttpReply::Outcome {
                status,
                outcome: &outcome,
            };
            let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

            assert_eq!(
                verdict,
                ProbeVerdict::Legacy(LEGACY),
                "{status} {outcome:?}"
            );
        }
    }
    for status in [200, 202, 204, 400, 404, 405, 406, 415] {
        let reply = HttpReply::Status(status);
        let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

        assert_eq!(verdict, ProbeVerdict::Legacy(LEGACY), "{status}");
    }
}

#[test]
fn over_http_a_refusal_is_inconclusive_and_only_status_401_is_about_authorization() {
    let refusal = error(-32601);
    let forbidden = ProbeVerdict::Inconclusive(InconclusiveReply::Status(403));
    for (status, expected) in [(401, ProbeVerdict::Unauthorized), (403, forbidden)] {
        for reply in [
            HttpReply::Status(status),
            HttpReply::Outcome {
                status,
                outcome: &refusal,
            },
        ] {
            let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

            assert_eq!(verdict, expected, "{reply:?}");
        }
    }
}

#[test]
fn over_http_an_outage_is_inconclusive() {
    let table = [
        (HttpReply::TimedOut, InconclusiveReply::TimedOut),
        (HttpReply::Unreachable, InconclusiveReply::Unreachable),
        (HttpReply::Status(500), InconclusiveReply::Status(500)),
        (HttpReply::Status(502), InconclusiveReply::Status(502)),
        (HttpReply::Status(503), InconclusiveReply::Status(503)),
        (HttpReply::Status(504), InconclusiveReply::Status(504)),
        (HttpReply::Status(408), InconclusiveReply::Status(408)),
        (HttpReply::Status(429), InconclusiveReply::Status(429)),
        (HttpReply::Status(302), InconclusiveReply::Status(302)),
    ];
    for (reply, why) in table {
        let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);

        assert_eq!(verdict, ProbeVerdict::Inconclusive(why), "{reply:?}");
    }
    let outcome = error(-32603);
    let reply = HttpReply::Outcome {
        status: 500,
        outcome: &outcome,
    };
    let verdict = judge_http("server/discover", reply, &Dialects::all(), &[MODERN]);
    assert_eq!(
        verdict,
        ProbeVerdict::Inconclusive(InconclusiveReply::Status(500))
    );
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

    assert_eq!(other, ProbeVerdict::Modern(MODERN));
    assert_eq!(probe, ProbeVerdict::Legacy(LEGACY));
}

/// VER-2: "Pick a mutually supported version from `supported` and retry, else surface an error".
#[test]
fn a_version_that_is_refused_and_yet_supported_is_tried_once_more() {
    let both = unsupported(&["2026-07-28", "2025-11-25"]);
    let modern = unsupported(&["2026-07-28"]);
    let judge = |outcome, tried: &[&'static Dialect]| {
        judge_duplex(DuplexReply::Outcome(outcome), &Dialects::all(), tried)
    };

    assert_eq!(judge(&both, &[]), ProbeVerdict::Retry(MODERN));
    assert_eq!(judge(&both, &[MODERN]), ProbeVerdict::Retry(MODERN));
    assert_eq!(
        judge(&both, &[MODERN, MODERN]),
        ProbeVerdict::Legacy(LEGACY)
    );
    assert_eq!(
        judge(&modern, &[MODERN, MODERN]),
        ProbeVerdict::Incompatible(strings(&["2026-07-28"]))
    );
}

#[test]
fn an_unsupported_version_error_of_initialize_reveals_a_modern_server() {
    let refused =
        |outcome: Outcome| judge_rejected_initialize(&outcome.unwrap_err(), &Dialects::all());

    assert_eq!(refused(unsupported(&["2026-07-28"])), Some(MODERN));
    assert_eq!(refused(unsupported(&["2025-11-25"])), None);
    assert_eq!(refused(unsupported(&["2099-01-01"])), None);
    assert_eq!(refused(error(-32022)), None);
    assert_eq!(refused(error(-32602)), None);
}

/// COMPAT-11: "after 400/404/405 with no recognised modern error body, open GET on the URL".
#[test]
fn a_rejected_initialize_may_mean_http_sse() {
    for status in [400, 404, 405] {
        assert!(suggests_http_sse(status), "{status}");
    }
    for status in [200, 401, 403, 406, 500] {
        assert!(!suggests_http_sse(status), "{status}");
    }
}
