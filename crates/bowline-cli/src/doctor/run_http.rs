//! The examination of a server at a URL.

use std::time::SystemTime;

use bowline::exchange::dialect::HttpTransportKind;
use bowline::exchange::{Dialect, Dialects};
use bowline::http::RedactedUrl;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Uri};
use serde_json::{Value, json};

use super::Settings;
use super::checks::era::{EraFacts, Eras, Heard};
use super::checks::{answers, auth, era, legacy, reach, source, token};
use super::codes;
use super::credentials::Credentials;
use super::examine::examine_server;
use super::http_sse_run;
use super::legacy_run::LegacySide;
use super::probe::http::{
    Endpoint, HttpAnswer, HttpFailure, HttpLink, HttpOutcome, Observed, Outgoing, header_map,
};
use super::probe::http_sse::{HttpSse, HttpSseOpening};
use super::probe::metadata::{challenges, examine_authorization};
use super::probe::socket::{self, Address, Offer};
use super::probe::source::examine_source;
use super::probe::stream::{StreamFacts, examine_subscription};
use super::probe::{Link, Request, Way};
use super::report::{Finding, Report};
use crate::failure::Failure;
use crate::target::UrlTarget;

/// Examines the server.
///
/// # Errors
///
/// If the URL is not one.
pub(crate) async fn examine(
    target: &UrlTarget,
    credentials: &Credentials,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    report.transport = "http";
    let invalid = || {
        let url = RedactedUrl::new(&target.url);
        Failure::usage(format!("`{url}` is not a URL of a server"))
    };
    let uri: Uri = target.url.parse().map_err(|_| invalid())?;
    let address = Address::of(&uri).ok_or_else(invalid)?;
    let endpoint = Endpoint {
        uri,
        address,
        headers: header_map(&target.headers),
        patience: settings.patience,
    };
    if let Some(proxy) = proxy_variable(endpoint.address.is_tls) {
        let why = format!("the doctor connects directly, and clients may use the proxy of {proxy}");
        report.unchecked("the proxy", why);
    }
    if !reach(&endpoint, report).await {
        report.unchecked("everything else", "there is no connection");
        return Ok(());
    }
    let (mut endpoint, mut discover) = discover(endpoint, settings, report).await;
    if let Ok(answer) = &discover {
        report.findings.extend(reach::clock(answer));
    }
    if let Some(refusal) = refused(&discover).cloned() {
        let authorization = authorization(&endpoint, &refusal, credentials, report).await;
        examine_refusal(&endpoint, &refusal, authorization.is_some(), report).await;
        let Some(authorization) = authorization else {
            return Ok(());
        };
        endpoint.headers.insert(AUTHORIZATION, authorization);
        discover = endpoint.send(&discovery()).await;
        if let Some(refusal) = refused(&discover).cloned() {
            examine_refusal(&endpoint, &refusal, false, report).await;
            return Ok(());
        }
    }
    examine_open(&endpoint, discover, settings, report).await;
    Ok(())
}

/// Returns an answer that refuses the request for lack of authorization.
fn refused(outcome: &HttpOutcome) -> Option<&HttpAnswer> {
    let answer = outcome.as_ref().ok()?;
    let is_refused = matches!(answer.status, 401 | 403) && answer.reply(DISCOVER_ID).is_none();
    is_refused.then_some(answer)
}

/// Returns the token of a user who has signed in, if the server asks for one and the user gave none.
async fn authorization(
    endpoint: &Endpoint,
    refusal: &HttpAnswer,
    credentials: &Credentials,
    report: &mut Report,
) -> Option<HeaderValue> {
    if refusal.status != 401 || endpoint.headers.contains_key(AUTHORIZATION) {
        return None;
    }
    if let Some(why) = &credentials.failure {
        report.unchecked("signing in", why.clone());
    }
    let finding = credentials.authorization(&endpoint.uri);
    match tokio::time::timeout(endpoint.patience.answer, finding).await {
        Ok(Ok(authorization)) => authorization,
        Ok(Err(why)) => {
            report.unchecked("the kept token", why);
            None
        }
        Err(_) => {
            report.unchecked("the kept token", "renewing it took too long");
            None
        }
    }
}

/// Opens a connection, and reports what that shows. Returns whether there is one.
async fn reach(endpoint: &Endpoint, report: &mut Report) -> bool {
    let started = std::time::Instant::now();
    let opened = socket::open(&endpoint.address, Offer::Any, endpoint.patience.answer).await;
    match opened {
        Ok(opened) => {
            let version = if opened.is_http2 {
                "HTTP/2"
            } else {
                "HTTP/1.1"
            };
            let tls = if endpoint.address.is_tls { ", TLS" } else { "" };
            let elapsed = started.elapsed().as_millis();
            report.fact(
                "address",
                format!(
                    "{}, {version}{tls}, connected in {elapsed} ms",
                    opened.address
                ),
            );
            report
                .findings
                .extend(reach::opened(&endpoint.address, &opened));
            true
        }
        Err(failure) => {
            report
                .findings
                .push(reach::connect_failure(&endpoint.address, &failure));
            false
        }
    }
}

