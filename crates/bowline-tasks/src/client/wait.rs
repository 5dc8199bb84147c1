//! [`TaskWait`], the future of the result of a task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bowline::client::{ExtensionCall, RequestBuilder, Untyped};
use bowline::{Client, Reply, Result};
use bowline_types::{Json, ProgressNotificationParams};

use super::CALL_TOOL;
use super::info::TaskInfo;
use super::task::Task;
use super::waiter::Waiter;
use crate::sync::Mutex;

/// Called when the task has a new status or status message.
pub(super) type OnStatus = Box<dyn FnMut(&TaskInfo) + Send>;

/// A builder for waiting for a task, and the future of its result; see [`TaskHandle::wait`](super::TaskHandle::wait).
///
/// Its options can be set until it is first polled; setting one later panics.
///
/// # Cancel safety
///
/// Safe: dropping it does not cancel the task, and the task can be waited for again. An input request that was with the
/// host is then passed to it again; an answer that was not sent yet is kept and sent.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # async fn example(task: bowline_tasks::TaskHandle) -> bowline::Result<()> {
/// let reply = task
///     .wait()
///     .timeout(Duration::from_secs(600))
///     .on_status(|task| println!("{}", task.status_message.as_deref().unwrap_or_default()))
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct TaskWait {
    request: RequestBuilder<Untyped>,
    options: Arc<Mutex<WaitOptions>>,
}

/// What is set before the waiting begins.
#[derive(Default)]
struct WaitOptions {
    on_status: Option<OnStatus>,
    manual_input: bool,
}

impl TaskWait {
    pub(super) fn new(task: Arc<Task>) -> Self {
        let options = Arc::<Mutex<WaitOptions>>::default();
        let (client, params) = (task.client.clone(), task.params.clone());
        let set = options.clone();
        let request = client.complete_with(CALL_TOOL, params, move |cx| {
            let options = std::mem::take(&mut *set.lock());
            Box::pin(wait(task, cx, options))
        });
        Self { request, options }
    }

    /// Creates the future of a result that is known.
    pub(super) fn answered(client: &Client, result: Json) -> Self {
        let request =
            client.complete_with(CALL_TOOL, (), |_| Box::pin(std::future::ready(Ok(result))));
        Self {
            request,
            options: Arc::default(),
        }
    }

    /// Sets the total timeout; unlimited by default. It is paused while the host answers the server. When it elapses, the
    /// task goes on.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request = self.request.timeout(timeout);
        self
    }

    /// Sets how long the server may leave requests about the task unanswered, if there is no [total
    /// timeout](Self::timeout). By default the idle timeout of the client's requests, 60 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.request = self.request.idle_timeout(timeout);
        self
    }

    /// Calls `on_status` when the task has a new status or status message.
    pub fn on_status(self, on_status: impl FnMut(&TaskInfo) + Send + 'static) -> Self {
        self.options.lock().on_status = Some(Box::new(on_status));
        self
    }

    /// Calls `on_progress` with each status message, like that of a call: for code that handles both.
    pub fn on_progress(
        mut self,
        on_progress: impl FnMut(ProgressNotificationParams) + Send + 'static,
    ) -> Self {
        self.request = self.request.on_progress(on_progress);
        self
    }

    /// Leaves the input requests of the task to the application, which answers with
    /// [`TaskHandle::update`](super::TaskHandle::update), instead of passing them to the host.
    pub fn manual_input(self) -> Self {
        self.options.lock().manual_input = true;
        self
    }
}

impl Future for TaskWait {
    type Output = Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.request).poll(cx)
    }
}

impl fmt::Debug for TaskWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskWait").finish_non_exhaustive()
    }
}

async fn wait(task: Arc<Task>, cx: ExtensionCall, options: WaitOptions) -> Result<Json> {
    let settings = task.settings()?;
    let mut waiter = Waiter::new(&task, &cx, settings)
        .on_status(options.on_status)
        .manual_input(options.manual_input);
    waiter.run().await
}
