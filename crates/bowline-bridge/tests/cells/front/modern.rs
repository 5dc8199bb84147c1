//! A client at 2026-07-28: an envelope with each request, questions in results, subscriptions by request.

use serde_json::{Value, json};

use super::inbox::Inbox;
use super::{Call, Capability, FrontClient, Watch, answer, declared, result_of};
use crate::upstream::Change;

pub(crate) struct ModernClient {
    inbox: Inbox,
    capabilities: &'static [Capability],
    offered: Value,
    log_level: Option<&'static str>,
    asked: Vec<Value>,
}

impl ModernClient {
    pub(crate) fn new(inbox: Inbox, capabilities: &'static [Capability]) -> Self {
        Self {
            inbox,
            capabilities,
            offered: Value::Null,
            log_level: None,
            asked: Vec::new(),
        }
    }

    /// Sends a request with the envelope.
    fn stamp(&mut self, method: &str, params: &Value) -> Value {
        let mut capabilities = declared(self.capabilities);
        if self.capabilities.contains(&Capability::Tasks) {
            capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
        }
        let mut params = params.clone();
        let revision = self.inbox.endpoint.revision.name();
        let mut add = |name: &str, value: Value| {
            params["_meta"][format!("io.modelcontextprotocol/{name}")] = value;
        };
        add("protocolVersion", json!(revision));
        add("clientInfo", json!({"name": "raw-client", "version": "1"}));
        add("clientCapabilities", capabilities);
        if let Some(level) = self.log_level {
            add("logLevel", json!(level));
        }
        self.inbox.request(method, &params)
    }

    /// Answers the questions in a result, and sends the request again, under a new id.
    fn retry(&mut self, call: &mut Call, asked: &Value) -> Result<(), String> {
        let mut params = call.params.clone();
        let questions = asked["inputRequests"].as_object();
        for (key, question) in questions.into_iter().flatten() {
            let method = question["method"].as_str().unwrap_or_default();
            let answer = answer(method, self.capabilities);
            let undeclared = || format!("a question that was not declared: {question}");
            params["inputResponses"][key] = answer.ok_or_else(undeclared)?;
            self.asked.push(question.clone());
        }
        if let Some(state) = asked.get("requestState") {
            params["requestState"] = state.clone();
        }
        call.id = self.stamp(call.method, &params);
        Ok(())
    }

    async fn close(&mut self, id: &Value, reason: &str) -> Result<(), String> {
        self.inbox.cancelled(id);
        if self.inbox.endpoint.cancels_by_close() {
            self.inbox.wire.close_response(id);
            return Ok(());
        }
        let params = json!({"requestId": id, "reason": reason});
        self.inbox.notify("notifications/cancelled", &params).await
    }
}

impl FrontClient for ModernClient {
    async fn open(&mut self) -> Result<(), String> {
        let introduction = self.request("server/discover", json!({})).await?;
        self.offered = introduction["capabilities"].clone();
        let revision = self.inbox.endpoint.revision.name();
        let versions = introduction["supportedVersions"].as_array();
        match versions.is_some_and(|versions| versions.iter().any(|one| one == revision)) {
            true => Ok(()),
            false => Err(format!("expected {revision}, got {introduction}")),
        }
    }

    fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    async fn step(&mut self) -> Result<(), String> {
        self.inbox.receive().await
    }

    fn send(&mut self, method: &'static str, params: Value) -> Call {
        let id = self.stamp(method, &params);
        Call { id, method, params }
    }

    async fn result(&mut self, call: &mut Call) -> Result<Value, String> {
        loop {
            let Some(response) = self.inbox.take_response(&call.id) else {
                self.step().await?;
                continue;
            };
            let result = result_of(&response)?;
            match result["resultType"] == "input_required" {
                true => self.retry(call, &result)?,
                false => return Ok(result),
            }
        }
    }

    async fn cancel(&mut self, call: &Call, reason: &str) -> Result<(), String> {
        self.close(&call.id, reason).await
    }

    async fn set_log_level(&mut self, level: &'static str) -> Result<(), String> {
        self.log_level = Some(level);
        Ok(())
    }

    async fn watch(&mut self, change: Change) -> Result<Watch, String> {
        let filter = match change {
            Change::ToolList => json!({"toolsListChanged": true}),
            Change::Resource(uri) => json!({"resourceSubscriptions": [uri]}),
        };
        let listen = json!({"notifications": filter});
        let mut call = self.send("subscriptions/listen", listen);
        while !self.inbox.acknowledged.contains(&call.id) {
            if let Some(response) = self.inbox.take_response(&call.id) {
                return Err(format!("expected an acknowledgement, got {response}"));
            }
            self.step().await?;
        }
        let id = Some(call.id.take());
        Ok(Watch { change, id })
    }

    async fn unwatch(&mut self, watch: Watch) -> Result<(), String> {
        match &watch.id {
            Some(id) => self.close(id, "unwatched").await,
            None => Ok(()),
        }
    }

    async fn start_task(&mut self, tool: &str) -> Result<String, String> {
        let params = json!({"name": tool, "arguments": {}});
        let created = self.request("tools/call", params).await?;
        let id = created["taskId"].as_str();
        let id = id.filter(|_| created["resultType"] == "task");
        id.map(str::to_owned)
            .ok_or_else(|| format!("expected a task, got {created}"))
    }

    async fn task_result(&mut self, id: &str) -> Result<Value, String> {
        let task = self.request("tasks/get", json!({"taskId": id})).await?;
        let result = task.get("result");
        result
            .cloned()
            .ok_or_else(|| format!("expected a result, got {task}"))
    }

    fn offered(&self) -> &Value {
        &self.offered
    }

    fn asked(&self) -> &[Value] {
        &self.asked
    }
}
