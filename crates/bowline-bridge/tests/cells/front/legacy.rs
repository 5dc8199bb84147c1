//! A client before 2026-07-28: a handshake, requests of the server, subscriptions of the connection.

use serde_json::{Value, json};

use super::inbox::{self, Inbox};
use super::{Call, Capability, FrontClient, Watch, answer, declared, result_of};
use crate::endpoint::Endpoint;
use crate::upstream::Change;

pub(crate) struct LegacyClient {
    inbox: Inbox,
    capabilities: &'static [Capability],
    offered: Value,
    asked: Vec<Value>,
}

impl LegacyClient {
    pub(crate) fn new(inbox: Inbox, capabilities: &'static [Capability]) -> Self {
        Self {
            inbox,
            capabilities,
            offered: Value::Null,
            asked: Vec::new(),
        }
    }

    fn revision(&self) -> &'static str {
        let Endpoint { revision, .. } = self.inbox.endpoint;
        revision.name()
    }

    /// Answers the requests of the server.
    async fn answer_questions(&mut self) -> Result<(), String> {
        while let Some(question) = self.inbox.questions.pop_front() {
            let method = question["method"].as_str().unwrap_or_default();
            let id = &question["id"];
            let answer = match method {
                "ping" => Some(json!({})),
                method => answer(method, self.capabilities),
            };
            let response = match answer {
                Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                None => {
                    let problem = format!("a question that was not declared: {question}");
                    self.inbox.violations.push(problem);
                    let error = json!({"code": -32601, "message": "method not found"});
                    json!({"jsonrpc": "2.0", "id": id, "error": error})
                }
            };
            if method != "ping" {
                self.asked.push(question);
            }
            inbox::wait(self.inbox.wire.post(response)).await?;
        }
        Ok(())
    }
}

impl FrontClient for LegacyClient {
    async fn open(&mut self) -> Result<(), String> {
        let params = json!({
            "protocolVersion": self.revision(),
            "capabilities": declared(self.capabilities),
            "clientInfo": {"name": "raw-client", "version": "1"},
        });
        let introduction = self.request("initialize", params).await?;
        self.offered = introduction["capabilities"].clone();
        if introduction["protocolVersion"] != self.revision() {
            return Err(format!("expected {}, got {introduction}", self.revision()));
        }
        self.inbox
            .notify("notifications/initialized", &json!({}))
            .await?;
        inbox::wait(self.inbox.wire.open_stream()).await
    }

    fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    async fn step(&mut self) -> Result<(), String> {
        self.inbox.receive().await?;
        self.answer_questions().await
    }

    fn send(&mut self, method: &'static str, params: Value) -> Call {
        let id = self.inbox.request(method, &params);
        Call { id, method, params }
    }

    async fn result(&mut self, call: &mut Call) -> Result<Value, String> {
        loop {
            if let Some(response) = self.inbox.take_response(&call.id) {
                return result_of(&response);
            }
            self.step().await?;
        }
    }

    async fn cancel(&mut self, call: &Call, reason: &str) -> Result<(), String> {
        self.inbox.cancelled(&call.id);
        let params = json!({"requestId": call.id, "reason": reason});
        self.inbox.notify("notifications/cancelled", &params).await
    }

    async fn set_log_level(&mut self, level: &'static str) -> Result<(), String> {
        let set = self.request("logging/setLevel", json!({"level": level}));
        set.await.map(drop)
    }

    async fn watch(&mut self, change: Change) -> Result<Watch, String> {
        if let Change::Resource(uri) = change {
            let subscribed = self.request("resources/subscribe", json!({"uri": uri}));
            subscribed.await?;
        }
        Ok(Watch { change, id: None })
    }

    async fn unwatch(&mut self, watch: Watch) -> Result<(), String> {
        if let Change::Resource(uri) = watch.change {
            let unsubscribed = self.request("resources/unsubscribe", json!({"uri": uri}));
            unsubscribed.await?;
        }
        Ok(())
    }

    async fn start_task(&mut self, tool: &str) -> Result<String, String> {
        let params = json!({"name": tool, "arguments": {}, "task": {"ttl": 60_000}});
        let created = self.request("tools/call", params).await?;
        let id = created["task"]["taskId"].as_str();
        id.map(str::to_owned)
            .ok_or_else(|| format!("expected a task, got {created}"))
    }

    async fn task_result(&mut self, id: &str) -> Result<Value, String> {
        let result = self.request("tasks/result", json!({"taskId": id}));
        let result = result.await?;
        let related = &result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"];
        match related == id {
            true => Ok(result),
            false => Err(format!("expected a result of the task {id}, got {result}")),
        }
    }

    fn offered(&self) -> &Value {
        &self.offered
    }

    fn asked(&self) -> &[Value] {
        &self.asked
    }
}
