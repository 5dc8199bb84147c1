//! [`TaskHandle`], a handle of a task, and [`TaskCall`], which makes one of a call.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use bowline::client::{CallTool, RequestBuilder};
use bowline::{Call, Client, Error, Reply, Result};
use bowline_types::{ErrorCode, Json};
use serde::Serialize;

use super::info::{TaskInfo, printable};
use super::misuse;
use super::task::Task;
use super::wait::TaskWait;
use crate::protocol::RESULT_TYPE;

/// A handle of a task, to wait for it, to answer it, or to cancel it. Cheap to clone.
///
/// [`TaskCall::as_task`] makes one of a call, [`attach`](Self::attach) one of an id. If the server answered the call
/// directly, the handle is finished: it has no id, and its result is that of the call.
///
/// Dropping a handle does not cancel the task.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline_tasks::{TaskCall as _, TaskHandle};
///
/// let task = client.call_tool("convert", serde_json::json!({"file": "a.mov"})).as_task().await?;
/// match task.id() {
///     Some(id) => println!("saving {id} for another process"),
///     None => println!("the server answered directly"),
/// }
/// println!("{}", task.wait().await?.text());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TaskHandle {
    state: HandleState,
}

#[derive(Clone)]
enum HandleState {
    Task(Arc<Task>),
    /// The server answered directly.
    Answered(Client, Json),
}

impl TaskHandle {
    /// Creates a handle of a task that another handle, perhaps of another process, was the first for. No request is sent.
    ///
    /// The client must have the [`TaskClient`](super::TaskClient) extension and act for the same user; otherwise the
    /// methods fail. The name of the tool is not known, so that the result is not validated against its output schema.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: bowline::Client, saved_id: String) -> bowline::Result<()> {
    /// use bowline_tasks::TaskHandle;
    ///
    /// let task = TaskHandle::attach(&client, saved_id);
    /// println!("{:?}", task.status().await?.status);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn attach(client: &Client, id: impl Into<String>) -> Self {
        let task = Task::new(client.clone(), id.into(), Json::empty_object());
        Self::new(Arc::new(task))
    }

    fn new(task: Arc<Task>) -> Self {
        Self {
            state: HandleState::Task(task),
        }
    }

    /// Creates the handle of a call that was answered.
    fn of_reply(client: Client, params: Json, reply: &Reply) -> Result<Self> {
        match reply.result_type() {
            None => Ok(Self {
                state: HandleState::Answered(client, reply.json().clone()),
            }),
            Some(RESULT_TYPE) => {
                let (id, created) = TaskInfo::decode_created(reply.json());
                let task = id.map(|id| Arc::new(Task::new(client, id, params)));
                match (created, task) {
                    (Ok(created), Some(task)) => {
                        task.observe(created);
                        Ok(Self::new(task))
                    }
                    (Ok(_), None) => Err(super::protocol("a task has no id")),
                    (Err(error), task) => {
                        task.iter().for_each(|task| task.cancel_detached());
                        Err(error)
                    }
                }
            }
            Some(other) => Err(misuse(format!(
                "expected a task or a result, got a result of type `{}`",
                printable(other, 100)
            ))),
        }
    }

    /// Returns the id, with which [`attach`](Self::attach) creates another handle; `None` if the server answered
    /// directly.
    ///
    /// For some servers an id is all that is needed to read the result, so it must be kept secret.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match &self.state {
            HandleState::Task(task) => Some(&task.id),
            HandleState::Answered(..) => None,
        }
    }

    /// Requests the status (`tasks/get`). The final one is requested once and kept.
    ///
    /// # Errors
    ///
    /// [`Error::Rpc`] with the code -32602 if the server does not know the task, other errors like those of a call, and
    /// [`Error::Misuse`] if the client cannot use tasks.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future has no effect on the task.
    pub async fn status(&self) -> Result<TaskInfo> {
        let task = match &self.state {
            HandleState::Task(task) => task,
            HandleState::Answered(_, result) => return Ok(TaskInfo::answered(result.clone())),
        };
        if let Some(settled) = task.settled() {
            return Ok(settled);
        }
        task.settings()?;
        match task.get().await {
            Ok(reply) => {
                let info = TaskInfo::decode_result(reply.json(), &task.id)?;
                Ok(Arc::unwrap_or_clone(task.observe(info)))
            }
            Err(error) => Err(unknown_task(task, error)),
        }
    }

    /// Waits for the end of the task and returns the result of the call, like a call that waits for its task: see
    /// [`TaskClient`](super::TaskClient). It may be called again, and several times at once.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example(task: bowline_tasks::TaskHandle) -> bowline::Result<()> {
    /// match task.wait().timeout(Duration::from_secs(60)).await {
    ///     Ok(reply) => println!("{}", reply.text()),
    ///     Err(bowline::Error::Timeout { .. }) => println!("it is still running"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn wait(&self) -> TaskWait {
        match &self.state {
            HandleState::Task(task) => TaskWait::new(task.clone()),
            HandleState::Answered(client, result) => TaskWait::answered(client, result.clone()),
        }
    }

    /// Sends answers to input requests (`tasks/update`), an object of results by key. The host does not get these input
    /// requests after that. Does nothing if the task is known to have ended.
    ///
    /// # Errors
    ///
    /// Like [`status`](Self::status). [`Error::Misuse`] if `answers` do not serialize to an object.
    ///
    /// # Cancel safety
    ///
    /// The server may have received the answers if the future is dropped. It is safe to send them again.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(task: bowline_tasks::TaskHandle) -> bowline::Result<()> {
    /// let status = task.status().await?;
    /// for (key, request) in &status.input_requests {
    ///     println!("answering {request}");
    ///     task.update(serde_json::json!({key: {"action": "decline"}})).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn update(&self, answers: impl Serialize) -> Result<()> {
        let answers = Json::encode(&answers).and_then(|answers| answers.decode());
        let answers: BTreeMap<String, Json> =
            answers.map_err(|error| misuse(format!("failed to serialize answers: {error}")))?;
        let Some(task) = self.running() else {
            return Ok(());
        };
        task.settings()?;
        let sent = task.update(&answers).await;
        sent.map_err(|error| unknown_task(task, error))?;
        task.answers.set_sent(answers.keys());
        Ok(())
    }

    /// Requests that the task is cancelled (`tasks/cancel`). The server may take a while, and the task may complete all
    /// the same: [`wait`](Self::wait) returns how it ended. Does nothing if the task is known to have ended.
    ///
    /// # Errors
    ///
    /// Like [`status`](Self::status).
    ///
    /// # Cancel safety
    ///
    /// The server may have received the request if the future is dropped.
    pub async fn cancel(&self) -> Result<()> {
        let Some(task) = self.running() else {
            return Ok(());
        };
        task.settings()?;
        let cancelled = task.cancel().await;
        cancelled
            .map(drop)
            .map_err(|error| unknown_task(task, error))
    }

    /// Returns the task, unless it is known to have ended.
    fn running(&self) -> Option<&Arc<Task>> {
        match &self.state {
            HandleState::Task(task) if task.settled().is_none() => Some(task),
            HandleState::Task(_) | HandleState::Answered(..) => None,
        }
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// Explains -32602, which means that the server does not know the task.
fn unknown_task(task: &Task, error: Error) -> Error {
    match error {
        Error::Rpc(error) if error.code == ErrorCode::INVALID_PARAMS => {
            Error::Rpc(task.unknown(error))
        }
        error => error,
    }
}

/// Adds [`as_task`](Self::as_task) to the request of [`Client::call_tool`]. Sealed.
pub trait TaskCall: sealed::Sealed {
    /// Returns a handle of the task that the server answers with, instead of waiting for the task. The server decides
    /// whether there is one; if it answers directly, the handle is finished.
    ///
    /// The client must have the [`TaskClient`](super::TaskClient) extension, or no server answers with a task.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// use bowline_tasks::TaskCall as _;
    ///
    /// let task = client.call_tool("convert", ()).as_task().await?;
    /// # Ok(()) }
    /// ```
    #[allow(
        clippy::wrong_self_convention,
        reason = "like the other setters of a request, it consumes it"
    )]
    fn as_task(self) -> TaskRequest;
}

