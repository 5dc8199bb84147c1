//! Sessions of revisions before 2026-07-28: whether they are kept, and how they end.

use http::HeaderValue;

use super::super::legacy_codes as codes;
use super::super::probe::http::{HttpAnswer, HttpOutcome};
use super::super::probe::legacy::{SESSION_ID, SessionFacts, is_session_unknown};
use super::super::report::Finding;

/// Judges a session.
pub(crate) fn session(facts: &SessionFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(Ok(answer)) = &facts.initialized
        && answer.is_success()
        && answer.status != 202
    {
        let what = format!(
            "`notifications/initialized` is answered with status {}.",
            answer.status
        );
        findings.push(Finding::new(&codes::NOTIFICATION_STATUS, what));
    }
    // Without an id each request stands alone, and must be answered all the same.
    findings.extend(lost(&facts.requests));
    if facts.id.as_ref().is_some_and(|id| !is_valid_id(id)) {
        let what =
            "The Mcp-Session-Id of the server contains characters that are not visible ASCII.";
        findings.push(Finding::new(&codes::SESSION_ID_INVALID, what));
    }
    if let Some((Ok(deleted), Ok(after))) = &facts.ended
        && deleted.is_success()
        && after.status != 404
    {
        let what = format!(
            "A request of a session that was deleted is answered with status {}.",
            after.status
        );
        findings.push(Finding::new(&codes::SESSION_END_STATUS, what));
    }
    findings
}

fn lost(requests: &[HttpOutcome]) -> Option<Finding> {
    let unknown = requests
        .iter()
        .filter(|it| it.as_ref().is_ok_and(is_session_unknown));
    let statuses: Vec<u16> = unknown
        .filter_map(|it| Some(it.as_ref().ok()?.status))
        .collect();
    let first = statuses.first()?;
    let what = format!(
        "Of {} requests in a new session, each on a connection of its own, {} got status {first}.",
        requests.len(),
        statuses.len()
    );
    Some(Finding::new(&codes::SESSION_LOST, what))
}

fn is_valid_id(id: &HeaderValue) -> bool {
    !id.is_empty()
        && id
            .as_bytes()
            .iter()
            .all(|byte| (0x21..=0x7e).contains(byte))
}

/// Judges the answer to a modern request, which has no session.
pub(crate) fn modern_answer(answer: &HttpAnswer) -> Option<Finding> {
    answer.headers.contains_key(SESSION_ID).then(|| {
        let what = "The answer to a modern request has the header Mcp-Session-Id.";
        Finding::new(&codes::MODERN_SESSION, what)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::answers::tests::answer;
    use super::*;

    fn facts(statuses: &[u16], after_end: u16) -> SessionFacts {
        let status = |status: &u16| Ok(answer(*status, &[], Vec::new()));
        SessionFacts {
            id: Some(HeaderValue::from_static("s1")),
            initialized: Some(status(&202)),
            requests: statuses.iter().map(status).collect(),
            ended: Some((status(&200), status(&after_end))),
        }
    }

    fn codes(facts: &SessionFacts) -> Vec<&'static str> {
        session(facts).iter().map(|it| it.code.name).collect()
    }

    #[test]
    fn a_session_that_some_requests_do_not_find_is_lost() {
        assert!(codes(&facts(&[200, 200], 404)).is_empty());
        assert_eq!(codes(&facts(&[200, 404, 200], 404)), ["session-lost"]);
        let found = session(&facts(&[200, 404, 400], 404));
        assert!(found[0].what.contains("Of 3 requests"), "{}", found[0].what);
        assert!(
            found[0].what.contains("2 got status 404"),
            "{}",
            found[0].what
        );
    }

    #[test]
    fn the_end_of_a_session_must_be_recognizable() {
        assert_eq!(codes(&facts(&[200], 400)), ["session-end-status"]);
        let mut invalid = facts(&[200], 404);
        invalid.id = Some(HeaderValue::from_bytes(b"a b").unwrap());
        assert_eq!(codes(&invalid), ["session-id-invalid"]);
    }

    #[test]
    fn a_notification_is_answered_with_202() {
        let mut facts = facts(&[200], 404);
        facts.initialized = Some(Ok(answer(200, &[], Vec::new())));

        assert_eq!(codes(&facts), ["notification-status"]);
    }

    #[test]
    fn an_error_of_the_method_does_not_mean_that_the_session_is_lost() {
        let error = json!({"jsonrpc": "2.0", "id": 2, "error": {"code": -32601, "message": ""}});
        let mut facts = facts(&[], 404);
        facts.requests = vec![Ok(answer(200, &[], vec![error]))];

        assert!(codes(&facts).is_empty());
    }
}
