//! Servers in child processes, over stdio.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::{CallToolResult, Error, Server, Tool};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::json;

use crate::support::{any_object, echo, hanging_server, start_hang};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            a_child_server_exits_when_its_stdin_closes,
            "transport:stdio",
            "transport:stdio:clean-shutdown",
        )
        .over_stdio(),
        scenario!(
            printing_to_stdout_does_not_reach_the_wire,
            "transport:stdio:stream-purity",
        )
        .over_stdio(),
        scenario!(
            stderr_lines_reach_the_application,
            "transport:stdio:stderr-passthrough",
        )
        .over_stdio(),
        scenario!(
            newlines_inside_a_message_are_escaped,
            "transport:stdio:no-embedded-newlines",
        )
        .over_stdio(),
        scenario!(
            a_child_that_does_not_exit_is_killed,
            "transport:stdio:shutdown-escalation",
        )
        .over_stdio(),
    ]
}

async fn a_child_server_exits_when_its_stdin_closes(env: ScenarioEnv) {
    // Longer than the timeout below, so that the child is not killed.
    let grace = Duration::from_secs(600);
    let client = env
        .connect_to_child(&hanging_server(), |child| child.grace(grace))
        .await;
    let call = start_hang(&client).await;

    let reply = client.call_tool("echo", json!({"a": 1})).await.unwrap();
    let closing = tokio::time::timeout(Duration::from_secs(60), client.close());
    closing.await.expect("the child did not exit").unwrap();

    assert_eq!(reply.text(), r#"{"a":1}"#);
    let error = call.await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::Closed | Error::Transport { .. }),
        "{error:?}"
    );
}

#[allow(
    clippy::print_stdout,
    reason = "the printed text must not reach the client"
)]
async fn printing_to_stdout_does_not_reach_the_wire(env: ScenarioEnv) {
    let chatty = Tool::raw("chatty", any_object(), async |_, _| {
        println!(
            "{}",
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
        );
        println!("anything");
        Ok(CallToolResult::text("printed"))
    });
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let (notification_sender, log_sender) = (sender.clone(), sender.clone());
    let server = Server::new("s", "1").tool(chatty);
    let client = env
        .connect_with(&server, |connect| {
            connect
                .on_error(move |error| sender.send(error.to_string()).unwrap())
                .on_notification(move |notification| {
                    notification_sender
                        .send(notification.method.to_string())
                        .unwrap()
                })
                .on_log(move |log| log_sender.send(format!("{log:?}")).unwrap())
        })
        .await;

    for _ in 0..3 {
        let reply = client.call_tool("chatty", ()).await.unwrap();
        assert_eq!(reply.text(), "printed");
    }
    client.close().await.unwrap();
    assert_eq!(
        received.recv().await,
        None,
        "printed text reached the client"
    );
}

async fn stderr_lines_reach_the_application(env: ScenarioEnv) {
    let warn = Tool::raw("warn", any_object(), async |_, _| {
        eprintln!("a warning");
        Ok(CallToolResult::text("done"))
    });
    let server = Server::new("s", "1").tool(warn);
    let (line, mut lines) = tokio::sync::mpsc::unbounded_channel();
    let line = Arc::new(Mutex::new(line));
    let client = env
        .connect_to_child(&server, move |child| {
            child.on_stderr(move |text| line.lock().unwrap().send(text.to_owned()).unwrap())
        })
        .await;

    client.call_tool("warn", ()).await.unwrap();

    assert_eq!(lines.recv().await.as_deref(), Some("a warning"));
}

async fn newlines_inside_a_message_are_escaped(env: ScenarioEnv) {
    let client = env.connect(&Server::new("s", "1").tool(echo("echo"))).await;

    let poem = "roses\nare\r\nred\u{2028}";
    let reply = client
        .call_tool("echo", json!({"poem": poem}))
        .await
        .unwrap();

    let arguments: serde_json::Value = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!(arguments["poem"], poem);
}

async fn a_child_that_does_not_exit_is_killed(env: ScenarioEnv) {
    let stubborn = Tool::raw("stall", any_object(), async |_, _| {
        eprintln!("stalled");
        // Blocks the only thread of the server.
        loop {
            std::thread::park();
        }
    });
    let server = Server::new("s", "1").tool(stubborn);
    let (stalled, mut has_stalled) = tokio::sync::mpsc::unbounded_channel();
    let client = env
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
