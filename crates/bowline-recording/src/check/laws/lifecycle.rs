//! Laws about the handshake of versions before 2026-07-28.

use std::collections::BTreeMap;

use bowline_core::era::is_modern_version;

use super::super::context::is_object;
use super::{Breach, Breaches, CheckContext, LEGACY_LIFECYCLE, Law, legacy, must, should};
use crate::timeline::{member, text_member};
use crate::{EntryKind, Exchange, Side};

pub(super) const LAWS: &[Law] = &[
    legacy(should(
        "initialize-first",
        LEGACY_LIFECYCLE,
        "before `initialize` is answered, a client sends nothing but `ping`",
        initialize_first,
    )),
    legacy(must(
        "initialize-result",
        LEGACY_LIFECYCLE,
        "the result of `initialize` has a legacy version, capabilities and server info",
        initialize_result,
    )),
    legacy(must(
        "initialized-sent",
        LEGACY_LIFECYCLE,
        "after `initialize`, a client sends `notifications/initialized` before other requests",
        initialized_sent,
    )),
];

fn initialize_first(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for initialize in handshakes(context) {
        let answered = initialize.answer.as_ref().map(|answer| answer.at);
        for exchange in legacy_requests(context, initialize) {
            let is_early = answered.is_none_or(|answered| exchange.at < answered);
            if is_early && exchange.number > initialize.number && exchange.method != "ping" {
                let what = format!(
                    "{} was sent before `initialize` was answered",
                    exchange.method
                );
                let lines = [initialize.line, exchange.line];
                breaches.push(Breach::new(what, lines).of(exchange.number));
            }
        }
    }
}

fn initialize_result(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in context
        .results()
        .filter(|it| it.exchange.method == "initialize")
    {
        let mut missing = Vec::new();
        match text_member(result.result, &["protocolVersion"]) {
            None => missing.push("protocolVersion"),
            Some(version) if is_modern_version(&version) => {
                let what =
                    format!("{version} was negotiated by `initialize`, which it does not have");
                breaches.push(Breach::new(what, [result.line]).of(result.exchange.number));
            }
            Some(_) => {}
        }
        for name in ["capabilities", "serverInfo"] {
            if !is_object(member(result.result, &[name]).as_ref()) {
                missing.push(name);
            }
        }
        if !missing.is_empty() {
            let what = format!("the result of `initialize` lacks {}", missing.join(", "));
            breaches.push(Breach::new(what, [result.line]).of(result.exchange.number));
        }
    }
}

fn initialized_sent(context: &CheckContext<'_>, breaches: &mut Breaches) {
    if context.has_gaps {
        return;
    }
    let mut initialized: BTreeMap<(u64, Option<String>), usize> = BTreeMap::new();
    for entry in context.timeline.entries() {
        let is_it = matches!(&entry.kind, EntryKind::Notification { method } if method == "notifications/initialized");
        if is_it && entry.from == Some(Side::Client) {
            let http = entry
                .http_exchange
                .and_then(|it| context.timeline.http_exchange(it));
            let session = http.and_then(|http| http.session().map(str::to_owned));
            let connection = scope_connection(context, entry.connection, session.as_deref());
            initialized
                .entry((connection, session))
                .or_insert(entry.line);
        }
    }
    for initialize in handshakes(context) {
        let Some(answer) = initialize.answer.as_ref().filter(|it| it.outcome.is_ok()) else {
            continue;
        };
        let session = initialize.session.clone();
        let connection = scope_connection(context, initialize.connection, session.as_deref());
        let sent = initialized.get(&(connection, session));
        let first = legacy_requests(context, initialize)
            .find(|it| it.line > answer.line && it.method != "ping");
        let Some(first) = first else { continue };
        if sent.is_none_or(|sent| *sent > first.line) {
            let what = format!(
                "{} was sent before `notifications/initialized`",
                first.method
            );
            let lines = [answer.line, first.line];
            breaches.push(Breach::new(what, lines).of(first.number));
        }
    }
}

fn handshakes<'a>(context: &'a CheckContext<'_>) -> impl Iterator<Item = &'a Exchange> {
    context
        .exchanges()
        .filter(|it| it.method == "initialize" && it.from == Side::Client && !it.is_modern())
        .take(MAX_HANDSHAKES)
}

/// Returns the client's other legacy requests in the session of a handshake.
fn legacy_requests<'a>(
    context: &'a CheckContext<'_>,
    initialize: &'a Exchange,
) -> impl Iterator<Item = &'a Exchange> {
    let is_http = context.is_http();
    context.exchanges().filter(move |it| {
        let is_of_session = match is_http {
            true => initialize.session.is_some() && it.session == initialize.session,
            false => it.connection == initialize.connection,
        };
        let is_other = it.method != "initialize" && it.from == Side::Client;
        is_of_session && is_other && !it.is_modern()
    })
}

/// Over HTTP, the connections of a session differ.
fn scope_connection(context: &CheckContext<'_>, connection: u64, session: Option<&str>) -> u64 {
    match context.is_http() && session.is_some() {
        true => 0,
        false => connection,
    }
}

/// The number of handshakes that are checked, each against all requests.
const MAX_HANDSHAKES: usize = 1000;
