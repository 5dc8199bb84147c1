//! A middle with faults, to show that the checks notice what a bad bridge does. It joins equal endpoints over stdio, and
//! passes every line on, except for what its fault concerns.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::io::{ReadHalf, WriteHalf};

use crate::checks::Check;
use crate::endpoint::{Endpoint, Wire};
use crate::middle::{FrontAddress, Joined, Middle, UpstreamAddress};

/// A fault of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meddling {
    SendsCallsTwice,
    DropsMeta,
    DeclaresMore,
    DropsProgress,
    ChangesTokens,
    DropsCancels,
    CancelsTwice,
    CancelsAnotherId,
    DropsTheReason,
    AnswersCancelled,
    RefusesQuestions,
    DropsAnnouncements,
    KeepsSubscriptions,
    AsksForMoreLogs,
    ChangesArguments,
    KeepsTasksRunning,
}

impl Meddling {
    pub(crate) const ALL: [Self; 16] = [
        Self::SendsCallsTwice,
        Self::DropsMeta,
        Self::DeclaresMore,
        Self::DropsProgress,
        Self::ChangesTokens,
        Self::DropsCancels,
        Self::CancelsTwice,
        Self::CancelsAnotherId,
        Self::DropsTheReason,
        Self::AnswersCancelled,
        Self::RefusesQuestions,
        Self::DropsAnnouncements,
        Self::KeepsSubscriptions,
        Self::AsksForMoreLogs,
        Self::ChangesArguments,
        Self::KeepsTasksRunning,
    ];

    /// The checks that must notice it.
    pub(crate) fn noticed_by(self) -> &'static [Check] {
        match self {
            Self::SendsCallsTwice | Self::DropsMeta | Self::DeclaresMore => &[Check::Call],
            Self::DropsProgress | Self::ChangesTokens => &[Check::Progress],
            Self::DropsCancels
            | Self::CancelsTwice
            | Self::CancelsAnotherId
            | Self::DropsTheReason
            | Self::AnswersCancelled => &[Check::Cancel],
            Self::RefusesQuestions => &[Check::Elicitation, Check::Sampling],
            Self::DropsAnnouncements => &[Check::ListChange, Check::ResourceUpdate],
            Self::KeepsSubscriptions => &[Check::ResourceUpdate],
            Self::AsksForMoreLogs => &[Check::LogLevel],
            Self::ChangesArguments => &[Check::Call, Check::Completion],
            Self::KeepsTasksRunning => &[Check::Task],
        }
    }

    /// A message from the client: what is sent to the server instead, and what is sent back.
    fn to_server(self, mut message: Value) -> (Vec<Value>, Option<Value>) {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if method.is_empty() {
            return (vec![self.response(message)], None);
        }
        let params = &mut message["params"];
        match (self, method.as_str()) {
            (Self::SendsCallsTwice, "tools/call") => {
                let mut again = message.clone();
                again["id"] = json!("again");
                return (vec![message, again], None);
            }
            (Self::DropsMeta, "tools/call") => drop(params["_meta"]["example.com/note"].take()),
            (Self::DeclaresMore, "initialize") => params["capabilities"]["sampling"] = json!({}),
            (Self::DeclaresMore, "tools/call") if params["_meta"].get(CAPABILITIES).is_some() => {
                params["_meta"][CAPABILITIES]["sampling"] = json!({});
            }
            (Self::DropsCancels | Self::KeepsSubscriptions, "notifications/cancelled") => {
                return (Vec::new(), None);
            }
            (Self::CancelsTwice, "notifications/cancelled") => {
                return (vec![message.clone(), message], None);
            }
            (Self::CancelsAnotherId, "notifications/cancelled") => {
                params["requestId"] = json!(params["requestId"].to_string());
            }
            (Self::DropsTheReason, "notifications/cancelled") => drop(params["reason"].take()),
            (Self::AnswersCancelled, "notifications/cancelled") => {
                let id = params["requestId"].clone();
                let error = json!({"code": -32603, "message": "cancelled"});
                let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
                return (vec![message], Some(answer));
            }
            (Self::RefusesQuestions, "tools/call") if params.get("inputResponses").is_some() => {
                params["inputResponses"] = json!({"who": {"action": "decline"}});
            }
            (Self::KeepsSubscriptions, "resources/unsubscribe") => {
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
                return (Vec::new(), Some(answer));
            }
            (Self::AsksForMoreLogs, "logging/setLevel") => params["level"] = json!("debug"),
            (Self::AsksForMoreLogs, "tools/call") if params["_meta"].get(LOG_LEVEL).is_some() => {
                params["_meta"][LOG_LEVEL] = json!("debug");
            }
            (Self::ChangesArguments, "tools/call") => params["arguments"]["other"] = json!("?"),
            (Self::ChangesArguments, "completion/complete") => {
                params["argument"]["value"] = json!("G");
            }
            (Self::KeepsTasksRunning, "tasks/cancel") => {
                let result = match params["_meta"].get(CAPABILITIES) {
                    Some(_) => json!({"resultType": "complete"}),
                    None => json!({}),
                };
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                return (Vec::new(), Some(answer));
            }
            _ => {}
        }
        (vec![message], None)
    }

    /// A response of the client to the server: what the server gets instead.
    fn response(self, message: Value) -> Value {
        match self {
            Self::RefusesQuestions => {
                let refused = json!({"code": -1, "message": "refused"});
                json!({"jsonrpc": "2.0", "id": message["id"], "error": refused})
            }
            _ => message,
        }
    }

    /// A message from the server: what the client gets instead.
    fn to_client(self, mut message: Value) -> Option<Value> {
        let method = message["method"].as_str().unwrap_or_default();
        match (self, method) {
            (Self::DropsProgress, "notifications/progress") => return None,
            (Self::ChangesTokens, "notifications/progress") => {
                message["params"]["progressToken"] = json!(1);
            }
            (
                Self::DropsAnnouncements,
                "notifications/tools/list_changed" | "notifications/resources/updated",
            ) => return None,
            _ => {}
        }
        Some(message)
    }
}

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

