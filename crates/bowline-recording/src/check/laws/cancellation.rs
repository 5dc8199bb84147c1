//! Laws about cancellation.

use std::time::Duration;

use super::answers::describe;
use super::{
    Breach, Breaches, CANCELLATION, CheckContext, HTTP, LEGACY_CANCELLATION, Law, legacy, must,
    should,
};
use crate::{Answer, Cancel, CancelForm, EntryKind, Exchange, Side};

pub(super) const LAWS: &[Law] = &[
    should(
        "silent-after-cancel",
        CANCELLATION,
        "after a cancel, no message follows for that request",
        silent_after_cancel,
    ),
    must(
        "cancel-own-request",
        CANCELLATION,
        "a cancel names a request that its sender has sent",
        cancel_own_request,
    ),
    must(
        "no-posted-cancel",
        HTTP,
        "in the modern era, a request over HTTP is cancelled by closing its response, not by a notification",
        no_posted_cancel,
    ),
    legacy(must(
        "initialize-not-cancelled",
        LEGACY_CANCELLATION,
        "`initialize` is not cancelled",
        initialize_not_cancelled,
    )),
    must(
        "server-cancels-subscriptions-only",
        CANCELLATION,
        "in the modern era, a server sends `notifications/cancelled` for a subscription only",
        server_cancels_subscriptions_only,
    ),
];

fn silent_after_cancel(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges() {
        let Some(cancel) = &exchange.cancel else {
            continue;
        };
        // An answer that was on its way when the cancel was sent is not a violation.
        let deadline = cancel.at.saturating_add(CROSSING);
        let answers = exchange.late_answers.iter();
        let answers = answers.filter(|it| it.at > deadline && !is_terminator(exchange, it));
        let notifications = exchange.notifications.iter().filter(|it| it.at > deadline);
        let lines: Vec<usize> = answers
            .map(|it| it.line)
            .chain(notifications.map(|it| it.line))
            .collect();
        if is_ended_subscription(exchange, cancel) || lines.is_empty() {
            continue;
        }
        let after = cancel.latency().unwrap_or_default();
        let what = format!(
            "{} was cancelled, and its last message came {} ms later",
            describe(exchange),
            after.as_millis()
        );
        breaches
            .push(Breach::new(what, [cancel.line].into_iter().chain(lines)).of(exchange.number));
    }
}

/// A legacy HTTP request must end, so its cancelled request is answered with this error on the same request.
fn is_terminator(exchange: &Exchange, answer: &Answer) -> bool {
    let is_cancelled = |code: i64| code == REQUEST_CANCELLED;
    exchange.http_exchange.is_some()
        && answer
            .outcome
            .as_ref()
            .is_err_and(|error| is_cancelled(error.code.0))
}

/// A server may send the result of a subscription before or after the cancel that ends it.
fn is_ended_subscription(exchange: &Exchange, cancel: &Cancel) -> bool {
    exchange.is_subscription() && cancel.by == Side::Server
}

fn cancel_own_request(context: &CheckContext<'_>, breaches: &mut Breaches) {
    if context.has_gaps {
        return;
    }
    for cancel in &context.notifications {
        if cancel.kind != EntryKind::Cancel || cancel.exchange.is_some() {
            continue;
        }
        if cancel.http_exchange.is_some() && cancel.is_modern() {
            continue; // it has a law of its own
        }
        let id = cancel.member(&["requestId"]);
        let id = id.map_or("no id".to_owned(), |id| {
            format!("id {}", bowline_core::shortened(id))
        });
        let what = format!(
            "the {} cancelled {id}, which it did not request",
            cancel.from.as_str()
        );
        breaches.push(Breach::new(what, [cancel.line]));
    }
}

fn no_posted_cancel(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for cancel in &context.notifications {
        let is_cancel = cancel.method == "notifications/cancelled";
        let is_posted = cancel.http_exchange.is_some() && cancel.from == Side::Client;
        if is_cancel && is_posted && cancel.is_modern() {
            let what = "the client posted a cancel instead of closing the response";
            breaches.push(Breach::new(what, [cancel.line]));
        }
    }
}

fn initialize_not_cancelled(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges().filter(|it| it.method == "initialize") {
        let cancel = exchange.cancel.as_ref();
        if let Some(cancel) = cancel.filter(|it| it.form != CancelForm::ClosedStream) {
            let lines = [exchange.line, cancel.line];
            breaches.push(Breach::new("initialize was cancelled", lines).of(exchange.number));
        }
    }
}

fn server_cancels_subscriptions_only(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for cancel in &context.notifications {
        let is_cancel = cancel.method == "notifications/cancelled";
        if !is_cancel || cancel.from != Side::Server || !cancel.is_modern() {
            continue;
        }
        let exchange = cancel
            .exchange
            .and_then(|number| context.timeline.exchange(number));
        if !exchange.is_some_and(Exchange::is_subscription) {
            let what = "the server cancelled something that is not a subscription";
            breaches.push(Breach::new(what, [cancel.line]).of(cancel.exchange));
        }
    }
}

/// An answer within this time may have crossed the cancel on its way.
const CROSSING: Duration = Duration::from_millis(100);

/// The error code that ends the response to a cancelled legacy request.
const REQUEST_CANCELLED: i64 = -32800;
