//! [`TaskOutcomes`]: calls that became tasks in the recording, for clients that do not support them.

use std::collections::BTreeMap;

use bowline::exchange::dialect::Tasks;
use bowline::exchange::{Outcome, Request};
use bowline_core::json::pick;
use bowline_types::{Json, RpcError};
use serde::Deserialize;

use crate::conversation::{Ending, Script};

/// The final outcomes of the recorded tasks, by task id.
#[derive(Debug, Default)]
pub(super) struct TaskOutcomes(BTreeMap<String, Outcome>);

impl TaskOutcomes {
    pub(super) fn of(scripts: &[Script]) -> Self {
        let mut outcomes = BTreeMap::new();
        for script in scripts {
            let Ending::Answer { outcome, .. } = &script.ending else {
                continue;
            };
            match &*script.method {
                "tasks/get" => {
                    let state = outcome
                        .as_ref()
                        .ok()
                        .and_then(|it| it.decode::<TaskState>().ok());
                    if let Some((id, outcome)) = state.and_then(TaskState::final_outcome) {
                        outcomes.insert(id, outcome);
                    }
                }
                "tasks/result" => {
                    let id = pick(&script.params, ["taskId"]).ok();
                    let id = id.and_then(|[id]| id?.decode::<String>().ok());
                    if let Some(id) = id {
                        outcomes.insert(id, outcome.clone());
                    }
                }
                _ => {}
            }
        }
        Self(outcomes)
    }

    /// Returns the outcome of a script, or that of the task which it created, if the caller does not support tasks of
    /// the recorded kind.
    pub(super) fn fit(&self, script: &Script, outcome: &Outcome, request: &Request) -> Outcome {
        let Some(task) = outcome
            .as_ref()
            .ok()
            .and_then(|it| created_task(script, it))
        else {
            return outcome.clone();
        };
        if supports_tasks(script, request) {
            return outcome.clone();
        }
        match self.0.get(&task) {
            Some(outcome) => outcome.clone(),
            None => Err(RpcError::internal(format!(
                "the recorded call became the task `{task}`, and the recording does not have its result"
            ))),
        }
    }
}

/// Returns the id of the task that a result announces.
fn created_task(script: &Script, result: &Json) -> Option<String> {
    // Most results are not decoded.
    if !result.as_str().contains("\"taskId\"") || script.method.starts_with("tasks/") {
        return None;
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Created {
        result_type: Option<String>,
        task_id: Option<String>,
        task: Option<CreatedTask>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CreatedTask {
        task_id: String,
    }
    let created: Created = result.decode().ok()?;
    match script.dialect.tasks {
        Tasks::Extension => created
            .task_id
            .filter(|_| created.result_type.as_deref() == Some("task")),
        Tasks::Core => Some(created.task?.task_id),
        _ => None,
    }
}

fn supports_tasks(script: &Script, request: &Request) -> bool {
    let caller = &request.caller;
    match (script.dialect.tasks, caller.dialect.tasks) {
        (Tasks::Extension, Tasks::Extension) => {
            let declared = caller.capabilities.extensions.as_ref();
            declared.is_some_and(|extensions| extensions.contains_key(TASKS))
        }
        (Tasks::Core, Tasks::Core) => matches!(request.params.member("task"), Ok(Some(_))),
        _ => false,
    }
}

/// The answer to `tasks/get` of the extension.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskState {
    task_id: String,
    result: Option<Json>,
    error: Option<RpcError>,
}

impl TaskState {
    fn final_outcome(self) -> Option<(String, Outcome)> {
        let outcome = match (self.result, self.error) {
            (Some(result), _) => Ok(result),
            (None, Some(error)) => Err(error),
            (None, None) => return None,
        };
        Some((self.task_id, outcome))
    }
}

const TASKS: &str = "io.modelcontextprotocol/tasks";