/// Sends `server/discover`, and follows one redirect within the origin. It is the first request, so that its answer
/// shows how long a server takes that is only started by a request.
async fn discover(
    mut endpoint: Endpoint,
    settings: &Settings,
    report: &mut Report,
) -> (Endpoint, HttpOutcome) {
    let outgoing = discovery();
    let started = std::time::Instant::now();
    let mut outcome = endpoint.send_within(settings.first_answer, &outgoing).await;
    if outcome.is_ok() {
        let elapsed = started.elapsed();
        report.fact(
            "start",
            format!("{} ms to the first answer", elapsed.as_millis()),
        );
        report
            .findings
            .extend(reach::first_answer(elapsed, settings.slow_start));
    }
    if let Ok(answer) = &outcome
        && let Some(finding) = answers::redirect(answer)
    {
        report.findings.push(finding);
        if let Some(uri) = redirected(&endpoint.uri, answer) {
            report.redirect = Some(uri.to_string());
            endpoint.uri = uri;
            outcome = endpoint.send(&outgoing).await;
        }
    }
    (endpoint, outcome)
}

fn discovery() -> Outgoing {
    let request = Request::new(DISCOVER_ID, Dialect::LATEST, "server/discover", json!({}));
    Outgoing::post(&request)
}

/// Returns where an answer redirects to, if that is on the same server: the headers may contain a token.
fn redirected(from: &Uri, answer: &HttpAnswer) -> Option<Uri> {
    let base = url::Url::parse(&from.to_string()).ok()?;
    let to = base.join(answer.header("location")?).ok()?;
    (to.origin() == base.origin()).then(|| to.as_str().parse().ok())?
}

/// Examines a server that refuses requests: what a client needs to sign in, and the token that was sent. `has_token` if
/// the examination goes on with another one.
async fn examine_refusal(
    endpoint: &Endpoint,
    refusal: &HttpAnswer,
    has_token: bool,
    report: &mut Report,
) {
    let server = endpoint.uri.to_string();
    let given = endpoint.headers.get(AUTHORIZATION);
    let given = given.and_then(|it| it.to_str().ok()?.split_once(' '));
    if let Some((_, given)) = given {
        match token::token(given.trim(), &server, SystemTime::now()) {
            Some(findings) => report.findings.extend(findings),
            None => report.unchecked(
                "the token",
                "it is not a JWT, so that only its issuer can read it",
            ),
        }
        report
            .findings
            .push(auth::refused_token(refusal.status, &challenges(refusal)));
    }
    if refusal.status == 401 {
        let facts = examine_authorization(endpoint, refusal).await;
        report.findings.extend(auth::authorization(&facts, &server));
        let by = facts.issuer.map_or("unknown".to_owned(), |(issuer, _)| {
            RedactedUrl::new(issuer).to_string()
        });
        let token = if has_token { "; with a kept token" } else { "" };
        report.fact(
            "sign-in",
            format!("required; authorization server: {by}{token}"),
        );
    } else if given.is_none() && challenges(refusal).is_empty() {
        let what = format!(
            "The server refuses requests with status {}.",
            refusal.status
        );
        report.findings.push(Finding::new(&codes::FORBIDDEN, what));
    } else if given.is_none() {
        report
            .findings
            .push(auth::refused_token(refusal.status, &challenges(refusal)));
    }
    if !has_token {
        let why = "the server requires authorization; pass --sign-in, or a token: --header 'Authorization: Bearer …'";
        report.unchecked("everything else", why);
    }
}

/// Examines a server that answers.
async fn examine_open(
    endpoint: &Endpoint,
    mut discover: HttpOutcome,
    settings: &Settings,
    report: &mut Report,
) {
    let mut observed = vec![Observed {
        method: "server/discover".to_owned(),
        outcome: discover.clone(),
    }];
    let mut legacy = LegacySide::open(endpoint, streamable_versions(), &mut observed).await;
    if let Err(HttpFailure::TimedOut(after)) = discover
        && legacy.is_answered()
    {
        // It may have been starting: silence shows nothing about a server that was not up.
        discover = endpoint.send(&discovery()).await;
        if discover.is_ok() {
            report.findings.push(reach::no_first_answer(after));
        }
    }
    let facts = EraFacts {
        discover: heard(&discover, DISCOVER_ID),
        handshakes: legacy.heard(),
    };
    let mut eras = era::judge(&facts);
    if eras.modern.is_none() && eras.legacy.is_empty() {
        // No POST to this URL can find it.
        match HttpSse::open(endpoint).await {
            HttpSseOpening::Absent => {}
            opening => {
                return http_sse_run::examine(opening, facts.discover, settings, report).await;
            }
        }
    }
    report.findings.append(&mut eras.findings);
    report.fact("versions", eras.versions());
    if let Ok(answer) = &discover
        && eras.modern.is_some()
    {
        report.findings.extend(legacy::modern_answer(answer));
    }
    match (eras.modern, eras.discovery.clone()) {
        (Some(dialect), Some(discovery)) => {
            let link = modern_link(endpoint, dialect);
            observed.extend(examine_modern(link, &discovery, settings, report).await);
        }
        _ => observed.extend(legacy.examine(endpoint, settings, report).await),
    }
    let refusal = observed
        .iter()
        .filter_map(|it| it.outcome.as_ref().ok())
        .find(|it| it.status == 401);
    if let Some(refusal) = refusal {
        // What failed for lack of a token says nothing else about the server.
        report.findings.retain(|it| it.code != &codes::LIST_FAILED);
        examine_refusal(endpoint, refusal, false, report).await;
    }
    report.findings.extend(answers::answers(&observed));
    let is_open = eras.modern.is_some() || !eras.legacy.is_empty();
    // Before it is, silence is a part of the finding about its era.
    if is_open {
        let rest = observed.get(1..).unwrap_or_default();
        report.findings.extend(answers::missing_answers(rest));
        examine_surroundings(endpoint, &eras, &legacy, report).await;
        legacy.close(endpoint, report).await;
    }
}

