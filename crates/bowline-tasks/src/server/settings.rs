//! [`TaskSettings`]: whether and when the calls of a tool become tasks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline::server::ToolSettings;
use bowline_types::legacy_tasks::{TaskSupport, ToolExecution};
use bowline_types::{Json, Tool as ToolDefinition};

use crate::protocol::EXTENSION_ID;
use crate::store::RunMode;

/// Whether and when the calls of a tool become tasks; set with [`Tool::with_settings`](bowline::Tool::with_settings).
///
/// By default every call of a caller that declares the extension becomes a task at once. Calls of other callers run as
/// usual, unless the tool is [`required`](Self::required) to be a task.
///
/// The record of a task is stored before its handler runs. The handler runs inside the request until it waits for the
/// first time, and in the background after that. One that computes for long without waiting delays the answer with the id:
/// make it synchronous, so that it runs on tokio's blocking pool.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::Tool;
/// use bowline_tasks::TaskSettings;
///
/// # async fn convert() {}
/// let settings = TaskSettings::new().resumable().after(Duration::from_secs(5));
/// let tool = Tool::new("convert", convert).with_settings(settings);
/// ```
#[derive(Clone)]
#[must_use = "settings do nothing until a tool has them"]
pub struct TaskSettings {
    is_required: bool,
    run_mode: RunMode,
    when: Option<Predicate>,
    after: Option<Duration>,
    ttl: Option<Duration>,
    poll_interval: Option<Duration>,
    immediate_response: Option<String>,
}

type Predicate = Arc<dyn Fn(&Json) -> bool + Send + Sync>;

impl TaskSettings {
    /// Creates settings by which every call becomes a task at once, and its handler does not run again after its
    /// process ended.
    pub fn new() -> Self {
        Self {
            is_required: false,
            run_mode: RunMode::NotResumable,
            when: None,
            after: None,
            ttl: None,
            poll_interval: None,
            immediate_response: None,
        }
    }

    /// Refuses callers that do not declare the extension, with `-32021`, and calls of 2025-11-25 that do not request a
    /// task, with `-32601`. Clients of older versions cannot call the tool.
    pub fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Lets the handler run again, from its beginning, after its process ended: at least once.
    ///
    /// Steps, values and answers that were stored are returned without running again; a step that was interrupted
    /// runs again. See [`Tasks`](super::Tasks).
    pub fn resumable(mut self) -> Self {
        if self.run_mode == RunMode::NotResumable {
            self.run_mode = RunMode::AtLeastOnce;
        }
        self
    }

    /// Like [`resumable`](Self::resumable), but each step runs at most once: the task fails if a step was interrupted,
    /// or if the handler begins one again that has failed.
    pub fn at_most_once(mut self) -> Self {
        self.run_mode = RunMode::AtMostOnce;
        self
    }

    /// Makes a call a task at once only if `predicate` returns true for its arguments, a JSON object. Other calls run
    /// as usual, or become tasks [after](Self::after) a while.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_tasks::TaskSettings;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Size {
    ///     pages: u32,
    /// }
    /// let settings = TaskSettings::new()
    ///     .when(|arguments| arguments.decode::<Size>().is_ok_and(|size| size.pages > 100));
    /// ```
    pub fn when(mut self, predicate: impl Fn(&Json) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(Arc::new(predicate));
        self
    }

    /// Makes a call a task when it has run for this long. Until then it is an ordinary call, whose questions are
    /// ordinary rounds.
    ///
    /// With a duration of zero the call becomes a task when it first waits for something other than an answer of the
    /// client.
    pub fn after(mut self, duration: Duration) -> Self {
        self.after = Some(duration);
        self
    }

    /// Sets the time to live of the tasks, in place of that of [`Tasks::ttl`](super::Tasks::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how often clients should poll, in place of [`Tasks::poll_interval`](super::Tasks::poll_interval).
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = Some(interval);
        self
    }

    /// Sets the text that a client of 2025-11-25 may pass to its model as a preliminary result while the task runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_tasks::TaskSettings;
    ///
    /// let settings = TaskSettings::new().immediate_response("The conversion has started.");
    /// ```
    pub fn immediate_response(mut self, text: impl Into<String>) -> Self {
        self.immediate_response = Some(text.into());
        self
    }

    pub(super) fn own_immediate_response(&self) -> Option<&str> {
        self.immediate_response.as_deref()
    }

    pub(super) fn run_mode(&self) -> RunMode {
        self.run_mode
    }

    pub(super) fn own_ttl(&self) -> Option<Duration> {
        self.ttl
    }

    pub(super) fn own_poll_interval(&self) -> Option<Duration> {
        self.poll_interval
    }

    /// Decides when a call with these arguments becomes a task.
    pub(super) fn start(&self, arguments: &Json) -> TaskStart {
        match (&self.when, self.after) {
            (Some(when), _) if when(arguments) => TaskStart::AtOnce,
            (None, None) => TaskStart::AtOnce,
            (_, Some(after)) => TaskStart::After(after),
            (Some(_), None) => TaskStart::Never,
        }
    }
}

/// When a call becomes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskStart {
    AtOnce,
    After(Duration),
    Never,
}

impl Default for TaskSettings {
    fn default() -> Self {
        Self::new()
    }
}

impl ToolSettings for TaskSettings {
    const EXTENSION: &'static str = EXTENSION_ID;

    /// Sets `execution.taskSupport`, which only 2025-11-25 defines.
    fn describe(&self, definition: &mut ToolDefinition) {
        let mut execution = ToolExecution::default();
        execution.task_support = Some(match self.is_required {
            true => TaskSupport::Required,
            false => TaskSupport::Optional,
        });
        definition.execution = Some(execution);
    }

    fn requires_extension(&self) -> bool {
        self.is_required
    }
}

impl fmt::Debug for TaskSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSettings")
            .field("is_required", &self.is_required)
            .field("run_mode", &self.run_mode)
            .field("has_predicate", &self.when.is_some())
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predicate_decides_before_the_duration() {
        let second = Duration::from_secs(1);
        let large = |arguments: &Json| arguments.as_str().contains("large");
        let (large_call, small_call) = (
            Json::from_static(r#"{"size":"large"}"#),
            Json::empty_object(),
        );

        for (settings, of_large, of_small) in [
            (TaskSettings::new(), TaskStart::AtOnce, TaskStart::AtOnce),
            (
                TaskSettings::new().when(large),
                TaskStart::AtOnce,
                TaskStart::Never,
            ),
            (
                TaskSettings::new().after(second),
                TaskStart::After(second),
                TaskStart::After(second),
            ),
            (
                TaskSettings::new().when(large).after(second),
                TaskStart::AtOnce,
                TaskStart::After(second),
            ),
        ] {
            assert_eq!(settings.start(&large_call), of_large, "{settings:?}");
            assert_eq!(settings.start(&small_call), of_small, "{settings:?}");
        }
    }

    #[test]
    fn at_most_once_is_not_weakened() {
        let settings = TaskSettings::new().at_most_once().resumable();

        assert_eq!(settings.run_mode(), RunMode::AtMostOnce);
    }
}
