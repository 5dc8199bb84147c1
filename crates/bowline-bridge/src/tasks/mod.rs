//! Tasks across eras: those of 2025-11-25, and those of the extension `io.modelcontextprotocol/tasks`.
//!
//! Between two sides of the same era a task needs no translation. Otherwise:
//!
//! ```text
//!                    modern client, legacy server             legacy client, modern server
//! who decides        the bridge, by the tool's `taskSupport`   the client, by `task` in the params
//! tools/call         `task` is added                          the extension is declared for this request
//! tasks/get          + tasks/result, once it is finished      the same
//! tasks/result       -                                        tasks/get, until it is finished
//! tasks/cancel       the same                                 the same, and waits for the end
//! a question         tasks/result in the background asks,     the client is asked while it waits in
//!                    and tasks/update answers                 tasks/result, and tasks/update answers
//! ```
//!
//! Whose task it is was checked before: see [`TaskAccess`]. The ids of tasks are those of the server. A task is asked for on the connection that created it, because it may
//! exist in one process only: see [`OpenTasks`].

mod access;
pub(crate) use access::{TaskAccess, TaskOwners};

mod forms;
pub(crate) use forms::{convert_offer, related_task};

mod iso_time;

mod legacy_client;
pub(crate) use legacy_client::task_required;

mod modern_client;
pub(crate) use modern_client::{convert_answer, explain_refusal};

mod open_tasks;
pub(crate) use open_tasks::{OpenTasks, TaskScope};

pub(crate) mod parked_tasks;

mod task_questions;

mod tool_support;
pub(crate) use tool_support::ToolSupport;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::dialect::Tasks;
use bowline::exchange::{CallOptions, Caller, Channel, Dialect, Outcome, Request};
use bowline::types::ClientCapabilities;
use bowline::{Context, Error, ErrorCode, Json, RpcError};
use serde_json::json;

use crate::forward::result_of;
use crate::upstream::{ConnectionLease, Upstream, UpstreamConnection};

/// Answers a request that concerns tasks, if the server has another form of them than the client. Otherwise returns the
/// request to be forwarded, which may have become a request for a task.
///
/// # Cancel safety
///
/// Dropping the future cancels the request to the server that is in flight, and no task.
pub(crate) async fn respond(
    upstream: &Arc<Upstream>,
    request: Request,
    cx: &Context,
) -> ControlFlow<Outcome, Request> {
    if !concerns_tasks(&request) {
        return ControlFlow::Continue(request);
    }
    let responded = match request.caller.dialect.is_modern() {
        // Boxed, because these futures are large, and most requests do not concern tasks.
        true => Box::pin(modern_client::respond(upstream, request, cx)).await,
        false => Box::pin(legacy_client::respond(upstream, request, cx)).await,
    };
    responded.unwrap_or_else(|error| ControlFlow::Break(Err(error)))
}

fn concerns_tasks(request: &Request) -> bool {
    let dialect = request.caller.dialect;
    if dialect.tasks == Tasks::None {
        return false;
    }
    match &*request.method {
        CALL => declares_extension(&request.caller) || forms::has_task(&request.params),
        LIST_TOOLS => !dialect.is_modern(),
        method => method.starts_with("tasks/"),
    }
}

fn declares_extension(caller: &Caller) -> bool {
    let extensions = caller.capabilities.extensions.as_ref();
    caller.dialect.tasks == Tasks::Extension
        && extensions.is_some_and(|extensions| extensions.contains_key(EXTENSION))
}

/// Returns the error for a client that did not declare the extension.
fn extension_required() -> RpcError {
    let required = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    let why = "the request requires the client to support tasks";
    RpcError::new(ErrorCode::MISSING_CLIENT_CAPABILITY, why).with_data(required)
}

/// Removes the extension from the capabilities that a server is told, unless the versions of both sides have it:
/// otherwise the bridge decides for each request whether it is for a task.
pub(crate) fn fit_caller(caller: &mut Caller, server: &Dialect) {
    if caller.dialect.tasks != Tasks::Extension || server.tasks != Tasks::Extension {
        remove_extension(&mut caller.capabilities);
    }
}

/// Removes the extension from the capabilities of a client.
pub(crate) fn remove_extension(capabilities: &mut ClientCapabilities) {
    let extensions = &mut capabilities.extensions;
    if let Some(extensions) = extensions {
        extensions.remove(EXTENSION);
    }
    extensions.take_if(|extensions| extensions.is_empty());
}

/// A request about a task that is known to the bridge or not.
struct TaskRequest<'a> {
    upstream: &'a Arc<Upstream>,
    scope: TaskScope,
    id: Arc<str>,
    /// The connection that created the task, or else another one of the same client.
    lease: Arc<ConnectionLease>,
    /// The sender, in the version of the connection.
    caller: Arc<Caller>,
}

impl<'a> TaskRequest<'a> {
    async fn new(
        upstream: &'a Arc<Upstream>,
        request: &Request,
        cx: &Context,
    ) -> Result<Self, RpcError> {
        let id: Arc<str> = forms::task_id(&request.params)?.into();
        let scope = TaskScope::of(upstream, cx);
        let lease = match scope.lease(&id) {
            Some(lease) => lease,
            None => Arc::new(upstream.lease(request, cx).await?),
        };
        let caller = connection(&lease)?.caller(&request.caller);
        Ok(Self {
            upstream,
            scope,
            id,
            lease,
            caller,
        })
    }

    fn connection(&self) -> Result<&UpstreamConnection, RpcError> {
        connection(&self.lease)
    }

    /// Sends a request about the task to the server.
    async fn ask(&self, method: &'static str) -> Outcome {
        self.send(method, forms::id_params(&self.id)).await
    }

    async fn send(&self, method: &'static str, params: Json) -> Outcome {
        let answer = self.exchange(method, params).await?;
        match answer {
            Ok(result) => {
                self.upstream.succeeded();
                Ok(result)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &Error) -> RpcError {
        self.upstream.call_failed(self.lease.attempt(), error)
    }

    async fn exchange(
        &self,
        method: &'static str,
        params: Json,
    ) -> Result<Result<Json, Error>, RpcError> {
        let request = Request::new(method, params, self.caller.clone());
        let channel = self.connection()?.channel();
        let answer = channel.open(request, options()).answer().await;
        Ok(answer.map(result_of))
    }
}

fn connection(lease: &ConnectionLease) -> Result<&UpstreamConnection, RpcError> {
    crate::forward::open_connection(lease)
}

/// Returns whether a server has tasks in the form of its version.
async fn has_tasks(connection: &UpstreamConnection, caller: &Arc<Caller>) -> bool {
    let support = connection.tool_support();
    support.has_tasks(connection.channel(), caller).await
}

/// The options of a request that a server answers without waiting for a task.
fn options() -> CallOptions {
    let mut options = CallOptions::default();
    options.timeout = Some(REQUEST_TIMEOUT);
    options
}

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const DISCOVER: &str = "server/discover";
const CALL: &str = "tools/call";
const LIST_TOOLS: &str = "tools/list";
const GET: &str = "tasks/get";
const RESULT: &str = "tasks/result";
const CANCEL: &str = "tasks/cancel";
const UPDATE: &str = "tasks/update";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
