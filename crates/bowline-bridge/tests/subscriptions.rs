//! Subscriptions of modern clients at servers with state, of which each connection may be a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::client::{Change, ChangeFilter, Host};
use bowline::prelude::*;
use bowline::server::{ChangeBus, LocalChangeBus, ServerChange};
use bowline::types::ElicitResult;
use bowline_bridge::{Bridge, Target};
use serde_json::json;

/// Starts a server that announces the changes of one process.
fn start_process() -> Server {
    let bus = LocalChangeBus::default();
    let announced = bus.clone();
    let change = move || {
        let bus = announced.clone();
        async move {
            bus.publish(ServerChange::Tools);
            "changed"
        }
    };
    Server::new("process", "1")
        .change_bus(bus)
        .tool(Tool::new("change", change))
}

#[tokio::test]
async fn a_call_changes_what_the_subscription_of_its_client_reports() {
    let started = Arc::new(AtomicUsize::new(0));
    let counted = started.clone();
    let target = Target::new("process", move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(Client::in_process(&start_process()).protocol_version("2025-11-25"))
    });
    // A client that can be asked: each of its calls has a connection to itself.
    let host = Host::new().elicitation(async |_| ElicitResult::accept(json!({})));
    let client = Client::in_process(&Bridge::new(target))
        .protocol_version("2026-07-28")
        .host(host);
    let client = client.await.unwrap();
    let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

    client.call_tool("change", ()).await.unwrap();

    assert_eq!(started.load(Ordering::SeqCst), 1);
    assert_eq!(changes.next().await.unwrap(), Some(Change::Tools));
}
