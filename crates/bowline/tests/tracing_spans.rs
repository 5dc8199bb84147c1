//! The spans of `tracing`: the names of the conventions, without any configuration.
//!
//! Its own program: requests of other tests, which have no subscriber, would disable the spans for all threads.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use bowline::exchange::{Outcome, Principal, Request};
use bowline::layer::Next;
use bowline::telemetry::names::attribute as names;
use bowline::testing::matrix;
use bowline::{Server, Tool};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

fn server() -> Server {
    Server::new("calculator", "1.0.0").tool(Tool::new("add", async || 3))
}

/// One test at a time has a subscriber.
static SUBSCRIBER: Mutex<()> = Mutex::new(());

/// Keeps the fields of all spans of the target `bowline::request`, with their name.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    all: Vec<SpanFields>,
    /// The index of the last span with an id: ids are used again.
    by_id: BTreeMap<u64, usize>,
}

type SpanFields = (&'static str, BTreeMap<String, String>);

impl Spans {
    /// Runs a future with this layer as the subscriber of its thread.
    fn observe(&self, future: impl Future<Output = ()>) -> Vec<SpanFields> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _one = SUBSCRIBER.lock().unwrap_or_else(PoisonError::into_inner);
        let subscriber = tracing_subscriber::registry().with(self.clone());
        with_default(subscriber, || runtime.block_on(future));
        self.0.lock().unwrap().all.clone()
    }
}

impl<S: Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        if span.metadata().target() == "bowline::request" {
            let mut collected = self.0.lock().unwrap();
            let index = collected.all.len();
            collected.by_id.insert(id.into_u64(), index);
            collected
                .all
                .push((span.metadata().name(), BTreeMap::new()));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let collected = &mut *self.0.lock().unwrap();
        if let Some(&index) = collected.by_id.get(&id.into_u64()) {
            values.record(&mut Fields(&mut collected.all[index].1));
        }
    }
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
        let spans = Spans::default().observe(async {
            let client = case.serve(&server()).connect.await.unwrap();
            client.call_tool("add", ()).await.unwrap();
            client.call_tool("missing", ()).await.unwrap_err();
        });

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
    let spans = Spans::default().observe(async {
        let server = server().layer(as_ada);
        let client = bowline::Client::in_process(&server).await.unwrap();
        client.call_tool("add", ()).await.unwrap();
    });

    let handled = spans.iter().filter(|(name, _)| *name == "mcp.server");
    let principals = handled.map(|(_, fields)| fields.get(names::ENDUSER_ID).cloned());
    assert!(principals.clone().count() >= 1);
    assert!(
        principals
            .into_iter()
            .all(|it| it.as_deref() == Some("ada"))
    );
}
