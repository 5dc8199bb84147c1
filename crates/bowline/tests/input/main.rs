//! Input: what a handler asks, and what becomes of it, in every era, over a wire and in process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what tests share is part of the tests"
)]

mod eras;
mod host;
mod letting_go;
mod memory;
mod once;
mod state;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bowline::client::Host;
use bowline::types::{CallToolResult, ElicitRequestFormParams, ElicitResult};
use bowline::wire::{Received, Wire};
use bowline::{Client, Server, Tool, wire};
use bowline_core::Message;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// Every version in which a server may ask the user, both ways of reaching it.
const COLUMNS: [(&str, Carrier); 6] = [
    (MODERN, Carrier::InProcess),
    (MODERN, Carrier::Memory),
    (LEGACY, Carrier::InProcess),
    (LEGACY, Carrier::Memory),
    ("2025-06-18", Carrier::InProcess),
    ("2025-06-18", Carrier::Memory),
];

#[derive(Clone, Copy, Debug)]
enum Carrier {
    InProcess,
    Memory,
}

async fn connect(server: &Server, host: Host, (version, carrier): (&str, Carrier)) -> Client {
    let connect = match carrier {
        Carrier::InProcess => Client::to(server),
        Carrier::Memory => {
            let (near, far) = wire::memory();
            tokio::spawn(server.clone().serve(far));
            Client::over(near)
        }
    };
    connect.speaking(version).host(host).await.unwrap()
}

/// One field, filled in with a text.
#[derive(Deserialize, JsonSchema)]
struct Said {
    said: String,
}

/// A tool that asks once, then two things at once, then once more.
fn order() -> Tool {
    Tool::raw("order", json!({"type": "object"}), async |_, cx| {
        let name: Said = cx.elicit("name", "Who?").await?;
        let (drink, snack): (Said, Said) = tokio::try_join!(
            cx.elicit("drink", "A drink?"),
            cx.elicit("snack", "A snack?")
        )?;
        let order = format!("{} and {} for {}", drink.said, snack.said, name.said);
        let sure: Said = cx.elicit("sure", format!("{order}, sure?")).await?;
        Ok(CallToolResult::text(format!("{order}: {}", sure.said)))
    })
}

fn server() -> Server {
    Server::new("café", "1.0.0").tool(order())
}

/// What a host was asked, in order.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    fn push(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A host that fills in "re: " and what it was asked.
fn replying(heard: &Heard) -> Host {
    let heard = heard.clone();
    Host::new().elicitation(move |form: ElicitRequestFormParams| {
        heard.push(&form.message);
        async move { ElicitResult::accept(json!({"said": format!("re: {}", form.message)})) }
    })
}

/// A wire that keeps a copy of every message that is sent over this end.
struct Tapped<W> {
    wire: W,
    sent: Sent,
}

#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<Value>>>);

impl Sent {
    fn methods(&self) -> Vec<String> {
        let sent = self.0.lock().unwrap();
        let methods = sent.iter().filter_map(|it| it["method"].as_str());
        methods.map(str::to_owned).collect()
    }

    fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|it| *it == method).count()
    }
}

fn tap<W>(wire: W) -> (Tapped<W>, Sent) {
    let sent = Sent::default();
    let tapped = Tapped {
        wire,
        sent: sent.clone(),
    };
    (tapped, sent)
}

impl<W: Wire> Wire for Tapped<W> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        self.wire.poll_receive(cx)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.wire.poll_ready(cx)
    }

    fn send(&mut self, message: &Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        let frame = serde_json::from_slice(&frame).unwrap();
        self.sent.0.lock().unwrap().push(frame);
        self.wire.send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.wire.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.wire.poll_close(cx)
    }
}
