//! Laws about multi-round-trip requests.

use std::collections::BTreeSet;

use bowline_core::era::Dialect;
use bowline_core::json::Object;
use bowline_types::{Json, meta_key};

use super::answers::describe;
use super::{Breach, Breaches, CheckContext, Law, MRTR, must};
use crate::timeline::{member, text_member};
use crate::{Exchange, ExchangeState};

pub(super) const LAWS: &[Law] = &[
    must(
        "input-required-method",
        MRTR,
        "only tools/call, prompts/get and resources/read ask for input",
        input_required_method,
    ),
    must(
        "input-required-content",
        MRTR,
        "`input_required` has `inputRequests` or `requestState`",
        input_required_content,
    ),
    must(
        "input-capability",
        MRTR,
        "a server asks only for what the request's capabilities cover",
        input_capability,
    ),
    must("retry-new-id", MRTR, "a retry has a new id", retry_new_id),
    must(
        "request-state-echoed",
        MRTR,
        "a retry repeats a `requestState` that it was given",
        request_state_echoed,
    ),
    must(
        "input-responses-match",
        MRTR,
        "a retry answers the questions that it was asked",
        input_responses_match,
    ),
];

fn input_required<'a>(
    context: &'a CheckContext<'_>,
) -> impl Iterator<Item = (&'a Exchange, usize, &'a Json)> {
    context.results().filter_map(|it| {
        let is_it = it.exchange.state == ExchangeState::InputRequired;
        is_it.then_some((it.exchange, it.line, it.result))
    })
}

fn input_required_method(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (exchange, line, _) in input_required(context) {
        if !Dialect::LATEST.may_need_input(&exchange.method) {
            let what = format!("{} was answered with `input_required`", describe(exchange));
            breaches.push(Breach::new(what, [exchange.line, line]).of(exchange.number));
        }
    }
}

fn input_required_content(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (exchange, line, result) in input_required(context) {
        let has_requests = !keys(member(result, &["inputRequests"]).as_ref()).is_empty();
        if !has_requests && text_member(result, &["requestState"]).is_none() {
            let what = format!("{} asks for nothing", describe(exchange));
            breaches.push(Breach::new(what, [line]).of(exchange.number));
        }
    }
}

fn input_capability(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (exchange, line, result) in input_required(context) {
        let path = ["_meta", meta_key::CLIENT_CAPABILITIES];
        let capabilities = exchange.params.as_ref().and_then(|it| member(it, &path));
        let requests = member(result, &["inputRequests"]);
        let requests = requests.as_ref().and_then(|it| Object::read(it).ok());
        for (key, request) in requests.iter().flat_map(Object::iter) {
            let method = text_member(request, &["method"]).unwrap_or_default();
            let needed: &[&str] = match method.as_str() {
                "elicitation/create" => {
                    match text_member(request, &["params", "mode"]).as_deref() {
                        Some("url") => &["elicitation", "url"],
                        _ => &["elicitation"],
                    }
                }
                "sampling/createMessage" => &["sampling"],
                "roots/list" => &["roots"],
                _ => {
                    let what = format!("the question {key:?} has the method {method:?}");
                    breaches.push(Breach::new(what, [line]).of(exchange.number));
                    continue;
                }
            };
            let has_it = capabilities
                .as_ref()
                .and_then(|it| member(it, needed))
                .is_some();
            if !has_it {
                let needed = needed.join(".");
                let what = format!("{method} was asked, and the client did not declare {needed}");
                breaches.push(Breach::new(what, [exchange.line, line]).of(exchange.number));
            }
        }
    }
}

/// Returns the retries with the exchanges that they continue.
fn retries<'a>(
    context: &'a CheckContext<'_>,
) -> impl Iterator<Item = (&'a Exchange, &'a Exchange)> {
    context.exchanges().filter_map(|retry| {
        let before = context.timeline.exchange(retry.previous_leg?)?;
        Some((before, retry))
    })
}

fn retry_new_id(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (before, retry) in retries(context).filter(|(before, retry)| before.id == retry.id) {
        let what = format!(
            "the retry of {} has the same id {}",
            describe(retry),
            retry.id
        );
        breaches.push(Breach::new(what, [before.line, retry.line]).of(retry.number));
    }
}

fn request_state_echoed(context: &CheckContext<'_>, breaches: &mut Breaches) {
    if context.has_gaps {
        return;
    }
    let mut given: BTreeSet<String> = BTreeSet::new();
    for (_, _, result) in input_required(context) {
        given.extend(text_member(result, &["requestState"]));
    }
    for exchange in context.modern() {
        let params = exchange.params.as_ref();
        let state = params.and_then(|params| text_member(params, &["requestState"]));
        if state.is_some_and(|state| !given.contains(&state)) {
            let what = format!(
                "{} has a `requestState` that no answer has given",
                describe(exchange)
            );
            breaches.push(Breach::new(what, [exchange.line]).of(exchange.number));
        }
    }
    for (before, retry) in retries(context) {
        let answer = before
            .answer
            .as_ref()
            .and_then(|it| it.outcome.as_ref().ok());
        let given = answer.and_then(|result| text_member(result, &["requestState"]));
        let params = retry.params.as_ref();
        let echoed = params.and_then(|params| text_member(params, &["requestState"]));
        if given.is_some() && echoed.is_none() {
            let what = format!("the retry of {} lacks its `requestState`", describe(retry));
            breaches.push(Breach::new(what, [before.line, retry.line]).of(retry.number));
        }
    }
}

fn input_responses_match(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for (before, retry) in retries(context) {
        let answer = before
            .answer
            .as_ref()
            .and_then(|it| it.outcome.as_ref().ok());
        let asked = keys(
            answer
                .and_then(|it| member(it, &["inputRequests"]))
                .as_ref(),
        );
        let params = retry.params.as_ref();
        let answered = keys(
            params
                .and_then(|it| member(it, &["inputResponses"]))
                .as_ref(),
        );
        let extra: Vec<&str> = answered.difference(&asked).map(String::as_str).collect();
        if !extra.is_empty() {
            let what = format!(
                "the retry of {} answers {:?}, which was not asked",
                describe(retry),
                bowline_core::shortened(extra.join(", "))
            );
            breaches.push(Breach::new(what, [before.line, retry.line]).of(retry.number));
        }
    }
}

fn keys(object: Option<&Json>) -> BTreeSet<String> {
    let object = object.and_then(|it| Object::read(it).ok());
    let keys = object
        .iter()
        .flat_map(Object::iter)
        .map(|(key, _)| key.to_owned());
    keys.collect()
}
