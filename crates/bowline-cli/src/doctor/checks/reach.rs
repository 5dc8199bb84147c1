//! Name, address, TLS and the clock.

use std::time::{Duration, SystemTime};

use super::super::codes;
use super::super::probe::http::HttpAnswer;
use super::super::probe::socket::{Address, ConnectFailure, Opened, TlsFailure};
use super::super::report::{Finding, Severity};

/// Judges why there is no connection.
pub(crate) fn connect_failure(address: &Address, failure: &ConnectFailure) -> Finding {
    let host = &address.host;
    match failure {
        ConnectFailure::Dns(why) => Finding::new(
            &codes::DNS_FAILED,
            format!("The name `{host}` was not found: {why}."),
        ),
        ConnectFailure::Tcp(why) => Finding::new(
            &codes::CONNECTION_FAILED,
            format!("No connection to {why}."),
        ),
        ConnectFailure::TimedOut(after) => {
            let what = format!("No connection to {host}:{} after {after:?}.", address.port);
            Finding::new(&codes::CONNECTION_FAILED, what)
        }
        ConnectFailure::Tls(failure) => tls_failure(host, failure),
    }
}

fn tls_failure(host: &str, failure: &TlsFailure) -> Finding {
    match failure {
        TlsFailure::Name(names) => {
            let names = match names.is_empty() {
                true => "other names".to_owned(),
                false => names.join(", "),
            };
            let what = format!("The certificate is not for `{host}`, but for {names}.");
            Finding::new(&codes::TLS_NAME, what)
        }
        TlsFailure::Expired => Finding::new(
            &codes::TLS_EXPIRED,
            format!("The certificate of {host} has expired."),
        ),
        TlsFailure::NotYetValid => Finding::new(
            &codes::TLS_EXPIRED,
            format!("The certificate of {host} is not valid yet."),
        ),
        TlsFailure::Untrusted => {
            let what = format!("The certificate of {host} is not signed by a trusted authority.");
            Finding::new(&codes::TLS_UNTRUSTED, what)
        }
        TlsFailure::NoRoots => {
            let what = "This machine has no root certificates, so that no server is trusted.";
            let mend = "Install the package with root certificates (ca-certificates), or set SSL_CERT_FILE.";
            Finding::new(&codes::TLS_UNTRUSTED, what).mend(mend)
        }
        TlsFailure::Other(why) => Finding::new(
            &codes::TLS_FAILED,
            format!("The TLS handshake with {host} failed: {why}."),
        ),
    }
}

/// Judges an open connection.
pub(crate) fn opened(address: &Address, opened: &Opened) -> Vec<Finding> {
    let mut findings = Vec::new();
    if opened.expires_soon {
        let what = format!(
            "The certificate of {} expires within two weeks.",
            address.host
        );
        findings.push(Finding::new(&codes::TLS_EXPIRES_SOON, what));
    }
    if !address.is_tls && !address.is_loopback() {
        let what = format!("The connection to {} is not encrypted.", address.host);
        findings.push(Finding::new(&codes::PLAIN_HTTP, what));
    }
    findings
}

/// Judges how long the first answer took.
pub(crate) fn first_answer(after: Duration, slow_start: Duration) -> Option<Finding> {
    (after > slow_start).then(|| {
        let what = format!("The first answer came after {:.1} s.", after.as_secs_f64());
        slow_start_finding(what)
    })
}

/// Judges a server that did not answer the first request, and answered when it was sent again.
pub(crate) fn no_first_answer(after: Duration) -> Finding {
    slow_start_finding(format!(
        "The first request got no answer in {after:?}; a later one did."
    ))
}

fn slow_start_finding(what: String) -> Finding {
    let finding = Finding::new(&codes::SLOW_START, what);
    finding.mend("Keep an instance running, or give clients a longer time to connect, such as --connect-timeout 60s of `bowline`.")
}

/// Compares the clock of the server with ours.
pub(crate) fn clock(answer: &HttpAnswer) -> Option<Finding> {
    let theirs = httpdate::parse_http_date(answer.header("date")?).ok()?;
    let (skew, direction) = difference(theirs, answer.at);
    if skew < MAX_SKEW {
        return None;
    }
    let seconds = skew.as_secs();
    let what =
        format!("The clock of the server is {seconds} s {direction} the clock of this machine.");
    let finding = Finding::new(&codes::CLOCK_SKEW, what);
    Some(match skew >= BROKEN_SKEW {
        true => finding.severity(Severity::Error),
        false => finding,
    })
}

fn difference(theirs: SystemTime, ours: SystemTime) -> (Duration, &'static str) {
    match theirs.duration_since(ours) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    }
}

/// More than a slow response and the whole seconds of the header explain.
const MAX_SKEW: Duration = Duration::from_secs(60);
/// More than verifiers of tokens usually tolerate.
const BROKEN_SKEW: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn answer(date: &'static str) -> HttpAnswer {
        let mut headers = HeaderMap::new();
        headers.insert("date", HeaderValue::from_static(date));
        HttpAnswer {
            status: 200,
            headers,
            messages: Vec::new(),
            text: String::new(),
            // 2026-07-28 00:00:00
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_196_800),
        }
    }

    #[test]
    fn a_clock_that_is_minutes_off_is_named_and_one_that_is_hours_off_is_an_error() {
        assert_eq!(clock(&answer("Tue, 28 Jul 2026 00:00:20 GMT")), None);
        assert_eq!(clock(&answer("tomorrow")), None);

        let minutes = clock(&answer("Tue, 28 Jul 2026 00:02:00 GMT")).unwrap();
        let hours = clock(&answer("Mon, 27 Jul 2026 20:00:00 GMT")).unwrap();

        assert_eq!(minutes.severity, Severity::Warning);
        assert!(minutes.what.contains("120 s ahead of"), "{}", minutes.what);
        assert_eq!(hours.severity, Severity::Error);
        assert!(hours.what.contains("behind"), "{}", hours.what);
    }

    #[test]
    fn a_certificate_for_another_name_names_both() {
        let uri = "https://a.example/".parse().unwrap();
        let address = Address::of(&uri).unwrap();
        let failure = ConnectFailure::Tls(TlsFailure::Name(vec!["b.example".into()]));

        let finding = connect_failure(&address, &failure);

        assert_eq!(finding.code.name, "tls-name");
        assert!(finding.what.contains("a.example") && finding.what.contains("b.example"));
    }

    #[test]
    fn a_slow_first_answer_is_reported() {
        let limit = Duration::from_secs(5);

        assert!(first_answer(limit, limit).is_none());
        let finding = first_answer(limit * 2, limit).unwrap();
        assert_eq!(finding.code.name, "slow-start");
        assert_eq!(finding.what, "The first answer came after 10.0 s.");
    }
}
