//! Which eras and versions the server has, from its answers to `server/discover` and `initialize`.

use std::time::Duration;

use bowline::exchange::Dialect;
use serde_json::Value;

use super::super::codes;
use super::super::probe::Reply;
use super::super::report::{Finding, Severity};
use super::names;

/// What came back for a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Reply(Reply),
    /// An HTTP answer without a message.
    Status(u16),
    TimedOut(Duration),
    /// The process ended.
    Exited(String),
    Failed(String),
}

impl Heard {
    fn result(&self) -> Option<&Value> {
        match self {
            Self::Reply(reply) => reply.result(),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Reply(reply) => reply.describe(),
            Self::Status(status) => format!("status {status}"),
            Self::TimedOut(after) => format!("nothing in {after:?}"),
            Self::Exited(how) => format!("the end of the process ({how})"),
            Self::Failed(why) => why.clone(),
        }
    }
}

/// The answers to the two openings.
#[derive(Clone, Debug)]
pub(crate) struct EraFacts {
    pub(crate) discover: Heard,
    /// With the version that was offered.
    pub(crate) handshakes: Vec<(&'static Dialect, Heard)>,
}

/// Which versions the server has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Eras {
    /// The latest modern version that the server and the doctor have.
    pub(crate) modern: Option<&'static Dialect>,
    /// The discovery.
    pub(crate) discovery: Option<Value>,
    /// The legacy versions that it answered with.
    pub(crate) legacy: Vec<&'static Dialect>,
    pub(crate) findings: Vec<Finding>,
}

impl Eras {
    /// The versions for a line of the report, the latest first.
    pub(crate) fn versions(&self) -> String {
        let mut versions: Vec<&str> = self.modern.iter().map(|it| it.version).collect();
        let mut legacy: Vec<_> = self.legacy.iter().map(|it| it.version).collect();
        legacy.sort_unstable();
        legacy.dedup();
        versions.extend(legacy.iter().rev());
        versions.join(", ")
    }
}

pub(crate) fn judge(facts: &EraFacts) -> Eras {
    let mut eras = Eras::default();
    for (offered, heard) in &facts.handshakes {
        judge_handshake(&mut eras, offered, heard);
    }
    judge_discovery(&mut eras, &facts.discover);
    let is_known = !eras.findings.is_empty();
    match (eras.modern, eras.legacy.is_empty()) {
        (None, true) if !is_known => {
            let handshake = facts.handshakes.first().map(|(_, heard)| heard.describe());
            let what = format!(
                "The answer to `server/discover` was {}, and the one to `initialize` {}.",
                facts.discover.describe(),
                handshake.unwrap_or_else(|| "not asked for".to_owned())
            );
            eras.findings.push(Finding::new(&codes::NO_ERA, what));
        }
        (None, false) => {
            let what = format!(
                "The server has no modern revision, only {}.",
                eras.versions()
            );
            eras.findings.push(Finding::new(&codes::LEGACY_ONLY, what));
        }
        _ => {}
    }
    eras
}

fn judge_handshake(eras: &mut Eras, offered: &Dialect, heard: &Heard) {
    let wrong = |what: String| Finding::new(&codes::WRONG_ERA_ANSWER, what);
    let Some(result) = heard.result() else {
        return;
    };
    let Some(version) = result["protocolVersion"].as_str() else {
        let what = "The result of `initialize` has no `protocolVersion`.".to_owned();
        eras.findings.push(wrong(what));
        return;
    };
    match Dialect::of(version) {
        Some(dialect) if dialect.is_modern() => {
            let what = format!(
                "The result of `initialize` has the version {version}, which has no handshake."
            );
            eras.findings.push(wrong(what));
        }
        Some(dialect) => eras.legacy.push(dialect),
        None => {
            let what = format!(
                "The answer to `initialize` with {} has the unknown version `{version}`.",
                offered.version
            );
            eras.findings
                .push(Finding::new(&codes::UNKNOWN_VERSION, what));
        }
    }
}

