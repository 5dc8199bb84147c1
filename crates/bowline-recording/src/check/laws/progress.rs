//! Laws about progress and log notifications.

use std::collections::BTreeMap;

use bowline_types::{ProgressToken, RequestId, meta_key};

use super::answers::describe;
use super::{Breach, Breaches, CheckContext, LOGGING, Law, PROGRESS, must};
use crate::Exchange;
use crate::timeline::member;

pub(super) const LAWS: &[Law] = &[
    must(
        "progress-increases",
        PROGRESS,
        "the progress of a request increases strictly",
        progress_increases,
    ),
    must(
        "progress-known",
        PROGRESS,
        "progress has the token of a request in flight",
        progress_known,
    ),
    must(
        "progress-stops",
        PROGRESS,
        "no progress follows the answer",
        progress_stops,
    ),
    must(
        "progress-token-unique",
        PROGRESS,
        "requests in flight have different progress tokens",
        progress_token_unique,
    ),
    must(
        "log-requested",
        LOGGING,
        "in the modern era, log messages belong to a request that asked for them",
        log_requested,
    ),
];

const PROGRESS_METHOD: &str = "notifications/progress";

fn progress_increases(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges() {
        let mut before: Option<(f64, usize)> = None;
        for progress in exchange
            .notifications
            .iter()
            .filter(|it| it.method == PROGRESS_METHOD)
        {
            let value = progress
                .params
                .as_ref()
                .and_then(|it| member(it, &["progress"]));
            let Some(value) = value.and_then(|it| it.decode::<f64>().ok()) else {
                let what = format!("progress of {} is not a number", describe(exchange));
                breaches.push(Breach::new(what, [progress.line]).of(exchange.number));
                continue;
            };
            if let Some((last, line)) = before.filter(|(last, _)| value <= *last) {
                let what = format!(
                    "progress of {} went from {last} to {value}",
                    describe(exchange)
                );
                breaches.push(Breach::new(what, [line, progress.line]).of(exchange.number));
            }
            before = Some((value, progress.line));
        }
    }
}

fn progress_known(context: &CheckContext<'_>, breaches: &mut Breaches) {
    if context.has_gaps {
        return;
    }
    for progress in context
        .notifications
        .iter()
        .filter(|it| it.method == PROGRESS_METHOD)
    {
        if progress.exchange.is_some() {
            continue;
        }
        let token = progress.member(&["progressToken"]);
        let token: Option<ProgressToken> = token.and_then(|it| it.decode().ok());
        let what = match token {
            Some(token) => format!(
                "no request has the progress token {}",
                bowline_core::shortened(token)
            ),
            None => "progress has no token".to_owned(),
        };
        breaches.push(Breach::new(what, [progress.line]));
    }
}

fn progress_stops(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.exchanges() {
        let Some(answer) = &exchange.answer else {
            continue;
        };
        // Of a task, progress continues after the answer that created it.
        let is_task = answer.outcome.as_ref().is_ok_and(|result| {
            member(result, &["task"]).is_some() || member(result, &["taskId"]).is_some()
        });
        let late = exchange.notifications.iter();
        let late = late.filter(|it| it.method == PROGRESS_METHOD && it.line > answer.line);
        for progress in late.filter(|_| !is_task) {
            let what = format!("progress of {} follows its answer", describe(exchange));
            let lines = [answer.line, progress.line];
            breaches.push(Breach::new(what, lines).of(exchange.number));
        }
    }
}

fn progress_token_unique(context: &CheckContext<'_>, breaches: &mut Breaches) {
    let mut last: BTreeMap<(u64, &RequestId), &Exchange> = BTreeMap::new();
    for exchange in context.exchanges() {
        let Some(token) = &exchange.progress_token else {
            continue;
        };
        // Over HTTP, progress comes on the response of its own request.
        if exchange.http_exchange.is_some() && exchange.is_modern() {
            continue;
        }
        let Some(before) = last.insert((exchange.connection, token), exchange) else {
            continue;
        };
        let end = before.duration().map(|duration| before.at + duration);
        if before.from == exchange.from && end.is_none_or(|end| end > exchange.at) {
            let what = format!("two requests in flight have the progress token {token}");
            let lines = [before.line, exchange.line];
            breaches.push(Breach::new(what, lines).of(exchange.number));
        }
    }
}

fn log_requested(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in context.modern() {
        let path = ["_meta", meta_key::LOG_LEVEL];
        let level = exchange.params.as_ref().and_then(|it| member(it, &path));
        let logged = exchange
            .notifications
            .iter()
            .find(|it| it.method == "notifications/message");
        if let (None, Some(message)) = (level, logged) {
            let what = format!("{} did not ask for log messages", describe(exchange));
            breaches.push(Breach::new(what, [exchange.line, message.line]).of(exchange.number));
        }
    }
}
