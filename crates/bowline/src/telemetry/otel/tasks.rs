//! [`TaskMetrics`], the metrics of tasks, which the crate `bowline-tasks` records.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::TelemetryInner;

/// The metrics of tasks; see [`Server::task_metrics`](crate::Server::task_metrics). Records nothing if the server has no
/// telemetry. Cheap to clone.
#[derive(Clone, Default)]
pub struct TaskMetrics(Option<Arc<TelemetryInner>>);

impl TaskMetrics {
    pub(super) fn new(telemetry: Option<Arc<TelemetryInner>>) -> Self {
        Self(telemetry)
    }

    /// Counts a task that starts to run in this process.
    pub fn started(&self) {
        self.add(1);
    }

    /// Counts a task that no longer runs in this process.
    pub fn stopped(&self) {
        self.add(-1);
    }

    /// Records the end of a task: its tool, its final status, and the time since it was created.
    pub fn ended(&self, tool: &str, status: &'static str, elapsed: Duration) {
        if let Some(telemetry) = &self.0 {
            telemetry.instruments.record_task(tool, status, elapsed);
        }
    }

    fn add(&self, number: i64) {
        if let Some(telemetry) = &self.0 {
            telemetry.shared.tasks.fetch_add(number, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for TaskMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskMetrics")
            .field("is_recorded", &self.0.is_some())
            .finish()
    }
}
