//! The tasks of a server: the tool `job`, and the methods of both forms of tasks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// The tasks of a server, with their status.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<BTreeMap<String, &'static str>>);

impl Tasks {
    /// A new task that works; returns its id.
    pub(super) fn create(&self) -> String {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("upstream-task-{}", tasks.len() + 1);
        tasks.insert(id.clone(), "working");
        id
    }

    pub(super) fn complete(&self) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for status in tasks.values_mut().filter(|status| **status == "working") {
            *status = "completed";
        }
    }

    /// Answers `tasks/get`, `tasks/result` or `tasks/cancel`; `None` if there is no such task.
    pub(super) fn answer(&self, method: &str, params: &Value, is_modern: bool) -> Option<Value> {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = params["taskId"].as_str()?;
        let status = tasks.get_mut(id)?;
        if method == "tasks/cancel" {
            *status = "cancelled";
        }
        let mut task = task(id, status, is_modern);
        match (method, is_modern) {
            ("tasks/result", false) if *status == "completed" => {
                let mut result = job_result();
                result["_meta"] = json!({"io.modelcontextprotocol/related-task": {"taskId": id}});
                Some(result)
            }
            ("tasks/get", true) if *status == "completed" => {
                task["result"] = job_result();
                Some(task)
            }
            ("tasks/get", _) | ("tasks/cancel", false) => Some(task),
            ("tasks/cancel" | "tasks/update", true) => Some(json!({})),
            _ => None,
        }
    }
}

/// A task in the form of the revision.
pub(super) fn task(id: &str, status: &str, is_modern: bool) -> Value {
    let (lifetime, interval) = match is_modern {
        true => ("ttlMs", "pollIntervalMs"),
        false => ("ttl", "pollInterval"),
    };
    let at = "2026-08-01T10:00:00Z";
    json!({
        "taskId": id, "status": status, "createdAt": at, "lastUpdatedAt": at, lifetime: null, interval: 1,
    })
}

fn job_result() -> Value {
    json!({"content": [{"type": "text", "text": "the job is done"}]})
}
