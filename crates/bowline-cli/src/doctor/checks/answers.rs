//! Status and content type of HTTP answers, streams and limits.

use bowline::http::RedactedUrl;

use super::super::codes;
use super::super::probe::http::{HttpAnswer, HttpFailure, HttpOutcome, Observed};
use super::super::probe::stream::StreamFacts;
use super::super::report::{Finding, Severity};
use super::names;

/// Judges the answers to requests, all at once, so that each fault is named once.
pub(crate) fn answers(observed: &[Observed]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let methods = |is_faulty: &dyn Fn(&HttpAnswer) -> bool| -> Vec<String> {
        let faulty = observed
            .iter()
            .filter(|it| it.outcome.as_ref().is_ok_and(is_faulty));
        faulty.map(|it| it.method.clone()).collect()
    };
    let wrong_type = methods(&has_wrong_type);
    if let Some(first) = first_with(observed, has_wrong_type) {
        let media = first.media_type();
        let what = format!(
            "The answer to {} has {}.",
            names(&wrong_type),
            media.map_or("no Content-Type".to_owned(), |it| format!(
                "the Content-Type `{it}`"
            ))
        );
        findings.push(Finding::new(&codes::WRONG_CONTENT_TYPE, what));
    }
    let is_page =
        |it: &HttpAnswer| it.is_success() && it.messages.is_empty() && !it.text.is_empty();
    if let Some(first) = first_with(observed, is_page) {
        let what = format!(
            "The answer to {} is not a message: `{}`.",
            names(&methods(&is_page)),
            first.text
        );
        findings.push(Finding::new(&codes::NOT_AN_ENDPOINT, what));
    }
    let is_failed = |it: &HttpAnswer| it.status >= 500;
    if let Some(first) = first_with(observed, is_failed) {
        let what = format!(
            "The answer to {} has status {}.",
            names(&methods(&is_failed)),
            first.status
        );
        findings.push(Finding::new(&codes::SERVER_ERROR, what));
    }
    let closes = |it: &HttpAnswer| {
        it.is_success()
            && it
                .header("connection")
                .is_some_and(|it| it.eq_ignore_ascii_case("close"))
    };
    if first_with(observed, closes).is_some() {
        let what = "The server closes the connection after each answer.";
        findings.push(Finding::new(&codes::NO_KEEP_ALIVE, what));
    }
    findings
}

fn first_with(
    observed: &[Observed],
    is_faulty: impl Fn(&HttpAnswer) -> bool,
) -> Option<&HttpAnswer> {
    let mut answers = observed.iter().filter_map(|it| it.outcome.as_ref().ok());
    answers.find(|answer| is_faulty(answer))
}

/// Returns whether an answer has messages, and a type by which no client reads them.
fn has_wrong_type(answer: &HttpAnswer) -> bool {
    let media = answer.media_type();
    let is_known = matches!(
        media.as_deref(),
        Some("application/json" | "text/event-stream")
    );
    !answer.messages.is_empty() && !is_known
}

/// Judges requests without an answer, for which `observed` has the reason.
pub(crate) fn missing_answers(observed: &[Observed]) -> Option<Finding> {
    let mut missing = observed
        .iter()
        .filter_map(|it| Some((it, it.outcome.as_ref().err()?)));
    let (first, why) = missing.next()?;
    let what = format!("The request `{}` got no answer: {why}.", first.method);
    Some(Finding::new(&codes::NO_ANSWER, what))
}

/// Judges a redirect of the URL.
pub(crate) fn redirect(answer: &HttpAnswer) -> Option<Finding> {
    let to = RedactedUrl::new(answer.header("location")?);
    let what = format!("The URL redirects with status {} to {to}.", answer.status);
    let finding = Finding::new(&codes::REDIRECT, what);
    match answer.status {
        // A client must send a GET then.
        301..=303 => Some(finding.severity(Severity::Error)),
        307 | 308 => Some(finding),
        _ => None,
    }
}

/// Judges an event stream.
pub(crate) fn stream(facts: &StreamFacts, is_modern: bool) -> Option<Finding> {
    let what = match facts {
        StreamFacts::NoHead(after) => {
            format!("Nothing of an event stream arrived in {after:?}, although it was open.")
        }
        StreamFacts::NoEvent(after) => {
            format!(
                "The first event of a stream, which is due at once, did not arrive in {after:?}."
            )
        }
        StreamFacts::OnlyWithEnd => "A stream ended without its first event.".to_owned(),
        _ => return None,
    };
    let finding = Finding::new(&codes::SSE_BUFFERED, what);
    // Without a required first event, a server that sends the head late is not at fault.
    Some(match is_modern {
        true => finding,
        false => finding.severity(Severity::Warning),
    })
}

