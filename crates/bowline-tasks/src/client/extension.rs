//! [`TaskClient`], the extension of a client that waits for tasks.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline::Result;
use bowline::client::{ClientExtension, ExtensionCall, ExtensionResult};
use bowline::exchange::BoxFuture;
use bowline_types::Json;

use super::info::TaskInfo;
use super::task::Task;
use super::waiter::Waiter;
use super::{CALL_TOOL, protocol};
use crate::protocol::{CANCEL_METHOD, EXTENSION_ID, GET_METHOD, RESULT_TYPE, UPDATE_METHOD};

/// The extension `io.modelcontextprotocol/tasks` of a client.
///
/// A server of 2026-07-28 or later may then answer `call_tool` with a task. The call waits for its end:
///
/// * It requests the status once, immediately, because a short task has ended then. After that it listens for changes
///   where the server supports that, and requests the status by the server's poll interval where not.
/// * Input requests of the task are passed to the [host](bowline::client::Host), each once.
/// * Status messages are passed to [`on_progress`](bowline::client::RequestBuilder::on_progress) of the call, with the
///   number of messages as progress, and to [`on_status`](Self::on_status).
/// * Dropping the call, and its timeouts, cancel the task, unless
///   [`cancel_on_drop(false)`](bowline::client::RequestBuilder::cancel_on_drop) is set.
/// * A lost connection, or a server that restarts, does not end the call: within its
///   [timeout](bowline::client::RequestBuilder::timeout), or without one within its
///   [idle timeout](bowline::client::RequestBuilder::idle_timeout), the status is requested again. `tools/call` is never
///   repeated. A wire needs [`ClientBuilder::reconnect`](bowline::client::ClientBuilder::reconnect) for that.
///
/// The idle timeout limits how long the server may leave a request about the task unanswered. It does not run between
/// two such requests.
///
/// The result of a completed task is returned as if it were direct. A failed task is [`Error::Rpc`](bowline::Error::Rpc)
/// with its error, a cancelled one [`Error::Cancelled`](bowline::Error::Cancelled), and one that the server does not know
/// any more is `Error::Rpc` with the code -32602.
///
/// To get a handle instead, use [`TaskCall::as_task`](super::TaskCall::as_task).
///
/// # Examples
///
/// ```
/// use bowline::{Client, Server};
/// use bowline_tasks::TaskClient;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// # let server = Server::new("converter", "1.0.0");
/// let tasks = TaskClient::new().on_status(|task| {
///     println!("{}: {}", task.status.as_str(), task.status_message.as_deref().unwrap_or_default());
/// });
/// let client = Client::in_process(&server).extension(tasks).await?;
/// # Ok(()) }
/// ```
#[must_use = "pass it to `ClientBuilder::extension`"]
#[derive(Debug)]
pub struct TaskClient {
    settings: Settings,
}

impl TaskClient {
    /// Creates the extension with the default settings.
    pub fn new() -> Self {
        let settings = Settings {
            listens: true,
            on_status: None,
            cannot_listen: Arc::default(),
        };
        Self { settings }
    }

    /// Calls `on_status` when a task that this client waits for has a new status or status message.
    pub fn on_status(mut self, on_status: impl Fn(&TaskInfo) + Send + Sync + 'static) -> Self {
        self.settings.on_status = Some(OnAnyStatus(Arc::new(on_status)));
        self
    }

    /// Requests the status by the poll interval, without listening for changes (`subscriptions/listen`). Over HTTP/1.1
    /// this saves the connection that the subscription of each longer task takes.
    pub fn polling_only(mut self) -> Self {
        self.settings.listens = false;
        self
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings.clone()
    }
}

impl Default for TaskClient {
    fn default() -> Self {
        Self::new()
    }
}

impl ClientExtension for TaskClient {
    fn id(&self) -> &str {
        EXTENSION_ID
    }

    fn name_members(&self) -> &[(&str, &str)] {
        &[
            (GET_METHOD, "taskId"),
            (UPDATE_METHOD, "taskId"),
            (CANCEL_METHOD, "taskId"),
        ]
    }

    fn result_types(&self) -> &[(&str, &str)] {
        &[(RESULT_TYPE, CALL_TOOL)]
    }

    fn complete(
        &self,
        result: ExtensionResult,
        cx: ExtensionCall,
    ) -> BoxFuture<'static, Result<Json>> {
        let (id, created) = TaskInfo::decode_created(&result.result);
        let Some(id) = id else {
            return Box::pin(ready(
                created.and_then(|_| Err(protocol("a task has no id"))),
            ));
        };
        let params = Json::clone(&cx.request().params);
        let task = Arc::new(Task::new(cx.client().clone(), id, params));
        let guard = CancelGuard { task, cx };
        let created = match created {
            Ok(created) => guard.task.observe(created),
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let settings = self.settings();
        Box::pin(async move {
            let guard = guard;
            // Here, so that it is not moved: it is large.
            let mut waiter = Waiter::new(&guard.task, &guard.cx, settings);
            waiter.run_from(&created).await
        })
    }
}

/// The settings of a [`TaskClient`], and what is known of its server. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    listens: bool,
    on_status: Option<OnAnyStatus>,
    /// Whether the server is known not to send notifications of tasks.
    cannot_listen: Arc<AtomicBool>,
}

impl Settings {
    pub(super) fn may_listen(&self) -> bool {
        self.listens && !self.cannot_listen.load(Ordering::Relaxed)
    }

    pub(super) fn set_cannot_listen(&self) {
        self.cannot_listen.store(true, Ordering::Relaxed);
    }

    pub(super) fn report(&self, info: &TaskInfo) {
        if let Some(OnAnyStatus(on_status)) = &self.on_status {
            on_status(info);
        }
    }
}

#[derive(Clone)]
struct OnAnyStatus(Arc<dyn Fn(&TaskInfo) + Send + Sync>);

impl fmt::Debug for OnAnyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnAnyStatus")
    }
}

/// Cancels the task when the call is dropped, times out or fails, unless the task has ended.
struct CancelGuard {
    task: Arc<Task>,
    cx: ExtensionCall,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if self.cx.cancel_on_drop() {
            self.task.cancel_detached();
        }
    }
}