fn modern_link<'a>(endpoint: &'a Endpoint, dialect: &'static Dialect) -> HttpLink<'a> {
    HttpLink {
        endpoint,
        dialect,
        state_headers: HeaderMap::new(),
        last_id: DISCOVER_ID,
        observed: Vec::new(),
    }
}

async fn examine_modern(
    link: HttpLink<'_>,
    discovery: &Value,
    settings: &Settings,
    report: &mut Report,
) -> Vec<Observed> {
    let mut link = Link::new(Way::Http(link));
    examine_server(&mut link, discovery, settings, report).await;
    let Way::Http(mut link) = link.way else {
        return Vec::new();
    };
    let facts = examine_subscription(&mut link, &discovery["capabilities"]).await;
    report_stream(&facts, true, report);
    link.observed
}

/// Reports what an event stream shows.
pub(crate) fn report_stream(facts: &StreamFacts, is_modern: bool, report: &mut Report) {
    report.findings.extend(answers::stream(facts, is_modern));
    match facts {
        StreamFacts::Streamed => report.fact("streams", "events arrive at once"),
        StreamFacts::Opened => report.fact("streams", "a stream opens at once"),
        StreamFacts::NotOffered(why) => {
            report.unchecked(
                "buffering of streams",
                format!("the server offers no stream to look at: {why}"),
            );
        }
        StreamFacts::Failed(why) => report.unchecked("buffering of streams", why.clone()),
        StreamFacts::NoHead(_) | StreamFacts::NoEvent(_) | StreamFacts::OnlyWithEnd => {}
    }
}

/// Examines what is the same in both eras: sources and limits.
async fn examine_surroundings(
    endpoint: &Endpoint,
    eras: &Eras,
    legacy: &LegacySide,
    report: &mut Report,
) {
    let harmless = match eras.modern {
        Some(dialect) => Outgoing::post(&Request::new(
            DISCOVER_ID,
            dialect,
            "server/discover",
            json!({}),
        )),
        None => legacy.harmless_request(),
    };
    let facts = examine_source(endpoint, &harmless).await;
    report
        .findings
        .extend(source::source(&facts, endpoint.address.is_loopback()));

    let padding = json!({"_meta": {"com.example/padding": "x".repeat(LARGE)}});
    let large = match eras.modern {
        Some(dialect) => {
            Outgoing::post(&Request::new(LARGE_ID, dialect, "server/discover", padding))
        }
        None => legacy.request(LARGE_ID, "ping", padding),
    };
    let outcome = endpoint.send(&large).await;
    report.findings.extend(answers::large_body(&outcome, LARGE));
    report_limits(&outcome, report);
}

/// Reports that a request of [`LARGE`] bytes was accepted.
pub(crate) fn report_limits(outcome: &HttpOutcome, report: &mut Report) {
    if outcome.as_ref().is_ok_and(HttpAnswer::is_success) {
        report.fact(
            "limits",
            format!("a request of {} KiB is accepted", LARGE >> 10),
        );
    }
}

/// The legacy versions that a POST can find.
fn streamable_versions() -> Dialects {
    Dialects::only(|it| !it.is_modern() && it.http.transport == HttpTransportKind::Streamable)
}

pub(crate) fn heard(outcome: &HttpOutcome, id: u64) -> Heard {
    match outcome {
        Ok(answer) => match answer.reply(id) {
            Some(reply) => Heard::Reply(reply),
            None => Heard::Status(answer.status),
        },
        Err(HttpFailure::TimedOut(after)) => Heard::TimedOut(*after),
        Err(failure) => Heard::Failed(failure.to_string()),
    }
}

/// Returns the environment variable that sets a proxy for clients.
fn proxy_variable(is_tls: bool) -> Option<&'static str> {
    let names: &[&str] = match is_tls {
        true => &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        false => &["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let is_set = |name: &&&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    names.iter().find(is_set).copied()
}

const DISCOVER_ID: u64 = 1;
const LARGE_ID: u64 = 90;
/// Less than the limits of most servers, more than the default of some frameworks (100 KiB).
pub(crate) const LARGE: usize = 512 << 10;
