//! An extension of a third party, on both sides: tickets. It has methods, a result type of its own, settings of tools,
//! an interceptor, subscriptions and a header rule.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bowline::client::{Change, ClientExtension, ExtensionCall, ExtensionResult};
use bowline::exchange::{BoxFuture, Outcome, Request};
use bowline::server::{
    ExtensionMethod, ExtensionSubscription, ServerExtension, ToolCall, ToolSettings, WeakServer,
};
use bowline::testing::{MatrixCase, TestTransport, matrix, scripted_client};
use bowline::types::SubscriptionFilter;
use bowline::{Client, Context, Error, ErrorCode, Json, RpcError, Server, Tool, tool};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

const ID: &str = "com.example/tickets";

/// The server side: a call of a tool with [`Queued`] is answered with a ticket, which is redeemed for its result.
#[derive(Clone, Default)]
struct Counters(Arc<CountersState>);

#[derive(Default)]
struct CountersState {
    results: Mutex<BTreeMap<String, Json>>,
    printed: watch::Sender<usize>,
    background: Mutex<Vec<String>>,
}

/// The settings of a tool.
struct Queued {
    counter: char,
    insists: bool,
}

impl ToolSettings for Queued {
    const EXTENSION: &'static str = ID;

    fn requires_extension(&self) -> bool {
        self.insists
    }
}

#[derive(Deserialize)]
struct Ticket {
    ticket: String,
}

impl ServerExtension for Counters {
    fn id(&self) -> &str {
        ID
    }

    fn settings(&self) -> Json {
        json!({"counters": 2}).into()
    }

    fn methods(&self) -> Vec<ExtensionMethod> {
        vec![ExtensionMethod::new("tickets/redeem").name_member("ticket")]
    }

    fn respond<'a>(&'a self, request: Request, _: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let params = Json::from(request.params);
            let Ticket { ticket } = params.decode().map_err(bowline::invalid_params)?;
            let result = self.0.results.lock().unwrap().remove(&ticket);
            let unknown = || RpcError::new(ErrorCode::INVALID_PARAMS, "unknown ticket");
            result.ok_or_else(unknown)
        })
    }

    fn call_tool<'a>(&'a self, call: ToolCall, cx: Context) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Some(queued) = call.tool().settings::<Queued>() else {
                return call.run(cx).await;
            };
            let counter = queued.counter;
            assert_eq!(call.name(), "stamp");
            let result = call.run(cx).await?;
            let mut results = self.0.results.lock().unwrap();
            let ticket = format!("{counter}{}", results.len() + 1);
            results.insert(ticket.clone(), result);
            self.0.printed.send_modify(|printed| *printed += 1);
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
        let mut printed = self.0.printed.subscribe();
        Box::pin(async move {
            let accepted = filter.clone();
            Ok(ExtensionSubscription::new(
                accepted,
                |notifier| async move {
                    while printed.changed().await.is_ok() {
                        let count = *printed.borrow_and_update();
                        notifier.notify("notifications/tickets", json!({"printed": count}).into());
                    }
                },
            ))
        })
    }

    fn background(&self, server: WeakServer) -> Option<BoxFuture<'static, ()>> {
        let state = self.0.clone();
        Some(Box::pin(async move {
            let name = server.upgrade().map(|server| server.tools().names());
            state.background.lock().unwrap().push(format!("{name:?}"));
        }))
    }
}

/// The client side: redeems tickets.
struct Tickets;

impl ClientExtension for Tickets {
    fn id(&self) -> &str {
        ID
    }

