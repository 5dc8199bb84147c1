//! Input requests of handlers: elicitation, sampling and roots in every era, over a wire and in process.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic"
)]

mod cancellation;
mod eras;
mod host;
mod kept_values;
mod once;
mod raw;
mod request_state;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bowline::client::Host;
use bowline::exchange::Responder;
use bowline::types::{CallToolResult, ElicitRequestFormParams, ElicitResult};
use bowline::wire::{Received, Wire};
use bowline::{Client, RpcError, Server, Tool, wire};
use bowline_core::Message;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// Every version with elicitation, over both transports.
const CONFIGURATIONS: [(&str, TransportKind); 6] = [
    (MODERN, TransportKind::InProcess),
    (MODERN, TransportKind::Memory),
    (LEGACY, TransportKind::InProcess),
    (LEGACY, TransportKind::Memory),
    ("2025-06-18", TransportKind::InProcess),
    ("2025-06-18", TransportKind::Memory),
];

#[derive(Clone, Copy, Debug)]
enum TransportKind {
    InProcess,
    Memory,
}

async fn connect(
    server: &Server,
    host: Host,
    (version, transport): (&str, TransportKind),
) -> Client {
    let connect = match transport {
        TransportKind::InProcess => Client::in_process(server),
        TransportKind::Memory => {
            let (near, far) = wire::memory();
            tokio::spawn(server.clone().serve(far));
            Client::from_wire(near)
        }
    };
    connect.protocol_version(version).host(host).await.unwrap()
}

/// Connects a modern client with a host in process.
async fn modern_client<R: Responder + Clone>(server: &R, host: Host) -> Client {
    let connect = Client::in_process(server).protocol_version(MODERN);
    connect.host(host).await.unwrap()
}

/// A form with one text field.
#[derive(Deserialize, JsonSchema)]
struct TextForm {
    text: String,
}

/// A tool that elicits once, then twice concurrently, then once more.
fn order() -> Tool {
    Tool::raw("order", json!({"type": "object"}), async |_, cx| {
        let name: TextForm = cx.elicit("name", "Who?").await.map_err(RpcError::from)?;
        let (drink, snack): (TextForm, TextForm) = tokio::try_join!(
            cx.elicit("drink", "A drink?"),
            cx.elicit("snack", "A snack?")
        )?;
        let order = format!("{} and {} for {}", drink.text, snack.text, name.text);
        let sure: TextForm = cx.elicit("sure", format!("{order}, sure?")).await?;
        Ok(CallToolResult::text(format!("{order}: {}", sure.text)))
    })
}

fn server() -> Server {
    Server::new("café", "1.0.0").tool(order())
}

/// The messages of the elicitations that a host received, in order.
#[derive(Clone, Default)]
struct HostLog(Arc<Mutex<Vec<String>>>);

impl HostLog {
    fn push(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A host that answers each elicitation with "re: " and its message.
fn replying_host(host_log: &HostLog) -> Host {
    let host_log = host_log.clone();
    Host::new().elicitation(move |form: ElicitRequestFormParams| {
        host_log.push(&form.message);
        async move { ElicitResult::accept(json!({"text": format!("re: {}", form.message)})) }
    })
}

/// A wire that records all messages sent from this end.
struct SentRecorder<W> {
    wire: W,
    sent: SentMessages,
}

#[derive(Clone, Default)]
struct SentMessages(Arc<Mutex<Vec<Value>>>);

impl SentMessages {
    fn methods(&self) -> Vec<String> {
        let sent = self.0.lock().unwrap();
        let methods = sent.iter().filter_map(|it| it["method"].as_str());
        methods.map(str::to_owned).collect()
    }

    fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|it| *it == method).count()
    }
}

fn record_sent<W>(wire: W) -> (SentRecorder<W>, SentMessages) {
    let sent = SentMessages::default();
    let recorder = SentRecorder {
        wire,
        sent: sent.clone(),
    };
    (recorder, sent)
}

impl<W: Wire> Wire for SentRecorder<W> {
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
