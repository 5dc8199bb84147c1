//! [`TaskSink`]: where the notifications of a task's handler go.

use std::sync::Arc;

use bowline::Context;
use bowline::exchange::{Channel, ConnectionState, Notification, NotificationSink};
use bowline_types::{NotificationMethod as _, ProgressNotification, ProgressNotificationParams};

use super::run::TaskRun;
use crate::sync::Mutex;

/// The sink of a handler that is or may become a task. Progress messages of a task become its status message; its
/// other notifications are dropped, as the extension demands.
pub(super) struct TaskSink(Mutex<Target>);

enum Target {
    /// The call is still an ordinary call.
    Call {
        cx: Context,
        /// Whether the caller wants progress notifications.
        has_progress_token: bool,
        /// The last progress message, for the task that the call may become.
        last_message: Option<String>,
    },
    Task(Arc<TaskRun>),
}

impl TaskSink {
    pub(super) fn of_task(run: Arc<TaskRun>) -> Self {
        Self(Mutex::new(Target::Task(run)))
    }

    /// Creates the sink of an ordinary call, with its context.
    pub(super) fn of_call(cx: Context, has_progress_token: bool) -> Self {
        Self(Mutex::new(Target::Call {
            cx,
            has_progress_token,
            last_message: None,
        }))
    }

    /// Sends later notifications to the task that the call has become.
    pub(super) fn become_task(&self, run: &Arc<TaskRun>) {
        let before = std::mem::replace(&mut *self.0.lock(), Target::Task(run.clone()));
        if let Target::Call {
            last_message: Some(message),
            ..
        } = before
        {
            run.set_status_message(message);
        }
    }
}

impl NotificationSink for TaskSink {
    fn notify(&self, notification: Notification) {
        let is_progress = notification.method == ProgressNotification::NAME;
        let message = is_progress.then(|| message_of(&notification)).flatten();
        let mut target = self.0.lock();
        match &mut *target {
            Target::Call {
                cx,
                has_progress_token,
                last_message,
            } => {
                if message.is_some() {
                    *last_message = message;
                }
                if *has_progress_token || !is_progress {
                    let cx = cx.clone();
                    drop(target);
                    cx.send(notification);
                }
            }
            Target::Task(run) => {
                if let Some(message) = message {
                    run.set_status_message(message);
                }
            }
        }
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        None
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        // A task outlives its connection, whose state must be dropped when it ends.
        None
    }
}

fn message_of(progress: &Notification) -> Option<String> {
    let params = progress.params.as_ref()?;
    let params: ProgressNotificationParams = params.decode().ok()?;
    params.message
}