impl TaskCall for RequestBuilder<CallTool> {
    fn as_task(self) -> TaskRequest {
        TaskRequest {
            state: TaskRequestState::Draft(self.manual_extension()),
        }
    }
}

mod sealed {
    use bowline::client::{CallTool, RequestBuilder};

    /// Prevents implementations of [`TaskCall`](super::TaskCall) in other crates.
    #[allow(unnameable_types, reason = "that is what seals a trait")]
    pub trait Sealed {}

    impl Sealed for RequestBuilder<CallTool> {}
}

/// The future of [`TaskCall::as_task`].
///
/// # Cancel safety
///
/// The request is sent when it is first polled. Dropping it after that, and before it is ready, cancels the request.
#[must_use = "futures do nothing unless polled"]
pub struct TaskRequest {
    state: TaskRequestState,
}

enum TaskRequestState {
    Draft(RequestBuilder<CallTool>),
    Running(Call),
    Done,
}

impl Future for TaskRequest {
    type Output = Result<TaskHandle>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let mut call = match std::mem::replace(&mut self.state, TaskRequestState::Done) {
            TaskRequestState::Draft(request) => request.start(),
            TaskRequestState::Running(call) => call,
            TaskRequestState::Done => {
                return Poll::Ready(Err(misuse("`TaskRequest` was polled after completion")));
            }
        };
        match Pin::new(&mut call).poll(cx) {
            Poll::Pending => {
                self.state = TaskRequestState::Running(call);
                Poll::Pending
            }
            Poll::Ready(reply) => {
                let (client, params) = (call.client().clone(), Json::clone(&call.request().params));
                Poll::Ready(reply.and_then(|reply| TaskHandle::of_reply(client, params, &reply)))
            }
        }
    }
}

impl fmt::Debug for TaskRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRequest").finish_non_exhaustive()
    }
}
