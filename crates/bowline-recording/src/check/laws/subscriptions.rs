//! Laws about `subscriptions/listen`.

use bowline_types::{Json, RequestId, meta_key};

use super::{Breach, Breaches, CheckContext, Law, SUBSCRIPTIONS, must};
use crate::timeline::member;
use crate::{Exchange, ExchangeNotification, Side};

pub(super) const LAWS: &[Law] = &[
    must(
        "subscription-acknowledged",
        SUBSCRIPTIONS,
        "the first message of a subscription acknowledges it",
        subscription_acknowledged,
    ),
    must(
        "subscription-filter",
        SUBSCRIPTIONS,
        "a subscription delivers what its filter asks for",
        subscription_filter,
    ),
    must(
        "subscription-id",
        SUBSCRIPTIONS,
        "messages of a subscription have the id of its request, with its JSON type",
        subscription_id,
    ),
    must(
        "subscription-changes-only",
        SUBSCRIPTIONS,
        "progress and log messages are not sent on a subscription",
        subscription_changes_only,
    ),
];

fn subscriptions<'a>(context: &'a CheckContext<'_>) -> impl Iterator<Item = &'a Exchange> {
    context
        .exchanges()
        .filter(|it| it.is_subscription() && it.from == Side::Client)
}

fn messages(exchange: &Exchange) -> impl Iterator<Item = &ExchangeNotification> {
    exchange.notifications.iter()
}

fn subscription_acknowledged(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in subscriptions(context) {
        let first = messages(exchange).next();
        let what = match first {
            Some(first) if first.method == ACKNOWLEDGED => continue,
            Some(first) => {
                let what = format!("the first message of a subscription is {}", first.method);
                Breach::new(what, [exchange.line, first.line])
            }
            // An error or a refusal needs no acknowledgement, and a subscription may be given up before it.
            None if exchange
                .answer
                .as_ref()
                .is_some_and(|answer| answer.outcome.is_ok()) =>
            {
                Breach::new(
                    "a subscription ended without an acknowledgement",
                    [exchange.line],
                )
            }
            None => continue,
        };
        breaches.push(what.of(exchange.number));
    }
}

fn subscription_filter(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in subscriptions(context) {
        let params = exchange.params.as_ref();
        let filter = params.and_then(|params| member(params, &["notifications"]));
        let is_on = |name: &str| {
            let value = filter.as_ref().and_then(|filter| member(filter, &[name]));
            value.is_some_and(|value| value.as_str() == "true")
        };
        let has_some = |name: &str| {
            let value = filter.as_ref().and_then(|filter| member(filter, &[name]));
            value.is_some_and(|it| it.decode::<Vec<Json>>().is_ok_and(|list| !list.is_empty()))
        };
        for message in messages(exchange) {
            let is_wanted = match message.method.as_str() {
                "notifications/tools/list_changed" => is_on("toolsListChanged"),
                "notifications/prompts/list_changed" => is_on("promptsListChanged"),
                "notifications/resources/list_changed" => is_on("resourcesListChanged"),
                "notifications/resources/updated" => has_some("resourceSubscriptions"),
                "notifications/tasks" => has_some("taskIds"),
                _ => true,
            };
            if !is_wanted {
                let what = format!("{} was not subscribed to", message.method);
                let lines = [exchange.line, message.line];
                breaches.push(Breach::new(what, lines).of(exchange.number));
            }
        }
    }
}

fn subscription_id(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for exchange in subscriptions(context) {
        for message in messages(exchange) {
            let path = ["_meta", meta_key::SUBSCRIPTION_ID];
            let id = message.params.as_ref().and_then(|it| member(it, &path));
            let id: Option<RequestId> = id.and_then(|id| id.decode().ok());
            let what = match id {
                Some(id) if id == exchange.id => continue,
                Some(id) => format!(
                    "{} has the subscription id {id}, not {}",
                    message.method, exchange.id
                ),
                None => format!("{} has no subscription id", message.method),
            };
            let lines = [exchange.line, message.line];
            breaches.push(Breach::new(what, lines).of(exchange.number));
        }
    }
}

fn subscription_changes_only(context: &CheckContext<'_>, breaches: &mut Breaches) {
    for message in context
        .notifications
        .iter()
        .filter(|it| it.from == Side::Server)
    {
        if !matches!(
            message.method.as_str(),
            "notifications/progress" | "notifications/message"
        ) {
            continue;
        }
        let http = message
            .http_exchange
            .and_then(|it| context.timeline.http_exchange(it));
        let carried = http.and_then(|http| http.requests.first().copied());
        let number = carried.or(message.exchange);
        let exchange = number.and_then(|number| context.timeline.exchange(number));
        if let Some(exchange) = exchange.filter(|it| it.is_subscription()) {
            let what = format!("{} was sent on a subscription", message.method);
            let lines = [exchange.line, message.line];
            breaches.push(Breach::new(what, lines).of(exchange.number));
        }
    }
}

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
