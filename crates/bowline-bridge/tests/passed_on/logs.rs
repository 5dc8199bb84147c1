//! Log messages: two clients with different levels, whose calls run at the same time on one connection to the server.

use std::sync::{Arc, Mutex};

use bowline::prelude::*;
use bowline::types::LoggingLevel;
use tokio::sync::Barrier;

use crate::{ERAS, LEGACY, bridges, http_target, over_http};

/// A server whose calls log in all levels while another one runs.
fn server() -> Server {
    let barrier = Arc::new(Barrier::new(2));
    let log = Tool::new("log", move |cx: Context| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            for level in LEVELS {
                cx.log(level, serde_json::json!(format!("{level:?}")));
            }
            barrier.wait().await;
            "logged"
        }
    });
    Server::new("talkative", "1.0.0").logging().tool(log)
}

#[tokio::test]
async fn each_client_gets_exactly_the_messages_of_its_level() {
    for front in ERAS {
        for back in ERAS {
            for bridge in bridges(&http_target(&server(), back)) {
                let service = bridge.http();
                let what = format!("{front} → {back}");
                let mut clients = Vec::new();
                for level in [LoggingLevel::Debug, LoggingLevel::Error] {
                    let received = Arc::new(Mutex::new(Vec::new()));
                    let seen = received.clone();
                    let client = over_http(&service)
                        .protocol_version(front)
                        .log_level(level)
                        .on_log(move |message| seen.lock().unwrap().push(message.level));
                    clients.push((client.await.unwrap(), received));
                }
                // Opens the connection, which both calls then share if they may.
                for (client, _) in &clients {
                    client.list_tools().await.unwrap();
                }

                let [(ada, of_ada), (bob, of_bob)] = &clients[..] else {
                    panic!("two clients");
                };
                let calls = tokio::join!(ada.call_tool("log", ()), bob.call_tool("log", ()));

                assert_eq!(calls.0.unwrap().text(), "logged", "{what}");
                assert_eq!(calls.1.unwrap().text(), "logged", "{what}");
                assert_eq!(*of_ada.lock().unwrap(), LEVELS, "{what}");
                assert_eq!(*of_bob.lock().unwrap(), LEVELS[2..], "{what}");
                // Each legacy client has a connection of its own until the server is known to be modern.
                let expected = if front == LEGACY { 2 } else { 1 };
                assert_eq!(bridge.usage().connections, expected, "{what}");
            }
        }
    }
}

const LEVELS: [LoggingLevel; 4] = [
    LoggingLevel::Debug,
    LoggingLevel::Info,
    LoggingLevel::Error,
    LoggingLevel::Emergency,
];
