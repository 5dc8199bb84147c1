//! The spans of `tracing`: the same names, without any configuration.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use bowline::exchange::{Outcome, Principal, Request};
use bowline::layer::Next;
use bowline::telemetry::names::attribute as names;
use bowline::testing::matrix;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Subscriber, with_default};
use tracing::{Event, Metadata};

use super::server;

/// Keeps the fields of all spans of the target `bowline::request`, with their name.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(&'static str, BTreeMap<String, String>)>>>);

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == "bowline::request"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.0.lock().unwrap();
        spans.push((span.metadata().name(), BTreeMap::new()));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.0.lock().unwrap();
        let index = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut Fields(&mut spans[index].1));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

#[test]
fn a_request_has_a_span_with_its_fields_on_both_sides_of_every_transport() {
    for case in matrix() {
        let spans = Spans::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        with_default(spans.clone(), || {
            runtime.block_on(async {
                let client = case.serve(&server()).connect.await.unwrap();
                client
                    .call_tool("add", json!({"a": 1, "b": 2}))
                    .await
                    .unwrap();
                client.call_tool("missing", ()).await.unwrap_err();
            });
        });

        let spans = spans.0.lock().unwrap();
        for name in ["mcp.client", "mcp.server"] {
            let call = |tool: &str| {
                let is_call = |fields: &BTreeMap<String, String>| {
                    fields
                        .get(names::GEN_AI_TOOL_NAME)
                        .is_some_and(|it| it == tool)
                };
                let found = spans
                    .iter()
                    .find(|(own, fields)| *own == name && is_call(fields));
                found
                    .map(|(_, fields)| fields)
                    .unwrap_or_else(|| panic!("{case}: no {name}"))
            };
            let add = call("add");
            assert_eq!(add[names::MCP_METHOD_NAME], "tools/call", "{case}");
            assert_eq!(
                add[names::MCP_PROTOCOL_VERSION],
                case.dialect.version,
                "{case}"
            );
            assert!(
                add.contains_key(names::NETWORK_TRANSPORT),
                "{case}: {add:?}"
            );
            assert!(
                add.contains_key(names::JSONRPC_REQUEST_ID),
                "{case}: {add:?}"
            );
            assert!(!add.contains_key(names::ERROR_TYPE), "{case}: {add:?}");
            let code = &call("missing")[names::RPC_RESPONSE_STATUS_CODE];
            assert_eq!(code, "-32602", "{case}");
        }
    }
}

#[test]
fn a_principal_that_a_layer_sets_is_recorded() {
    async fn as_ada(request: Request, next: Next) -> Outcome {
        next.with_principal(Principal::named("ada"))
            .run(request)
            .await
    }
    let spans = Spans::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    with_default(spans.clone(), || {
        runtime.block_on(async {
            let server = server().layer(as_ada);
            let client = bowline::Client::in_process(&server).await.unwrap();
            client
                .call_tool("add", json!({"a": 1, "b": 2}))
                .await
                .unwrap();
        });
    });

    let spans = spans.0.lock().unwrap();
    let handled = spans.iter().filter(|(name, _)| *name == "mcp.server");
    let principals = handled.map(|(_, fields)| fields.get(names::ENDUSER_ID).cloned());
    assert!(principals.clone().count() >= 1);
    assert!(
        principals
            .into_iter()
            .all(|it| it.as_deref() == Some("ada"))
    );
}
