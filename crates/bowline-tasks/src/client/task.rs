//! `Task`, what this process knows of a task, and its requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::client::{RequestBuilder, Untyped};
use bowline::{Client, Result};
use bowline_types::{Json, RpcError};
use serde::Serialize;
use serde_json::json;

use super::answers::Answers;
use super::extension::{Settings, TaskClient};
use super::info::{TaskInfo, check_id, printable};
use super::misuse;
use crate::protocol::{CANCEL_METHOD, GET_METHOD, UPDATE_METHOD};
use crate::sync::Mutex;

/// A task, shared by its handles and by all that wait for it.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) client: Client,
    pub(super) id: String,
    /// The params of the call as far as they are known.
    pub(super) params: Json,
    pub(super) answers: Arc<Answers>,
    end: Mutex<TaskEnd>,
}

#[derive(Debug)]
enum TaskEnd {
    Running,
    /// The first settled state. A server that changes it later is not believed.
    Settled(Arc<TaskInfo>),
    /// The server does not know the task any more.
    Unknown,
}

impl Task {
    pub(super) fn new(client: Client, id: String, params: Json) -> Self {
        Self {
            client,
            id,
            params,
            answers: Arc::default(),
            end: Mutex::new(TaskEnd::Running),
        }
    }

    /// Returns the settings of the extension.
    ///
    /// # Errors
    ///
    /// [`bowline::Error::Misuse`] if requests of the task cannot be sent.
    pub(super) fn settings(&self) -> Result<Settings> {
        check_id(&self.id).map_err(|why| misuse(format!("invalid task id: {why}")))?;
        if !self.client.dialect().is_modern() {
            return Err(misuse(
                "the protocol version of the server has no extensions, and tasks are one",
            ));
        }
        let extension = self.client.extension::<TaskClient>();
        let settings = extension.map(TaskClient::settings);
        settings.ok_or_else(|| {
            misuse("the client has no `TaskClient`; add it with `ClientBuilder::extension`")
        })
    }

    pub(super) fn get(&self) -> RequestBuilder<Untyped> {
        let params = GetParams { task_id: &self.id };
        self.client.request_raw(GET_METHOD, params)
    }

    pub(super) fn update(&self, answers: &BTreeMap<String, Json>) -> RequestBuilder<Untyped> {
        let params = UpdateParams {
            task_id: &self.id,
            input_responses: answers,
        };
        self.client.request_raw(UPDATE_METHOD, params)
    }

    pub(super) fn cancel(&self) -> RequestBuilder<Untyped> {
        self.client
            .request_raw(CANCEL_METHOD, json!({"taskId": self.id}))
    }

    /// Cancels the task without waiting for it, unless it has ended.
    pub(super) fn cancel_detached(&self) {
        if !matches!(*self.end.lock(), TaskEnd::Running) {
            return;
        }
        let params = json!({"taskId": self.id});
        let sent = self
            .client
            .request_detached(CANCEL_METHOD, params, CANCEL_TIMEOUT);
        if let Err(error) = sent {
            tracing::debug!(%error, "failed to cancel a task");
        }
    }

    /// Stores a state, and returns the current one: the first settled one is final.
    pub(super) fn observe(&self, info: TaskInfo) -> Arc<TaskInfo> {
        let mut end = self.end.lock();
        if let TaskEnd::Settled(settled) = &*end {
            return settled.clone();
        }
        let info = Arc::new(info);
        if info.is_settled() {
            *end = TaskEnd::Settled(info.clone());
        }
        info
    }

    /// Returns the final state, if it is known.
    pub(super) fn settled(&self) -> Option<TaskInfo> {
        match &*self.end.lock() {
            TaskEnd::Settled(info) => Some(TaskInfo::clone(info)),
            TaskEnd::Running | TaskEnd::Unknown => None,
        }
    }

    /// Returns the result or error of the task, if it is known.
    pub(super) fn outcome(&self) -> Option<Result<Json>> {
        match &*self.end.lock() {
            TaskEnd::Settled(info) => info.outcome(),
            TaskEnd::Running | TaskEnd::Unknown => None,
        }
    }

    /// Stores that the server does not know the task, and returns an error that says so.
    pub(super) fn unknown(&self, mut error: RpcError) -> RpcError {
        let mut end = self.end.lock();
        if matches!(*end, TaskEnd::Running) {
            *end = TaskEnd::Unknown;
        }
        drop(end);
        let (id, message) = (printable(&self.id, 100), printable(&error.message, 500));
        error.message =
            format!("the server does not know the task `{id}`; it may have expired: {message}");
        error
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GetParams<'a> {
    task_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams<'a> {
    task_id: &'a str,
    input_responses: &'a BTreeMap<String, Json>,
}

/// How long a cancel may take, including a reconnect.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);
