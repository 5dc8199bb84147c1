//! Abandoning a call during an elicitation stops its handler and its host.

use std::time::Duration;

use bowline::client::Host;
use bowline::types::{CallToolResult, ElicitResult};
use bowline::{Call, Client, Context, RpcError, Server, Tool, wire};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{LEGACY, MODERN, SentMessages, TextForm, TransportKind, connect, record_sent};

/// Sends an event when it is dropped.
struct SendOnDrop(&'static str, UnboundedSender<&'static str>);

impl Drop for SendOnDrop {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

/// The events of a handler and a host, in order.
struct EventLog(
    UnboundedSender<&'static str>,
    UnboundedReceiver<&'static str>,
);

impl EventLog {
    fn new() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self(sender, receiver)
    }

    async fn next(&mut self) -> &'static str {
        self.1.recv().await.unwrap()
    }

    /// A server with a tool that elicits and sends an event when its handler is dropped.
    fn server(&self) -> Server {
        let sender = self.0.clone();
        let ask = Tool::raw("ask", json!({"type": "object"}), move |_, cx: Context| {
            let dropped = SendOnDrop("handler dropped", sender.clone());
            async move {
                let answer: TextForm = cx.elicit("name", "Who?").await.map_err(RpcError::from)?;
                drop(dropped);
                Ok(CallToolResult::text(answer.text))
            }
        });
        let echo = Tool::raw("echo", json!({"type": "object"}), async |_, _| {
            Ok(CallToolResult::text("still here"))
        });
        Server::new("asking", "1.0.0").tool(ask).tool(echo)
    }

    /// A host that never answers, and sends events when it starts and when it is dropped.
    fn host(&self) -> Host {
        let sender = self.0.clone();
        Host::new().elicitation(move |_| {
            let dropped = SendOnDrop("host dropped", sender.clone());
            sender.send("asked").unwrap();
            async move {
                std::future::pending::<()>().await;
                drop(dropped);
                ElicitResult::accept(json!({"text": "too late"}))
            }
        })
    }
}

/// Polls a call until the host has received its elicitation.
async fn poll_until_asked(events: &mut EventLog, call: &mut Call) {
    loop {
        tokio::select! {
            outcome = &mut *call => panic!("{outcome:?}"),
            event = events.next() => if event == "asked" { return },
        }
    }
}

async fn over_recorded_wire(
    events: &EventLog,
    version: &str,
) -> (Client, SentMessages, SentMessages) {
    let (near, far) = wire::memory();
    let (near, to_server) = record_sent(near);
    let (far, to_client) = record_sent(far);
    tokio::spawn(events.server().serve(far));
    let connect = Client::from_wire(near)
        .protocol_version(version)
        .host(events.host());
    (connect.await.unwrap(), to_server, to_client)
}

#[tokio::test(start_paused = true)]
async fn a_legacy_call_dropped_during_an_elicitation_is_cancelled_once_in_each_direction() {
    let mut events = EventLog::new();
    let (client, to_server, to_client) = over_recorded_wire(&events, LEGACY).await;
    let mut call = client.call_tool("ask", ()).start();
    poll_until_asked(&mut events, &mut call).await;

    drop(call);

    assert_eq!(
        [events.next().await, events.next().await],
        ["handler dropped", "host dropped"]
    );
    assert_eq!(
        client.call_tool("echo", ()).await.unwrap().text(),
        "still here"
    );
    assert_eq!(to_server.count("notifications/cancelled"), 1);
    assert_eq!(
        to_client.methods(),
        ["elicitation/create", "notifications/cancelled"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_modern_call_dropped_while_the_host_decides_drops_the_host_and_sends_nothing() {
    let mut events = EventLog::new();
    let (client, to_server, to_client) = over_recorded_wire(&events, MODERN).await;
    let mut call = client.call_tool("ask", ()).start();
    poll_until_asked(&mut events, &mut call).await;
    let before = to_server.methods();

    drop(call);

    assert_eq!(events.next().await, "host dropped");
    assert_eq!(to_server.methods(), before);
    assert_eq!(to_client.methods(), [""; 0]);
    assert_eq!(
        client.call_tool("echo", ()).await.unwrap().text(),
        "still here"
    );
}

#[tokio::test(start_paused = true)]
async fn an_in_process_call_drops_its_handler_and_its_host() {
    for version in [MODERN, LEGACY] {
        let mut events = EventLog::new();
        let config = (version, TransportKind::InProcess);
        let client = connect(&events.server(), events.host(), config).await;
        let mut call = client.call_tool("ask", ()).start();
        poll_until_asked(&mut events, &mut call).await;

        drop(call);

        let mut gone = vec![events.next().await];
        gone.extend(std::iter::from_fn(|| events.1.try_recv().ok()));
        assert!(gone.contains(&"host dropped"), "{version}: {gone:?}");
        assert_eq!(gone.contains(&"handler dropped"), version == LEGACY);
    }
}

#[tokio::test(start_paused = true)]
async fn an_elicitation_that_a_legacy_handler_drops_is_cancelled_once() {
    let mut events = EventLog::new();
    let (near, far) = wire::memory();
    let (far, to_client) = record_sent(far);
    let patient = Tool::raw("ask", json!({"type": "object"}), async |_, cx| {
        let asked = cx.elicit::<TextForm>("name", "Who?");
        let answer = tokio::time::timeout(Duration::from_secs(1), asked).await;
        Ok(CallToolResult::text(
            answer.map_or("gave up", |_| "answered"),
        ))
    });
    tokio::spawn(Server::new("asking", "1.0.0").tool(patient).serve(far));
    let client = Client::from_wire(near)
        .protocol_version(LEGACY)
        .host(events.host())
        .await
        .unwrap();

    let reply = client.call_tool("ask", ()).await.unwrap();

    assert_eq!(reply.text(), "gave up");
    assert_eq!(
        [events.next().await, events.next().await],
        ["asked", "host dropped"]
    );
    assert_eq!(
        to_client.methods(),
        ["elicitation/create", "notifications/cancelled"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_legacy_elicitation_that_times_out_is_cancelled_and_fails_in_the_handler() {
    let mut events = EventLog::new();
    let (near, far) = wire::memory();
    let (far, to_client) = record_sent(far);
    let server = events
        .server()
        .client_request_timeout(Duration::from_secs(30));
    tokio::spawn(server.serve(far));
    let client = Client::from_wire(near)
        .protocol_version(LEGACY)
        .host(events.host())
        .await
        .unwrap();

    let error = client.call_tool("ask", ()).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "failed to get an answer to `name` (-32603)"
    );
    assert_eq!(events.next().await, "asked");
    let mut gone = [events.next().await, events.next().await];
    gone.sort_unstable();
    assert_eq!(gone, ["handler dropped", "host dropped"]);
    assert_eq!(to_client.count("notifications/cancelled"), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_the_client_drops_the_host() {
    for version in [MODERN, LEGACY] {
        let mut events = EventLog::new();
        let (client, ..) = over_recorded_wire(&events, version).await;
        let mut call = client.call_tool("ask", ()).start();
        poll_until_asked(&mut events, &mut call).await;

        drop(call);
        client.close().await.unwrap();

        let mut gone = Vec::new();
        while let Ok(event) = events.1.try_recv() {
            gone.push(event);
        }
        assert!(gone.contains(&"host dropped"), "{version}: {gone:?}");
    }
}
