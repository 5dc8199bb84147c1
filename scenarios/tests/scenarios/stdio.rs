//! Servers in child processes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::{CallToolResult, Error, Server, Tool};
use scenarios::{Scenario, World, scenario};
use serde_json::json;

use crate::support::{anything, echo, hang, hanging};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_server_in_a_child_is_called_and_ends_when_its_input_does,
            "transport:stdio",
            "transport:stdio:clean-shutdown",
        )
        .in_a_child(),
        scenario!(
            what_a_server_prints_is_no_message,
            "transport:stdio:stream-purity",
        )
        .in_a_child(),
        scenario!(
            what_a_server_writes_to_stderr_is_heard,
            "transport:stdio:stderr-passthrough",
        )
        .in_a_child(),
        scenario!(
            line_ends_within_a_message_do_not_end_it,
            "transport:stdio:no-embedded-newlines",
        )
        .in_a_child(),
        scenario!(
            a_server_that_does_not_end_is_ended,
            "transport:stdio:shutdown-escalation",
        )
        .in_a_child(),
    ]
}

async fn a_server_in_a_child_is_called_and_ends_when_its_input_does(world: World) {
    // Long enough that nobody would wait for it to be killed.
    let grace = Duration::from_secs(600);
    let client = world
        .connect_to_child(&hanging(), |child| child.grace(grace))
        .await;
    let call = hang(&client).await;

    let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();
    let closing = tokio::time::timeout(Duration::from_secs(60), client.close());
    closing.await.expect("it ends when its input does").unwrap();

    assert_eq!(reply.text(), r#"{"a":1}"#);
    let error = call.await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::Closed | Error::Transport { .. }),
        "{error:?}"
    );
}

#[allow(
    clippy::print_stdout,
    reason = "that is what must not reach the client"
)]
async fn what_a_server_prints_is_no_message(world: World) {
    let chatty = Tool::raw("chatty", anything(), async |_, _| {
        println!(
            "{}",
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
        );
        println!("anything");
        Ok(CallToolResult::text("said"))
    });
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (tell_too, tell_logs) = (tell.clone(), tell.clone());
    let server = Server::new("s", "1").tool(chatty);
    let client = world
        .connect_with(&server, |connect| {
            connect
                .on_error(move |error| tell.send(error.to_string()).unwrap())
                .on_notification(move |said| tell_too.send(said.method.to_string()).unwrap())
                .on_log(move |log| tell_logs.send(format!("{log:?}")).unwrap())
        })
        .await;

    for _ in 0..3 {
        let reply = client.call_tool("chatty", ()).await.unwrap();
        assert_eq!(reply.text(), "said");
    }
    client.close().await.unwrap();
    assert_eq!(told.recv().await, None, "nothing else came over the wire");
}

async fn what_a_server_writes_to_stderr_is_heard(world: World) {
    let lament = Tool::raw("lament", anything(), async |_, _| {
        eprintln!("alas");
        Ok(CallToolResult::text("done"))
    });
    let server = Server::new("s", "1").tool(lament);
    let (line, mut lines) = tokio::sync::mpsc::unbounded_channel();
    let line = Arc::new(Mutex::new(line));
    let client = world
        .connect_to_child(&server, move |child| {
            child.on_stderr(move |text| line.lock().unwrap().send(text.to_owned()).unwrap())
        })
        .await;

    client.call_tool("lament", ()).await.unwrap();

    assert_eq!(lines.recv().await.as_deref(), Some("alas"));
}

async fn line_ends_within_a_message_do_not_end_it(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;

    let poem = "roses\nare\r\nred\u{2028}";
    let reply = client
        .call_tool("echo", json!({"poem": poem}))
        .await
        .unwrap();

    let arguments: serde_json::Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(arguments["poem"], poem);
}

async fn a_server_that_does_not_end_is_ended(world: World) {
    let stubborn = Tool::raw("stall", anything(), async |_, _| {
        eprintln!("stalled");
        // Nothing else happens in this process from here on.
        loop {
            std::thread::park();
        }
    });
    let server = Server::new("s", "1").tool(stubborn);
    let (stalled, mut has_stalled) = tokio::sync::mpsc::unbounded_channel();
    let client = world
        .connect_to_child(&server, move |child| {
            let child = child.on_stderr(move |_| stalled.send(()).unwrap_or_default());
            child.grace(Duration::from_millis(50))
        })
        .await;
    let call = tokio::spawn(client.call_tool("stall", ()).into_future());
    has_stalled.recv().await;

    client.close().await.unwrap();

    assert!(call.await.unwrap().is_err());
}
