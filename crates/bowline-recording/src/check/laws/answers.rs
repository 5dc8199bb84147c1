//! Laws about requests and their answers.

use std::collections::BTreeMap;

use bowline_core::era::Dialect;
use bowline_types::RequestId;

use super::super::context::is_modern;
use super::{
    BASIC, Breach, Breaches, CANCELLATION, CheckContext, Law, STDIO, legacy, must, should,
};
use crate::{EntryKind, EventKind, Exchange, ExchangeState, Side};

pub(super) const LAWS: &[Law] = &[
    should(
        "answered",
        CANCELLATION,
        "every request is answered, or its sender cancels it",
        answered,
    ),
    must(
        "answered-once",
        BASIC,
        "a request has one answer",
        answered_once,
    ),
    must(
        "answer-matches",
        BASIC,
        "an answer has the id of a request",
        answer_matches,
    ),
    must(
        "id-verbatim",
        BASIC,
        "an answer repeats the id of its request, with its JSON type",
        id_verbatim,
    ),
    must(
        "id-unique",
        BASIC,
        "an id is not reused while a request with it is in flight",
        id_unique,
    ),
    legacy(must(
        "id-once-per-session",
        BASIC,
        "in the legacy era, an id is not reused within a session",
        id_once_per_session,
    )),
    must(
        "error-has-id",
        BASIC,
        "an error omits the id only if that of the request could not be read",
        error_has_id,
    ),
    must(
        "result-is-object",
        BASIC,
        "a result is an object",
        result_is_object,
    ),
    must(
        "well-formed",
        BASIC,
        "everything that is sent is a JSON-RPC message",
        well_formed,
    ),
    must(
        "no-batch",
        BASIC,
        "a batch is sent in a version that has batches",
        no_batch,
    ),
    must(
        "notification-without-id",
        BASIC,
        "a notification has no id",
        notification_without_id,
    ),
    must(
        "server-sends-no-request",
        BASIC,
        "in the modern era, a server sends no requests",
        server_sends_no_request,
    ),
    must(
        "client-sends-no-response",
        STDIO,
        "in the modern era, a client sends no responses",
        client_sends_no_response,
    ),
];

fn answered(context: &CheckContext<'_>, breaches: &mut Breaches) {
    if context.has_gaps {
        return;
    }
    let mut fell_back = false;
    for exchange in context.exchanges() {
        fell_back |= exchange.method == "initialize";
    }
    for exchange in context.exchanges() {
        // Older servers need not answer the probe, after which the client falls back to `initialize`.
        let is_probe = exchange.method == "server/discover" && fell_back;
        if exchange.state == ExchangeState::Hung && !exchange.is_subscription() && !is_probe {
            let what = format!("{} was neither answered nor cancelled", describe(exchange));
            breaches.push(Breach::new(what, [exchange.line]).of(exchange.number));
        }
    }
}

fn answered_once(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges().filter(|it| it.cancel.is_none()) {
        for late in &exchange.late_answers {
            let what = format!("{} has a second answer", describe(exchange));
            let first = exchange.answer.as_ref().map(|answer| answer.line);
            let lines = [exchange.line].into_iter().chain(first).chain([late.line]);
            breaches.push(Breach::new(what, lines).of(exchange.number));
        }
    }
}

fn answer_matches(context: &CheckContext<'_>, breaches: &mut Breaches) {
    if context.has_gaps {
        return;
    }
    for entry in context.timeline.entries() {
        let is_of_no_http = context.is_http() && entry.http_exchange.is_none();
        if entry.kind == EntryKind::UnmatchedAnswer
            && !is_of_no_http
            && has_id(context, entry.event)
        {
            let side = entry.from.map_or("a peer", Side::as_str);
            let what = format!("the {side} answered a request that was not sent");
            breaches.push(Breach::new(what, [entry.line]));
        }
    }
}

fn id_verbatim(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges() {
        for answer in exchange.answer.iter().chain(&exchange.late_answers) {
            if let Some(id) = answer.id.as_ref().filter(|id| **id != exchange.id) {
                let what = format!("the answer to id {} has id {id}", exchange.id);
                let lines = [exchange.line, answer.line];
                breaches.push(Breach::new(what, lines).of(exchange.number));
            }
        }
    }
}

fn id_unique(context: &CheckContext<'_>, breaches: &mut Breaches) {
    let mut last: BTreeMap<(u64, Side, RequestId), &Exchange> = BTreeMap::new();
    for exchange in context.exchanges() {
        let key = (exchange.connection, exchange.from, exchange.id.clone());
        let Some(before) = last.insert(key, exchange) else {
            continue;
        };
        let answered = before.answer.as_ref().map(|answer| answer.at);
        let cancelled = before.cancel.as_ref().map(|cancel| cancel.at);
        let refused = before.http_end.map(|end| end.at);
        let ended = answered.into_iter().chain(cancelled).chain(refused).min();
        if ended.is_none_or(|ended| ended > exchange.at) {
            let what = format!("id {} is used by two requests in flight", exchange.id);
            let lines = [before.line, exchange.line];
            breaches.push(Breach::new(what, lines).of(exchange.number));
        }
    }
}

