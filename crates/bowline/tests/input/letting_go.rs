//! Letting go of a call in the middle of a question stops the work at both ends.

use std::time::Duration;

use bowline::client::Host;
use bowline::types::{CallToolResult, ElicitResult};
use bowline::{Call, Client, Context, Server, Tool, wire};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Carrier, LEGACY, MODERN, Said, Sent, connect, tap};

/// Says so when it is dropped.
struct Dropped(&'static str, UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

/// What begins and ends, in order.
struct Watch(
    UnboundedSender<&'static str>,
    UnboundedReceiver<&'static str>,
);

impl Watch {
    fn new() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self(sender, receiver)
    }

    async fn next(&mut self) -> &'static str {
        self.1.recv().await.unwrap()
    }

    /// A server whose one tool asks, and tells when its handler is dropped.
    fn server(&self) -> Server {
        let sender = self.0.clone();
        let ask = Tool::raw("ask", json!({"type": "object"}), move |_, cx: Context| {
            let dropped = Dropped("handler dropped", sender.clone());
            async move {
                let said: Said = cx.elicit("name", "Who?").await?;
                drop(dropped);
                Ok(CallToolResult::text(said.said))
            }
        });
        let echo = Tool::raw("echo", json!({"type": "object"}), async |_, _| {
            Ok(CallToolResult::text("still here"))
        });
        Server::new("asking", "1.0.0").tool(ask).tool(echo)
    }

    /// A host that never answers, and tells when it is asked and when it may stop.
    fn host(&self) -> Host {
        let sender = self.0.clone();
        Host::new().elicitation(move |_| {
            let dropped = Dropped("host dropped", sender.clone());
            sender.send("asked").unwrap();
            async move {
                std::future::pending::<()>().await;
                drop(dropped);
                ElicitResult::accept(json!({"said": "too late"}))
            }
        })
    }
}

/// Runs a call until its question is with the host.
async fn until_asked(watch: &mut Watch, call: &mut Call) {
    loop {
        tokio::select! {
            outcome = &mut *call => panic!("{outcome:?}"),
            event = watch.next() => if event == "asked" { return },
        }
    }
}

async fn over_tapped_wire(watch: &Watch, version: &str) -> (Client, Sent, Sent) {
    let (near, far) = wire::memory();
    let (near, to_server) = tap(near);
    let (far, to_client) = tap(far);
    tokio::spawn(watch.server().serve(far));
    let connect = Client::over(near).speaking(version).host(watch.host());
    (connect.await.unwrap(), to_server, to_client)
}

#[tokio::test(start_paused = true)]
async fn a_legacy_call_that_is_dropped_mid_question_is_cancelled_once_in_each_direction() {
    let mut watch = Watch::new();
    let (client, to_server, to_client) = over_tapped_wire(&watch, LEGACY).await;
    let mut call = client.call_tool("ask", ()).start();
    until_asked(&mut watch, &mut call).await;

    drop(call);

    assert_eq!(
        [watch.next().await, watch.next().await],
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
async fn a_modern_call_that_is_dropped_while_the_host_decides_drops_the_host_and_sends_nothing() {
    let mut watch = Watch::new();
    let (client, to_server, to_client) = over_tapped_wire(&watch, MODERN).await;
    let mut call = client.call_tool("ask", ()).start();
    until_asked(&mut watch, &mut call).await;
    let before = to_server.methods();

    drop(call);

    assert_eq!(watch.next().await, "host dropped");
    assert_eq!(to_server.methods(), before);
    assert_eq!(to_client.methods(), [""; 0]);
    assert_eq!(
        client.call_tool("echo", ()).await.unwrap().text(),
        "still here"
    );
}

#[tokio::test(start_paused = true)]
async fn in_process_the_handler_and_the_host_go_with_the_call() {
    for version in [MODERN, LEGACY] {
        let mut watch = Watch::new();
        let column = (version, Carrier::InProcess);
        let client = connect(&watch.server(), watch.host(), column).await;
        let mut call = client.call_tool("ask", ()).start();
        until_asked(&mut watch, &mut call).await;

        drop(call);

        let mut gone = vec![watch.next().await];
        gone.extend(std::iter::from_fn(|| watch.1.try_recv().ok()));
        assert!(gone.contains(&"host dropped"), "{version}: {gone:?}");
        assert_eq!(gone.contains(&"handler dropped"), version == LEGACY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_a_legacy_handler_takes_back_is_cancelled_once() {
    let mut watch = Watch::new();
    let (near, far) = wire::memory();
    let (far, to_client) = tap(far);
    let patient = Tool::raw("ask", json!({"type": "object"}), async |_, cx| {
        let asked = cx.elicit::<Said>("name", "Who?");
        let answer = tokio::time::timeout(Duration::from_secs(1), asked).await;
        Ok(CallToolResult::text(
            answer.map_or("gave up", |_| "answered"),
        ))
    });
    tokio::spawn(Server::new("asking", "1.0.0").tool(patient).serve(far));
    let client = Client::over(near)
        .speaking(LEGACY)
        .host(watch.host())
        .await
        .unwrap();

    let reply = client.call_tool("ask", ()).await.unwrap();

    assert_eq!(reply.text(), "gave up");
    assert_eq!(
        [watch.next().await, watch.next().await],
        ["asked", "host dropped"]
    );
    assert_eq!(
        to_client.methods(),
        ["elicitation/create", "notifications/cancelled"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_that_does_not_answer_in_time_is_told_and_the_handler_goes_on() {
    let mut watch = Watch::new();
    let (near, far) = wire::memory();
    let (far, to_client) = tap(far);
    let server = watch.server().ask_timeout(Duration::from_secs(30));
    tokio::spawn(server.serve(far));
    let client = Client::over(near)
        .speaking(LEGACY)
        .host(watch.host())
        .await
        .unwrap();

    let error = client.call_tool("ask", ()).await.unwrap_err();

    assert_eq!(error.to_string(), "the question `name` got lost (-32603)");
    assert_eq!(watch.next().await, "asked");
    let mut gone = [watch.next().await, watch.next().await];
    gone.sort_unstable();
    assert_eq!(gone, ["handler dropped", "host dropped"]);
    assert_eq!(to_client.count("notifications/cancelled"), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_the_client_ends_a_question_at_both_ends() {
    for version in [MODERN, LEGACY] {
        let mut watch = Watch::new();
        let (client, ..) = over_tapped_wire(&watch, version).await;
        let mut call = client.call_tool("ask", ()).start();
        until_asked(&mut watch, &mut call).await;

        drop(call);
        client.close().await.unwrap();

        let mut gone = Vec::new();
        while let Ok(event) = watch.1.try_recv() {
            gone.push(event);
        }
        assert!(gone.contains(&"host dropped"), "{version}: {gone:?}");
    }
}