/// Judges the answer to a request of `size` bytes.
pub(crate) fn large_body(outcome: &HttpOutcome, size: usize) -> Option<Finding> {
    let kilobytes = size >> 10;
    match outcome {
        Ok(answer) if answer.status == 413 => {
            let what = format!("The server refuses a request of {kilobytes} KiB.");
            Some(Finding::new(&codes::SMALL_BODY_LIMIT, what))
        }
        Ok(answer) if answer.status >= 500 => {
            let what = format!(
                "The server answers a request of {kilobytes} KiB with status {}.",
                answer.status
            );
            Some(Finding::new(&codes::LARGE_BODY, what))
        }
        Err(HttpFailure::Broken(why)) => {
            let what = format!("The connection broke at a request of {kilobytes} KiB: {why}.");
            Some(Finding::new(&codes::LARGE_BODY, what))
        }
        Err(HttpFailure::TimedOut(after)) => {
            let what = format!("A request of {kilobytes} KiB got no answer in {after:?}.");
            Some(Finding::new(&codes::LARGE_BODY, what))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderName, HeaderValue};
    use serde_json::{Value, json};

    use super::*;

    /// An answer with these headers and messages.
    pub(crate) fn answer(
        status: u16,
        headers: &[(&'static str, &'static str)],
        messages: Vec<Value>,
    ) -> HttpAnswer {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        HttpAnswer {
            status,
            headers: headers.collect::<HeaderMap>(),
            messages,
            text: String::new(),
            at: SystemTime::UNIX_EPOCH,
        }
    }

    fn codes_of(outcomes: Vec<HttpOutcome>) -> Vec<&'static str> {
        let observed = outcomes.into_iter().map(|outcome| Observed {
            method: "tools/list".into(),
            outcome,
        });
        let observed: Vec<_> = observed.collect();
        answers(&observed).iter().map(|it| it.code.name).collect()
    }

    #[test]
    fn messages_need_a_content_type_that_clients_read() {
        let message = vec![json!({"jsonrpc": "2.0", "id": 1, "result": {}})];
        let json_type = [("content-type", "application/json; charset=utf-8")];
        let text_type = [("content-type", "text/plain")];

        assert!(codes_of(vec![Ok(answer(200, &json_type, message.clone()))]).is_empty());
        let plain = answer(200, &text_type, message.clone());
        let none = answer(200, &[], message);
        assert_eq!(codes_of(vec![Ok(plain), Ok(none)]), ["wrong-content-type"]);
    }

    #[test]
    fn pages_and_server_errors_are_named() {
        let mut page = answer(200, &[("content-type", "text/html")], Vec::new());
        page.text = "<html>".into();
        let failed = answer(502, &[], Vec::new());

        assert_eq!(
            codes_of(vec![Ok(page), Ok(failed)]),
            ["not-an-endpoint", "server-error"]
        );
        assert!(codes_of(vec![Ok(answer(202, &[], Vec::new()))]).is_empty());
    }

    #[test]
    fn redirects_that_change_the_method_are_errors() {
        let to = [("location", "/mcp/")];

        let severity = |status| redirect(&answer(status, &to, Vec::new())).map(|it| it.severity);

        assert_eq!(severity(301), Some(Severity::Error));
        assert_eq!(severity(308), Some(Severity::Warning));
        assert_eq!(severity(200), None);
    }

    #[test]
    fn a_stream_must_begin_while_it_is_open() {
        let silent = StreamFacts::NoEvent(Duration::from_secs(5));

        assert_eq!(stream(&silent, true).unwrap().severity, Severity::Error);
        assert_eq!(stream(&StreamFacts::Streamed, true), None);
        assert_eq!(stream(&StreamFacts::NotOffered("405".into()), false), None);
    }

    #[test]
    fn a_refused_large_body_differs_from_a_broken_connection() {
        let name = |outcome: HttpOutcome| large_body(&outcome, 1 << 20).map(|it| it.code.name);

        assert_eq!(
            name(Ok(answer(413, &[], Vec::new()))),
            Some("small-body-limit")
        );
        assert_eq!(
            name(Err(HttpFailure::Broken("reset".into()))),
            Some("large-body")
        );
        assert_eq!(name(Ok(answer(200, &[], Vec::new()))), None);
    }
}
