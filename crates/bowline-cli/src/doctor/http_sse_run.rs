//! The examination of a server that has only HTTP+SSE, the transport of 2024-11-05.

use bowline::exchange::dialect::HttpTransportKind;
use bowline::exchange::{Dialect, Dialects};
use serde_json::json;

use super::checks::era::{EraFacts, Heard};
use super::checks::{answers, era, source};
use super::examine::examine_server;
use super::probe::channel::{Channel as _, ChannelFailure};
use super::probe::http::Outgoing;
use super::probe::http_sse::{HttpSse, HttpSseOpening};
use super::probe::source::examine_source;
use super::probe::{Link, Request, Way};
use super::report::{Finding, Report};
use super::run_http::{LARGE, report_limits};
use super::{Settings, codes, legacy_codes};

/// Examines the server, if it has this transport. `discover` is what `server/discover` brought.
pub(crate) async fn examine(
    opening: HttpSseOpening,
    discover: Heard,
    settings: &Settings,
    report: &mut Report,
) {
    let what = "The server has only HTTP+SSE, the transport of the oldest revision.";
    let legacy_only = Finding::new(&codes::LEGACY_ONLY, what);
    report.findings.push(legacy_only);
    let mut channel = match opening {
        HttpSseOpening::Open(channel) => channel,
        HttpSseOpening::BadEndpoint(named) => {
            let what = format!("The event `endpoint` names `{named}`, which is on another origin.");
            let finding = Finding::new(&legacy_codes::SSE_ENDPOINT, what);
            report.findings.push(finding);
            report.unchecked("everything else", "there is no endpoint for messages");
            return;
        }
        HttpSseOpening::Absent => return,
    };
    report.fact("streams", "events arrive at once");
    examine_channel(&mut channel, discover, settings, report).await;
}

async fn examine_channel(
    channel: &mut HttpSse,
    discover: Heard,
    settings: &Settings,
    report: &mut Report,
) {
    let Some(offered) = oldest().iter().next() else {
        return;
    };
    let reply = channel.initialize(offered, settings.patience.answer).await;
    let introduction = reply.as_ref().ok().and_then(|it| it.result()).cloned();
    let handshake = match reply {
        Ok(reply) => Heard::Reply(reply),
        Err(ChannelFailure::TimedOut(after)) => Heard::TimedOut(after),
        Err(ChannelFailure::Ended(how)) => Heard::Failed(how),
    };
    let mut eras = era::judge(&EraFacts {
        discover,
        handshakes: vec![(offered, handshake)],
    });
    // The report has one that says more.
    eras.findings.retain(|it| it.code != &codes::LEGACY_ONLY);
    report.findings.append(&mut eras.findings);
    report.fact("versions", eras.versions());
    let (Some(dialect), Some(introduction)) = (eras.legacy.first().copied(), introduction) else {
        report.unchecked("everything else", "the server could not be opened");
        return;
    };
    let mut link = Link::new(Way::HttpSse(channel, dialect));
    examine_server(&mut link, &introduction, settings, report).await;
    examine_surroundings(channel, dialect, report).await;
}

/// Examines sources and limits with messages that are posted. Their answers arrive on the stream, and are not read.
async fn examine_surroundings(
    channel: &mut HttpSse,
    dialect: &'static Dialect,
    report: &mut Report,
) {
    let endpoint = channel.endpoint.clone();
    let mut ping = |params| {
        let request = Request::new(channel.next_id(), dialect, "ping", params);
        // The POST is answered with a status only.
        Outgoing::message(&request.to_json())
    };
    let facts = examine_source(&endpoint, &ping(json!({}))).await;
    let is_local = endpoint.address.is_loopback();
    report.findings.extend(source::source(&facts, is_local));
    let padding = json!({"_meta": {"com.example/padding": "x".repeat(LARGE)}});
    let outcome = endpoint.send(&ping(padding)).await;
    report.findings.extend(answers::large_body(&outcome, LARGE));
    report_limits(&outcome, report);
}

fn oldest() -> Dialects {
    Dialects::only(|it| it.http.transport == HttpTransportKind::HttpSse)
}
