//! An extension that the bridge does not know: its capability, method, notifications and result type.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bowline::client::{Change, ClientExtension, ExtensionCall, ExtensionResult};
use bowline::exchange::{BoxFuture, Outcome, Request};
use bowline::prelude::*;
use bowline::server::{ExtensionMethod, ExtensionSubscription, ServerExtension, ToolCall};
use bowline::types::SubscriptionFilter;
use bowline::{Error, ErrorCode, Json, RpcError};
use bowline_bridge::Target;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{LEGACY, MODERN, bridges, http_target, over_http};

const ID: &str = "com.example/tickets";

/// Answers a call with a ticket, which is redeemed for its result.
#[derive(Clone, Default)]
struct Counter {
    results: Arc<Mutex<BTreeMap<String, Json>>>,
    printed: watch::Sender<usize>,
}

#[derive(Deserialize)]
struct Ticket {
    ticket: String,
}

impl ServerExtension for Counter {
    fn id(&self) -> &str {
        ID
    }

    fn settings(&self) -> Json {
        json!({"counters": 2}).into()
    }

    fn methods(&self) -> Vec<ExtensionMethod> {
        vec![ExtensionMethod::new("tickets/redeem")]
    }

    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let params = Json::from(request.params);
            let Ticket { ticket } = params.decode().map_err(bowline::invalid_params)?;
            let result = self.results.lock().unwrap().remove(&ticket);
            result.ok_or_else(|| RpcError::new(ErrorCode::INVALID_PARAMS, "unknown ticket"))
        })
    }

    fn call_tool<'a>(&'a self, call: ToolCall, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let result = call.run(cx).await?;
            let mut results = self.results.lock().unwrap();
            let ticket = format!("B{}", results.len() + 1);
            results.insert(ticket.clone(), result);
            self.printed.send_modify(|printed| *printed += 1);
            Ok(json!({"resultType": "ticket", "ticket": ticket}).into())
        })
    }

    fn filter_members(&self) -> &[&str] {
        &["printedTickets"]
    }

    fn subscribe<'a>(
        &'a self,
        filter: BTreeMap<String, Json>,
        _: Context,
    ) -> BoxFuture<'a, Result<ExtensionSubscription, RpcError>> {
        let mut printed = self.printed.subscribe();
        Box::pin(async move {
            Ok(ExtensionSubscription::new(filter, |notifier| async move {
                while printed.changed().await.is_ok() {
                    let count = *printed.borrow_and_update();
                    notifier.notify("notifications/tickets", json!({"printed": count}).into());
                }
            }))
        })
    }
}

/// Redeems tickets.
struct Tickets;

impl ClientExtension for Tickets {
    fn id(&self) -> &str {
        ID
    }

    fn result_types(&self) -> &[(&str, &str)] {
        &[("ticket", "tools/call")]
    }

    fn complete(
        &self,
        result: ExtensionResult,
        cx: ExtensionCall,
    ) -> BoxFuture<'static, bowline::Result<Json>> {
        Box::pin(async move {
            let Ticket { ticket } = result.decode()?;
            let params = json!({"ticket": ticket});
            let redeemed = cx.client().request_raw("tickets/redeem", params).await?;
            Ok(redeemed.json().clone())
        })
    }
}

fn server(counter: &Counter) -> Server {
    Server::new("office", "1.0.0")
        .tool(Tool::new("stamp", async || "stamped"))
        .extension(counter.clone())
}

/// A server over a wire, which the bridge takes to keep state.
fn wire_target(server: &Server, version: &'static str) -> Target {
    let server = server.clone();
    Target::new("up", move |_| {
        let (near, far) = bowline::wire::memory();
        tokio::spawn(server.clone().serve(far));
        Ok(Client::from_wire(near).protocol_version(version))
    })
}

async fn extensions(client: &Client) -> Value {
    let introduction = client.request_raw("server/discover", ()).await.unwrap();
    let introduction: Value = introduction.decode().unwrap();
    introduction["capabilities"]["extensions"].clone()
}

#[tokio::test(start_paused = true)]
async fn an_extension_of_both_sides_passes_between_modern_ones() {
    for is_http in [true, false] {
        let counter = Counter::default();
        let target = match is_http {
            true => http_target(&server(&counter), MODERN),
            false => wire_target(&server(&counter), MODERN),
        };
        for bridge in bridges(&target) {
            let printed = *counter.printed.borrow();
            let client = over_http(&bridge.http()).protocol_version(MODERN);
            let client = client.extension(Tickets).await.unwrap();
            let mut filter = SubscriptionFilter::default();
            let member = "printedTickets".to_owned();
            filter.other.insert(member, json!(true));

            assert_eq!(extensions(&client).await, json!({(ID): {"counters": 2}}));
            let mut changes = client.subscribe(filter).await.unwrap();
            let accepted = &changes.acknowledged_filter().other;
            assert_eq!(accepted["printedTickets"], json!(true));
            let stamped = client.call_tool("stamp", ()).await.unwrap();
            let change = changes.next().await;

            assert_eq!(stamped.text(), "stamped");
            assert!(counter.results.lock().unwrap().is_empty(), "redeemed");
            let Ok(Some(Change::Other(notification))) = change else {
                panic!("expected a notification of the extension, got {change:?}");
            };
            assert_eq!(notification.method, "notifications/tickets");
            let params: Value = notification.params.unwrap().decode().unwrap();
            assert_eq!(params["printed"], printed + 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_did_not_declare_the_extension_gets_plain_results() {
    let counter = Counter::default();
    for bridge in bridges(&http_target(&server(&counter), MODERN)) {
        let client = over_http(&bridge.http()).protocol_version(MODERN);
        let client = client.await.unwrap();

        let stamped = client.call_tool("stamp", ()).await.unwrap();
        let refused = client.request_raw("tickets/redeem", json!({"ticket": "B1"}));

        assert_eq!(stamped.text(), "stamped");
        let Err(Error::Rpc(refused)) = refused.await else {
            panic!("expected a refusal");
        };
        assert_eq!(refused.code, ErrorCode::MISSING_CLIENT_CAPABILITY);
    }
}

#[tokio::test(start_paused = true)]
async fn between_eras_calls_work_without_the_extension_and_its_methods_are_refused() {
    // A modern server tells a legacy client, which cannot declare the extension, what it lacks.
    for (front, back, expected) in [
        (LEGACY, MODERN, ErrorCode::INVALID_PARAMS),
        (MODERN, LEGACY, ErrorCode::METHOD_NOT_FOUND),
        (LEGACY, LEGACY, ErrorCode::METHOD_NOT_FOUND),
    ] {
        let counter = Counter::default();
        for bridge in bridges(&http_target(&server(&counter), back)) {
            let client = over_http(&bridge.http()).protocol_version(front);
            let client = client.extension(Tickets).await.unwrap();

            let stamped = client.call_tool("stamp", ()).await.unwrap();
            let refused = client.request_raw("tickets/redeem", json!({"ticket": "B1"}));

            let what = format!("{front} → {back}");
            assert_eq!(stamped.text(), "stamped", "{what}");
            let Err(Error::Rpc(refused)) = refused.await else {
                panic!("expected a refusal, {what}");
            };
            assert_eq!(refused.code, expected, "{what}");
        }
    }
}
