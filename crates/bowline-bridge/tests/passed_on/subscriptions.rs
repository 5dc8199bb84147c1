//! Subscriptions of several clients to a resource of a legacy server, on one connection.

use std::sync::{Arc, Mutex};

use bowline::client::{Change, ChangeFilter};
use bowline::prelude::*;
use bowline::wire::Lines;
use bowline_bridge::Target;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::{broadcast, watch};

use crate::{LEGACY, MODERN, bridges, over_http, settle};

/// A legacy server with one resource, which records the methods of what it gets.
#[derive(Clone)]
struct Notes {
    received: watch::Sender<Vec<String>>,
    updates: broadcast::Sender<()>,
    connections: Arc<Mutex<usize>>,
}

impl Notes {
    fn new() -> Self {
        Self {
            received: watch::Sender::default(),
            updates: broadcast::Sender::new(16),
            connections: Arc::default(),
        }
    }

    fn target(&self) -> Target {
        let notes = self.clone();
        Target::new("up", move |_| {
            *notes.connections.lock().unwrap() += 1;
            let (near, far) = tokio::io::duplex(64 * 1024);
            tokio::spawn(notes.clone().serve(far));
            let (read, write) = tokio::io::split(near);
            Ok(Client::from_wire(Lines::new(read, write)).protocol_version(LEGACY))
        })
    }

    async fn serve(self, pipe: DuplexStream) {
        let (read, mut write) = tokio::io::split(pipe);
        let mut lines = BufReader::new(read).lines();
        let mut updates = self.updates.subscribe();
        loop {
            let message = tokio::select! {
                biased; // what was asked comes before what changes
                line = lines.next_line() => match line {
                    Ok(Some(line)) => self.answer(&serde_json::from_str(&line).unwrap()),
                    _ => return,
                },
                Ok(()) = updates.recv() => Some(json!({
                    "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "note:1"},
                })),
            };
            if let Some(message) = message {
                let line = format!("{message}\n");
                write.write_all(line.as_bytes()).await.unwrap();
            }
        }
    }

    fn answer(&self, message: &Value) -> Option<Value> {
        let method = message["method"].as_str()?;
        self.received.send_modify(|all| all.push(method.to_owned()));
        let id = message.get("id")?;
        let result = match method {
            "initialize" => json!({
                "protocolVersion": LEGACY, "serverInfo": {"name": "notes", "version": "1"},
                "capabilities": {"resources": {"subscribe": true}},
            }),
            "resources/list" => json!({"resources": [{"uri": "note:1", "name": "one"}]}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            _ => json!({}),
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    fn count(&self, method: &str) -> usize {
        let received = self.received.borrow();
        received.iter().filter(|it| *it == method).count()
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_is_unsubscribed_from_when_the_last_client_leaves() {
    for nth in 0..2 {
        let notes = Notes::new();
        let [one, configured] = bridges(&notes.target());
        let bridge = if nth == 0 { one } else { configured };
        let service = bridge.http();
        let mut clients = Vec::new();
        for _ in 0..2 {
            let client = over_http(&service).protocol_version(MODERN);
            let client = client.await.unwrap();
            let filter = ChangeFilter::new().resource("note:1");
            let changes = client.subscribe(filter).await.unwrap();
            clients.push((client, changes));
        }
        assert_eq!(notes.count("resources/subscribe"), 1);

        drop(clients.remove(0));
        settle().await;
        let (client, changes) = &mut clients[0];
        client.list_resources().await.unwrap();
        notes.updates.send(()).unwrap();
        let change = changes.next().await.unwrap();

        assert_eq!(change, Some(Change::Resource("note:1".to_owned())));
        assert_eq!(notes.count("resources/unsubscribe"), 0, "{nth}");
        let mut received = notes.received.subscribe();
        clients.clear();
        let is_unsubscribed =
            |all: &Vec<String>| all.iter().any(|it| it == "resources/unsubscribe");
        received.wait_for(is_unsubscribed).await.unwrap();
        settle().await;
        assert_eq!(notes.count("resources/unsubscribe"), 1, "{nth}");
        assert_eq!(*notes.connections.lock().unwrap(), 1, "{nth}");
    }
}
