//! Origin and Host checks, and CORS.

use super::super::codes;
use super::super::probe::http::{HttpAnswer, HttpOutcome};
use super::super::probe::source::{FOREIGN_ORIGIN, SourceFacts};
use super::super::report::{Finding, Severity};

/// Judges requests from elsewhere. `is_local` if the server is on this machine, where a web page could reach it.
pub(crate) fn source(facts: &SourceFacts, is_local: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_accepted = |disguised: &HttpOutcome| match (&facts.plain, disguised) {
        (Ok(plain), Ok(disguised)) => plain.status == disguised.status,
        _ => false,
    };
    if is_accepted(&facts.origin) {
        let what = format!("A request with `Origin: {FOREIGN_ORIGIN}` is answered as any other.");
        let finding = Finding::new(&codes::ORIGIN_NOT_CHECKED, what);
        // The name of a public server leads a browser to that server, and to nothing behind a firewall.
        findings.push(match is_local {
            true => finding,
            false => finding.severity(Severity::Note),
        });
    }
    if facts.host.as_ref().is_some_and(is_accepted) {
        let what = "A request with another `Host` header is answered as any other.";
        findings.push(Finding::new(&codes::HOST_NOT_CHECKED, what));
    }
    match &facts.preflight {
        Ok(answer) => findings.extend(preflight(answer)),
        Err(_) => findings.push(no_cors()),
    }
    findings
}

fn no_cors() -> Finding {
    Finding::new(
        &codes::NO_CORS,
        "A preflight request from an unknown web page is refused.",
    )
}

fn preflight(answer: &HttpAnswer) -> Option<Finding> {
    let Some(allowed) = answer.header("access-control-allow-origin") else {
        return Some(no_cors());
    };
    let with_credentials = answer.header("access-control-allow-credentials") == Some("true");
    if with_credentials && allowed == FOREIGN_ORIGIN {
        let what = "The server allows requests with credentials from any web page.";
        return Some(Finding::new(&codes::CORS_CREDENTIALS, what));
    }
    let listed = answer
        .header("access-control-allow-headers")
        .unwrap_or_default();
    let listed: Vec<_> = listed
        .split(',')
        .map(|it| it.trim().to_ascii_lowercase())
        .collect();
    // `*` covers every header but Authorization.
    let is_listed = |name: &str| {
        let has_wildcard = listed.iter().any(|it| it == "*") && name != "authorization";
        has_wildcard || listed.iter().any(|it| it == name)
    };
    let missing: Vec<_> = NEEDED.into_iter().filter(|name| !is_listed(name)).collect();
    (!missing.is_empty()).then(|| {
        let what = format!(
            "The answer to a preflight request does not allow {}.",
            missing.join(", ")
        );
        Finding::new(&codes::CORS_INCOMPLETE, what)
    })
}

const NEEDED: [&str; 4] = [
    "content-type",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
];

#[cfg(test)]
mod tests {
    use super::super::answers::tests::answer;
    use super::*;

    fn facts(origin: u16, host: u16, preflight: &[(&'static str, &'static str)]) -> SourceFacts {
        let status = |status| Ok(answer(status, &[], Vec::new()));
        SourceFacts {
            plain: status(200),
            origin: status(origin),
            host: Some(status(host)),
            preflight: Ok(answer(204, preflight, Vec::new())),
        }
    }

    fn codes(facts: &SourceFacts) -> Vec<&'static str> {
        source(facts, true).iter().map(|it| it.code.name).collect()
    }

    #[test]
    fn a_server_must_refuse_other_origins_and_hosts() {
        assert_eq!(codes(&facts(403, 421, &[])), ["no-cors"]);
        assert_eq!(
            codes(&facts(200, 200, &[])),
            ["origin-not-checked", "host-not-checked", "no-cors"]
        );
        let public = source(&facts(200, 403, &[]), false);
        assert_eq!(public[0].severity, Severity::Note);
    }

    #[test]
    fn a_preflight_must_allow_the_headers_of_the_protocol_and_no_credentials_for_all() {
        let open = ("access-control-allow-origin", "*");
        let all = ("access-control-allow-headers", "*");
        let few = ("access-control-allow-headers", "Content-Type, Mcp-Method");

        assert!(codes(&facts(403, 403, &[open, all])).is_empty());
        assert_eq!(codes(&facts(403, 403, &[open, few])), ["cors-incomplete"]);
        let reflected = [
            ("access-control-allow-origin", FOREIGN_ORIGIN),
            ("access-control-allow-credentials", "true"),
        ];
        assert_eq!(codes(&facts(403, 403, &reflected)), ["cors-credentials"]);
    }
}