fn judge_discovery(eras: &mut Eras, heard: &Heard) {
    let wrong = |what: &str| Finding::new(&codes::WRONG_ERA_ANSWER, what);
    let has_legacy = !eras.legacy.is_empty();
    match heard {
        Heard::Reply(Reply::Result(result)) => {
            let versions = versions(&result["supportedVersions"]);
            if versions.is_empty() || !result["capabilities"].is_object() {
                let what = match result.get("protocolVersion") {
                    Some(_) => "The answer to `server/discover` is a result of `initialize`.",
                    None => {
                        "The answer to `server/discover` is a result, but not a discovery: it needs `supportedVersions` and `capabilities`."
                    }
                };
                eras.findings.push(wrong(what));
                return;
            }
            if result.get("resultType").is_none() {
                let untyped = ["server/discover".to_owned()];
                eras.findings.extend(untyped_results(&untyped));
            }
            let known = versions.iter().filter_map(|it| Dialect::of(it));
            eras.modern = known
                .filter(|it| it.is_modern())
                .max_by_key(|it| it.version);
            eras.discovery = Some(result.clone());
            if eras.modern.is_none() && !has_legacy {
                let what = format!("The server supports only {}.", versions.join(", "));
                eras.findings
                    .push(Finding::new(&codes::UNKNOWN_VERSION, what));
            }
        }
        Heard::Reply(Reply::Error { code, data, .. })
            if *code == UNSUPPORTED_VERSION && !has_legacy =>
        {
            let versions = versions(&data["supported"]);
            let what = format!(
                "The server refuses {}, and supports {}.",
                Dialect::LATEST.version,
                versions.join(", ")
            );
            eras.findings
                .push(Finding::new(&codes::UNKNOWN_VERSION, what));
        }
        Heard::TimedOut(after) if has_legacy => {
            let what = format!("The server did not answer `server/discover` in {after:?}.");
            eras.findings
                .push(Finding::new(&codes::PROBE_IGNORED, what));
        }
        Heard::Exited(how) if has_legacy => {
            let what = format!("The server ended at `server/discover`: {how}.");
            eras.findings.push(Finding::new(&codes::PROBE_KILLS, what));
        }
        Heard::Status(status) if *status >= 500 && has_legacy => {
            let what = format!(
                "The answer to `server/discover` has status {status}, which does not show the era."
            );
            let finding = Finding::new(&codes::PROBE_IGNORED, what);
            eras.findings.push(finding.severity(Severity::Error));
        }
        _ => {}
    }
}

fn versions(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = list.iter().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Judges modern results without a type, by the methods that were called.
pub(crate) fn untyped_results(methods: &[String]) -> Option<Finding> {
    (!methods.is_empty()).then(|| {
        let what = format!("The result of {} has no `resultType`.", names(methods));
        Finding::new(&codes::UNTYPED_RESULT, what)
    })
}

const UNSUPPORTED_VERSION: i64 = -32022;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(value: Value) -> Heard {
        Heard::Reply(Reply::Result(value))
    }

    fn error(code: i64) -> Heard {
        Heard::Reply(Reply::Error {
            code,
            message: String::new(),
            data: json!({"supported": ["2099-01-01"]}),
        })
    }

    fn discovery() -> Heard {
        result(
            json!({"resultType": "complete", "supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": {}}),
        )
    }

    fn codes(discover: Heard, handshake: Heard) -> Vec<&'static str> {
        let facts = EraFacts {
            discover,
            handshakes: vec![(Dialect::LATEST_LEGACY, handshake)],
        };
        judge(&facts)
            .findings
            .iter()
            .map(|it| it.code.name)
            .collect()
    }

    #[test]
    fn servers_of_each_era_and_of_both_are_healthy() {
        let handshake = result(json!({"protocolVersion": "2025-11-25", "capabilities": {}}));

        assert!(codes(discovery(), error(-32601)).is_empty());
        assert!(codes(discovery(), handshake.clone()).is_empty());
        assert_eq!(codes(error(-32601), handshake.clone()), ["legacy-only"]);
        assert_eq!(codes(Heard::Status(400), handshake), ["legacy-only"]);
    }

    #[test]
    fn the_answer_of_the_other_era_is_named() {
        let handshake = || result(json!({"protocolVersion": "2025-11-25", "capabilities": {}}));

        assert_eq!(
            codes(handshake(), handshake()),
            ["wrong-era-answer", "legacy-only"]
        );
        let modern = result(json!({"protocolVersion": "2026-07-28"}));
        assert_eq!(codes(discovery(), modern), ["wrong-era-answer"]);
        let untyped = result(json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}));
        assert_eq!(codes(untyped, error(-32601)), ["untyped-result"]);
    }

    #[test]
    fn a_server_that_does_not_answer_the_probe_is_named_and_one_that_answers_nothing_too() {
        let handshake = || result(json!({"protocolVersion": "2024-11-05"}));
        let silence = || Heard::TimedOut(Duration::from_secs(5));

        assert_eq!(
            codes(silence(), handshake()),
            ["probe-ignored", "legacy-only"]
        );
        let exit = Heard::Exited("code 1".into());
        assert_eq!(codes(exit, handshake()), ["probe-kills", "legacy-only"]);
        assert_eq!(codes(silence(), silence()), ["no-era"]);
        assert_eq!(codes(error(-32022), error(-32601)), ["unknown-version"]);
        assert_eq!(codes(error(-32022), handshake()), ["legacy-only"]);
    }

    #[test]
    fn versions_are_listed_once_with_the_latest_first() {
        let handshake = |version| result(json!({"protocolVersion": version}));
        let facts = EraFacts {
            discover: discovery(),
            handshakes: vec![
                (Dialect::LATEST_LEGACY, handshake("2025-11-25")),
                (Dialect::LATEST_LEGACY, handshake("2024-11-05")),
                (Dialect::LATEST_LEGACY, handshake("2025-11-25")),
            ],
        };

        assert_eq!(
            judge(&facts).versions(),
            "2026-07-28, 2025-11-25, 2024-11-05"
        );
    }
}
