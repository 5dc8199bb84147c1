//! Opens an event stream, and observes whether its first event arrives while the stream is open.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::http::{Endpoint, HttpLink, Outgoing};

/// What was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamFacts {
    /// The first bytes arrived while the stream was open.
    Streamed,
    /// The head of the response arrived, and the version requires no event.
    Opened,
    /// The server offers no stream.
    NotOffered(String),
    /// The head of the response did not arrive.
    NoHead(Duration),
    /// The head arrived, and the first event did not.
    NoEvent(Duration),
    /// The first event arrived together with the end.
    OnlyWithEnd,
    Failed(String),
}

/// Opens a modern subscription, which the server must acknowledge at once. `capabilities` are those of the server.
pub(crate) async fn examine_subscription(
    link: &mut HttpLink<'_>,
    capabilities: &Value,
) -> StreamFacts {
    let Some(filter) = filter(capabilities) else {
        return StreamFacts::NotOffered("the server declares no subscriptions".to_owned());
    };
    let (_, outgoing) = link.prepare("subscriptions/listen", json!({"notifications": filter}));
    open(link.endpoint, &outgoing, FirstEvent::Required).await
}

/// Opens the stream of a legacy server for messages that belong to no request.
pub(crate) async fn examine_get_stream(link: &HttpLink<'_>) -> StreamFacts {
    let mut outgoing = Outgoing::new(Method::GET).with("accept", "text/event-stream");
    outgoing.headers.extend(link.state_headers.clone());
    open(link.endpoint, &outgoing, FirstEvent::Optional).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstEvent {
    Required,
    Optional,
}

async fn open(endpoint: &Endpoint, outgoing: &Outgoing, first: FirstEvent) -> StreamFacts {
    let limit = endpoint.patience.stream;
    let deadline = Instant::now() + limit;
    let (response, _connection) = match timeout_at(deadline, endpoint.start(outgoing)).await {
        Err(_) => return StreamFacts::NoHead(limit),
        Ok(Err(failure)) => return StreamFacts::Failed(failure.to_string()),
        Ok(Ok(started)) => started,
    };
    let media = response.headers().get(http::header::CONTENT_TYPE);
    let media = media.and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !response.status().is_success() || !media.starts_with("text/event-stream") {
        return StreamFacts::NotOffered(format!("status {}", response.status().as_u16()));
    }
    if first == FirstEvent::Optional {
        return StreamFacts::Opened;
    }
    let mut body = response.into_body();
    match timeout_at(deadline, body.frame()).await {
        Err(_) => StreamFacts::NoEvent(limit),
        Ok(Some(Ok(_))) => StreamFacts::Streamed,
        Ok(None) => StreamFacts::OnlyWithEnd,
        Ok(Some(Err(error))) => StreamFacts::Failed(error.to_string()),
    }
}

/// Returns a filter for what the server can notify of.
fn filter(capabilities: &Value) -> Option<Map<String, Value>> {
    let mut filter = Map::new();
    for (capability, member) in LISTS {
        if capabilities[capability]["listChanged"] == true {
            filter.insert(member.to_owned(), json!(true));
        }
    }
    (!filter.is_empty()).then_some(filter)
}

const LISTS: [(&str, &str); 3] = [
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_asks_for_what_the_server_declares() {
        let capabilities = json!({"tools": {"listChanged": true}, "prompts": {}});

        let found = filter(&capabilities).unwrap();

        assert_eq!(Value::Object(found), json!({"toolsListChanged": true}));
        assert_eq!(filter(&json!({"tools": {}})), None);
    }
}