impl Middle for Meddling {
    fn joins(&self, front: Endpoint, upstream: Endpoint) -> bool {
        front == upstream && front.wire == Wire::Stdio
    }

    async fn join(
        &self,
        _front: Endpoint,
        upstream: Endpoint,
        to: UpstreamAddress,
    ) -> Result<Joined, String> {
        let UpstreamAddress::Spawn(spawn) = to else {
            return Err(format!("expected pipes, got {upstream}"));
        };
        let (client, front) = tokio::io::duplex(64 * 1024);
        let _guard = None;
        tokio::spawn(meddle(*self, front, spawn()));
        let front = FrontAddress::Pipe(client);
        Ok(Joined { front, _guard })
    }
}

/// Passes lines both ways until one side ends.
async fn meddle(fault: Meddling, front: DuplexStream, upstream: DuplexStream) {
    let (from_front, mut to_front) = tokio::io::split(front);
    let (from_upstream, mut to_upstream) = tokio::io::split(upstream);
    let mut from_front = BufReader::new(from_front).lines();
    let mut from_upstream = BufReader::new(from_upstream).lines();
    loop {
        tokio::select! {
            line = next(&mut from_front) => {
                let Some(message) = line else { return };
                let (forward, back) = fault.to_server(message);
                for message in forward {
                    write(&mut to_upstream, &message).await;
                }
                if let Some(message) = back {
                    write(&mut to_front, &message).await;
                }
            }
            line = next(&mut from_upstream) => {
                let Some(message) = line else { return };
                if let Some(message) = fault.to_client(message) {
                    write(&mut to_front, &message).await;
                }
            }
        }
    }
}

type Lines = tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>;

async fn next(lines: &mut Lines) -> Option<Value> {
    let line = lines.next_line().await.ok()??;
    serde_json::from_str(&line).ok()
}

async fn write(to: &mut WriteHalf<DuplexStream>, message: &Value) {
    // A pipe that is closed shows at its other end.
    let _ = to.write_all(format!("{message}\n").as_bytes()).await;
}