fn id_once_per_session(context: &CheckContext<'_>, breaches: &mut Breaches) {
    let mut used: BTreeMap<(u64, Option<&str>, Side, RequestId), usize> = BTreeMap::new();
    for exchange in context.exchanges() {
        if exchange.is_modern() || exchange.version.is_none() || exchange.method == "initialize" {
            continue;
        }
        let session = exchange.session.as_deref();
        // Without a session id, requests over HTTP may come from different clients.
        if context.is_http() && session.is_none() {
            continue;
        }
        let connection = if context.is_http() {
            0
        } else {
            exchange.connection
        };
        let key = (connection, session, exchange.from, exchange.id.clone());
        if let Some(before) = used.insert(key, exchange.line) {
            let what = format!("id {} was used before in the same session", exchange.id);
            let lines = [before, exchange.line];
            breaches.push(Breach::new(what, lines).of(exchange.number));
        }
    }
}

fn error_has_id(context: &CheckContext<'_>, breaches: &mut Breaches) {
    if context.is_http() || context.has_gaps {
        return;
    }
    let mut unreadable = [0_usize; 2];
    let index = |side: Side| usize::from(side == Side::Server);
    for entry in context.timeline.entries() {
        match (&entry.kind, entry.from) {
            (EntryKind::Malformed, Some(from)) => unreadable[index(from)] += 1,
            (EntryKind::UnmatchedAnswer, Some(from)) if !has_id(context, entry.event) => {
                let unread = &mut unreadable[index(from.other())];
                if *unread == 0 {
                    let what = "an error has no id, and no request was unreadable";
                    breaches.push(Breach::new(what, [entry.line]));
                }
                *unread = unread.saturating_sub(1);
            }
            _ => {}
        }
    }
}

fn result_is_object(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for result in context.results().filter(|it| !it.result.is_object()) {
        let what = format!(
            "the result of {} is not an object",
            describe(result.exchange)
        );
        breaches.push(Breach::new(what, [result.line]).of(result.exchange.number));
    }
}

fn well_formed(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for entry in context.timeline.entries() {
        if entry.kind != EntryKind::Malformed {
            continue;
        }
        let side = entry.from.map_or("a peer", Side::as_str);
        let event = context.recording.events.get(entry.event);
        let why = match event.map(|event| &event.kind) {
            Some(EventKind::Malformed { why, .. }) => why.as_str(),
            _ => "not a valid request, response or notification",
        };
        let what = format!("the {side} sent something that is not a message: {why}");
        breaches.push(Breach::new(what, [entry.line]).of(entry.exchange));
    }
}

fn no_batch(context: &CheckContext<'_>, breaches: &mut Breaches) {
    let mut reported = None;
    for entry in context.timeline.entries().iter().filter(|it| it.is_batched) {
        let dialect = entry
            .version
            .as_ref()
            .and_then(|it| Dialect::of(it.as_str()));
        let is_allowed = dialect.is_some_and(|dialect| dialect.batches);
        if !is_allowed && reported != Some(entry.event) {
            reported = Some(entry.event);
            let what = "a batch was sent in a version that has none";
            breaches.push(Breach::new(what, [entry.line]));
        }
    }
}

fn notification_without_id(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges() {
        if exchange.method.starts_with("notifications/") {
            let what = format!("{} has the id {}", exchange.method, exchange.id);
            breaches.push(Breach::new(what, [exchange.line]).of(exchange.number));
        }
    }
}

fn server_sends_no_request(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges().filter(|it| it.from == Side::Server) {
        let is_legacy = exchange
            .version
            .as_ref()
            .is_some_and(|it| !is_modern(Some(it)));
        if !is_legacy {
            let what = format!("the server sent a request: {}", exchange.method);
            breaches.push(Breach::new(what, [exchange.line]).of(exchange.number));
        }
    }
}

fn client_sends_no_response(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for entry in context.timeline.entries() {
        let is_answer = matches!(
            entry.kind,
            EntryKind::Answer | EntryKind::LateAnswer | EntryKind::UnmatchedAnswer
        );
        if is_answer && entry.from == Some(Side::Client) && is_modern(entry.version.as_ref()) {
            let version = Dialect::LATEST;
            let what = format!("the client sent a response, which {version} does not have");
            breaches.push(Breach::new(what, [entry.line]).of(entry.exchange));
        }
    }
}

fn has_id(context: &CheckContext<'_>, event: usize) -> bool {
    let event = context.recording.events.get(event);
    let Some(EventKind::Message { message, .. }) = event.map(|event| &event.kind) else {
        return true;
    };
    let id = crate::timeline::member(message, &["id"]);
    id.is_none_or(|id| !id.is_null()) && crate::timeline::member(message, &["id"]).is_some()
}

/// Returns the method of a request with the name that it has.
pub(super) fn describe(exchange: &Exchange) -> String {
    match &exchange.name {
        Some(name) => format!("{} {}", exchange.method, bowline_core::shortened(name)),
        None => bowline_core::shortened(&exchange.method).to_string(),
    }
}