    fn name_members(&self) -> &[(&str, &str)] {
        &[("tickets/redeem", "ticket")]
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

/// Stamps a form, at counter B.
#[tool(settings(Queued { counter: 'B', insists: false }))]
async fn stamp(form: String) -> String {
    format!("{form}, stamped")
}

fn server(counters: &Counters) -> Server {
    let insists = Queued {
        counter: 'A',
        insists: true,
    };
    let server = Server::new("office", "1")
        .tool(stamp)
        .tool(Tool::new("smile", async || "smiled"))
        .tool(Tool::new("marry", async || "married").with_settings(insists))
        .extension(counters.clone());
    server.check().unwrap();
    server
}

fn modern() -> impl Iterator<Item = MatrixCase> {
    matrix().filter(|case| case.dialect.is_modern())
}

fn rpc_error(error: Error) -> RpcError {
    match error {
        Error::Rpc(error) => error,
        other => panic!("expected a JSON-RPC error, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_of_both_sides_works_on_every_transport() {
    for case in modern() {
        let counters = Counters::default();
        let server = server(&counters);
        let client = case
            .serve(&server)
            .connect
            .extension(Tickets)
            .await
            .unwrap();

        let discovered = client.request_raw("server/discover", ()).await.unwrap();
        let discovered: Value = discovered.decode().unwrap();
        let extensions = &discovered["capabilities"]["extensions"];
        assert_eq!(*extensions, json!({(ID): {"counters": 2}}), "{case}");
        let stamped = client.call_tool("stamp", json!({"form": "27b"})).await;
        assert_eq!(stamped.unwrap().text(), "27b, stamped", "{case}");
        // The ticket was redeemed, over HTTP with the header that mirrors it.
        assert!(counters.0.results.lock().unwrap().is_empty(), "{case}");
        assert_eq!(*counters.0.printed.borrow(), 1, "{case}");
        assert_eq!(
            client.call_tool("smile", ()).await.unwrap().text(),
            "smiled",
            "{case}"
        );
        let unknown = client
            .request_raw("tickets/redeem", json!({"ticket": "C1"}))
            .await;
        assert_eq!(
            rpc_error(unknown.unwrap_err()).message,
            "unknown ticket",
            "{case}"
        );
        // In process nothing has been waited for yet.
        tokio::task::yield_now().await;
        assert_eq!(counters.0.background.lock().unwrap().len(), 1, "{case}");
    }
}

fn printed_tickets() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter
        .other
        .insert("printedTickets".to_owned(), json!(true));
    filter
}

#[tokio::test(start_paused = true)]
async fn notifications_of_an_extension_reach_its_subscribers() {
    for case in modern() {
        let counters = Counters::default();
        let server = server(&counters);
        let client = case
            .serve(&server)
            .connect
            .extension(Tickets)
            .await
            .unwrap();
        let mut subscription = client.subscribe(printed_tickets()).await.unwrap();
        let accepted = &subscription.acknowledged_filter().other;
        assert_eq!(accepted["printedTickets"], json!(true), "{case}");

        client
            .call_tool("stamp", json!({"form": "27b"}))
            .await
            .unwrap();

        let Ok(Some(Change::Other(notification))) = subscription.next().await else {
            panic!("expected a notification of the extension, {case}");
        };
        assert_eq!(notification.method, "notifications/tickets", "{case}");
        let params: Value = notification.params.unwrap().decode().unwrap();
        assert_eq!(params["printed"], 1, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_did_not_declare_the_extension_cannot_use_it() {
    let required = json!({"requiredCapabilities": {"extensions": {(ID): {}}}});
    for case in matrix() {
        let counters = Counters::default();
        let server = server(&counters);
        let client: Client = case.serve(&server).connect.await.unwrap();

        let stamped = client.call_tool("stamp", json!({"form": "27b"})).await;
        assert_eq!(stamped.unwrap().text(), "27b, stamped", "{case}");
        assert_eq!(*counters.0.printed.borrow(), 0, "{case}");
        let marry = rpc_error(client.call_tool("marry", ()).await.unwrap_err());
        let missing = case
            .dialect
            .error_code(ErrorCode::MISSING_CLIENT_CAPABILITY);
        assert_eq!(marry.code, missing, "{case}");
        let redeem = client.request_raw("tickets/redeem", json!({"ticket": "B1"}));
        let redeem = rpc_error(redeem.await.unwrap_err());
        if !case.dialect.is_modern() {
            assert_eq!(redeem.code, ErrorCode::METHOD_NOT_FOUND, "{case}");
            continue;
        }
        let listen = rpc_error(client.subscribe(printed_tickets()).await.unwrap_err());
        let is_http = matches!(case.transport, TestTransport::Http | TestTransport::Http2);
        let mut errors = vec![marry, listen];
        if is_http {
            // Such a client does not know the header rule either, which is checked first.
            assert_eq!(redeem.code.0, -32020, "{case}");
        } else {
            errors.push(redeem);
        }
        for error in errors {
            assert_eq!(error.code, ErrorCode::MISSING_CLIENT_CAPABILITY, "{case}");
            let data: Value = error.data.unwrap().decode().unwrap();
            assert_eq!(data, required, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_has_the_result_type_of_the_extension_on_the_wire() {
    let server = server(&Counters::default());
    let mut client = scripted_client(&server);
    let modern = matrix().next().unwrap().dialect;
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"extensions": {(ID): {}}}});
    let params = json!({"name": "stamp", "arguments": {"form": "27b"}, "_meta": meta});

    client.request(modern, 1, "tools/call", params);
    let answer = client.next_message().await;

    assert_eq!(answer["result"]["resultType"], "ticket");
    assert_eq!(answer["result"]["ticket"], "B1");
}

/// Posts `tickets/redeem` for ticket B1 with an `Mcp-Name`; returns the status line and the body.
async fn redeem_over_http(server: &Server, name: Option<&str>) -> (String, Value) {
    let service = server.http();
    let (mut near, far) = tokio::io::duplex(64 * 1024);
    tokio::spawn(async move { service.serve_connection(far).await });
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {(ID): {}}},
    });
    let params = json!({"ticket": "B1", "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tickets/redeem", "params": params});
    let body = body.to_string();
    let name = name.map(|name| format!("mcp-name: {name}\r\n"));
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tickets/redeem\r\n{}content-length: {}\r\nconnection: close\r\n\r\n",
        name.unwrap_or_default(),
        body.len()
    );
    near.write_all(head.as_bytes()).await.unwrap();
    near.write_all(body.as_bytes()).await.unwrap();
    let mut response = String::new();
    near.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap().to_owned();
    (status, serde_json::from_str(body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_header_that_mirrors_a_member_must_match_it() {
    let server = server(&Counters::default());

    let (status, answer) = redeem_over_http(&server, Some("B1")).await;
    assert_eq!(answer["error"]["message"], "unknown ticket", "{status}");

    for name in [None, Some("B2")] {
        let (status, answer) = redeem_over_http(&server, name).await;

        assert_eq!(status, "HTTP/1.1 400 Bad Request");
        assert_eq!(answer["error"]["code"], -32020, "{name:?}");
    }
}

#[test]
fn the_settings_of_a_tool_need_their_extension() {
    let error = Server::new("office", "1").tool(stamp).check().unwrap_err();

    assert!(error.to_string().contains(ID), "{error}");
}
