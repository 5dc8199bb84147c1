//! [`TaskInfo`], what a server sent about a task, checked and bounded: a server is not trusted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bowline::{Error, Result};
use bowline_types::{ErrorCode, Json, RpcError};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lenient::{Number, Text};
use super::protocol;
use crate::store::TaskStatus;

/// A snapshot of a task.
///
/// Texts are shortened and have no control characters but line feeds and tabs, so that they can be displayed. They come
/// from the server and are not trusted otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The id; `None` if the server answered directly and there is no task.
    pub id: Option<String>,
    /// The status.
    pub status: TaskStatus,
    /// What the server says about the status.
    pub status_message: Option<String>,
    /// When the task was created, in ISO 8601.
    pub created_at: Option<String>,
    /// When the task was changed last, in ISO 8601.
    pub last_updated_at: Option<String>,
    /// How long the server keeps the task, from its creation; `None` if it sets no limit.
    pub ttl: Option<Duration>,
    /// How often the status may be requested: what the server suggests, but at least 100 ms and at most 5 min. 1 s if it
    /// suggests nothing.
    pub poll_interval: Duration,
    /// The input requests that are not answered yet, by key. Empty unless the status is [`TaskStatus::InputRequired`].
    pub input_requests: BTreeMap<String, Json>,
    /// The result, if the status is [`TaskStatus::Completed`].
    pub result: Option<Json>,
    /// The error, if the status is [`TaskStatus::Failed`].
    pub error: Option<RpcError>,
}

impl TaskInfo {
    /// Returns the snapshot of a call that was answered directly.
    pub(super) fn answered(result: Json) -> Self {
        Self {
            id: None,
            status: TaskStatus::Completed,
            status_message: None,
            created_at: None,
            last_updated_at: None,
            ttl: None,
            poll_interval: DEFAULT_POLL_INTERVAL,
            input_requests: BTreeMap::new(),
            result: Some(result),
            error: None,
        }
    }

    /// Decodes a task, as `tools/call` returns a new one and notifications carry it. The result or error of a finished
    /// task may be missing.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if it is not a task.
    pub(super) fn decode(task: &Json) -> Result<Self> {
        let raw: RawTask<'_> = task.decode().map_err(|error| Error::Protocol {
            what: "failed to decode a task".into(),
            source: Some(error.into()),
        })?;
        raw.check(task)
    }

    /// Decodes the result of `tools/call` that is a new task. The id is returned even if another member is invalid, so
    /// that the task can be cancelled.
    pub(super) fn decode_created(result: &Json) -> (Option<String>, Result<Self>) {
        #[derive(Deserialize)]
        struct WithId {
            #[serde(rename = "taskId")]
            id: String,
        }
        let created = Self::decode(result);
        let id = match &created {
            Ok(info) => info.id.clone(),
            Err(_) => result.decode().ok().map(|WithId { id }| id),
        };
        (id.filter(|id| check_id(id).is_ok()), created)
    }

    /// Decodes the result of `tasks/get` for the task `id`.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if it is not this task, or completed without a result.
    pub(super) fn decode_result(result: &Json, id: &str) -> Result<Self> {
        let mut info = Self::decode(result)?;
        if info.id.as_deref() != Some(id) {
            let got = printable(info.id.as_deref().unwrap_or_default(), MAX_PRINTED);
            let expected = printable(id, MAX_PRINTED);
            return Err(protocol(format!(
                "expected the task `{expected}`, got `{got}`"
            )));
        }
        match info.status {
            TaskStatus::Completed if info.result.is_none() => {
                return Err(protocol("expected the `result` of a completed task"));
            }
            TaskStatus::Failed if info.error.is_none() => {
                // That it failed matters more than the violation.
                let message = info.status_message.clone();
                let message = message.unwrap_or_else(|| "the task failed without an error".into());
                info.error = Some(RpcError::new(ErrorCode::INTERNAL_ERROR, message));
            }
            _ => {}
        }
        Ok(info)
    }

    /// Returns whether the task has ended, whatever is known of its result.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self.status {
            TaskStatus::Working | TaskStatus::InputRequired => false,
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => true,
        }
    }

    /// Returns whether the task has ended, and its result or error is known.
    pub(super) fn is_settled(&self) -> bool {
        match self.status {
            TaskStatus::Working | TaskStatus::InputRequired => false,
            TaskStatus::Completed => self.result.is_some(),
            TaskStatus::Failed => self.error.is_some(),
            TaskStatus::Cancelled => true,
        }
    }

    /// Returns the result of the call; `None` if the task is not settled.
    pub(super) fn outcome(&self) -> Option<Result<Json>> {
        match self.status {
            TaskStatus::Working | TaskStatus::InputRequired => None,
            TaskStatus::Completed => self.result.clone().map(Ok),
            TaskStatus::Failed => self.error.clone().map(|error| Err(Error::Rpc(error))),
            TaskStatus::Cancelled => {
                let reason = match &self.status_message {
                    Some(message) => format!("the task was cancelled: {message}"),
                    None => "the task was cancelled".into(),
                };
                Some(Err(Error::Cancelled { reason }))
            }
        }
    }
}

/// Returns what is wrong with a task id, if anything is. It is sent in a header and printed in errors.
pub(super) fn check_id(id: &str) -> Result<(), &'static str> {
    if id.is_empty() {
        Err("it is empty")
    } else if id.len() > MAX_ID_BYTES {
        Err("it is too long")
    } else if id.chars().any(char::is_control) {
        Err("it contains control characters")
    } else {
        Ok(())
    }
}

/// A task as the server sent it. Members that a client can do without may have any type.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTask<'a> {
    #[serde(borrow)]
    task_id: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(default)]
    status_message: Text<MAX_MESSAGE>,
    #[serde(default)]
    created_at: Text<MAX_PRINTED>,
    #[serde(default)]
    last_updated_at: Text<MAX_PRINTED>,
    #[serde(default)]
    ttl_ms: Number,
    #[serde(default)]
    poll_interval_ms: Number,
    #[serde(borrow)]
    input_requests: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl RawTask<'_> {
    /// `task` is what this was decoded from, and the result is a slice of.
    fn check(self, task: &Json) -> Result<TaskInfo> {
        check_id(&self.task_id).map_err(|why| protocol(format!("invalid task id: {why}")))?;
        let status = TaskStatus::from_name(&self.status).ok_or_else(|| {
            let status = printable(&self.status, MAX_PRINTED);
            protocol(format!("unknown status `{status}` of a task"))
        })?;
        let is = |expected| status == expected;
        let input_requests = match self.input_requests {
            Some(requests) if is(TaskStatus::InputRequired) => serde_json::from_str(requests.get())
                .map_err(|error| Error::Protocol {
                    what: "expected an object as `inputRequests` of a task".into(),
                    source: Some(error.into()),
                })?,
            _ => BTreeMap::new(),
        };
        let result = self.result.filter(|_| is(TaskStatus::Completed));
        let error = self.error.filter(|_| is(TaskStatus::Failed));
        Ok(TaskInfo {
            id: Some(self.task_id.into_owned()),
            status,
            status_message: self.status_message.0,
            created_at: self.created_at.0,
            last_updated_at: self.last_updated_at.0,
            ttl: milliseconds(self.ttl_ms.0),
            poll_interval: poll_interval(self.poll_interval_ms.0),
            input_requests,
            result: result.map(|result| task.part(result)),
            error: error.and_then(|error| serde_json::from_str(error.get()).ok()),
        })
    }
}

/// Shortens a text to `max` characters and replaces control characters, which could change a terminal.
pub(super) fn printable(text: &str, max: usize) -> String {
    let replace = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    // By bytes and without an early exit, so that the compiler vectorizes it, for most texts.
    let is_special = |byte: u8| !(b' '..=b'~').contains(&byte);
    let bytes = text.as_bytes().iter();
    if text.len() <= max && !bytes.fold(false, |found, byte| found | is_special(*byte)) {
        return text.to_owned();
    }
    let mut shortened: String = text.chars().take(max).map(replace).collect();
    if text.chars().nth(max).is_some() {
        shortened.push('…');
    }
    shortened
}

fn milliseconds(value: Option<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(value? / 1000.0).ok()
}

/// Bounds the interval: 0 must not become a busy loop, and a huge value must not wait for ever.
fn poll_interval(value: Option<f64>) -> Duration {
    let Some(value) = value else {
        return DEFAULT_POLL_INTERVAL;
    };
    let seconds = (value / 1000.0).clamp(
        MIN_POLL_INTERVAL.as_secs_f64(),
        MAX_POLL_INTERVAL.as_secs_f64(),
    );
    Duration::from_secs_f64(seconds)
}

const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);
pub(super) const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5 * 60);
const MAX_ID_BYTES: usize = 1024;
/// In characters.
const MAX_MESSAGE: usize = 2000;
const MAX_PRINTED: usize = 100;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn decode(members: &Value) -> Result<TaskInfo> {
        let mut task = json!({"taskId": "A7", "status": "working"});
        for (name, value) in members.as_object().unwrap() {
            task[name] = value.clone();
        }
        TaskInfo::decode(&task.into())
    }

    #[test]
    fn poll_intervals_are_bounded() {
        for (sent, expected) in [
            (json!(0), 100),
            (json!(-5), 100),
            (json!(i64::MIN), 100),
            (json!(99.9), 100),
            (json!(2500), 2500),
            (json!(1e300), 300_000),
            (json!(u64::MAX), 300_000),
            (json!("soon"), 1000),
            (json!(null), 1000),
        ] {
            let info = decode(&json!({"pollIntervalMs": sent})).unwrap();
            assert_eq!(
                info.poll_interval,
                Duration::from_millis(expected),
                "{sent}"
            );
        }
    }

    #[test]
    fn times_to_live_of_any_size_are_accepted() {
        for (sent, expected) in [
            (json!(60_000), Some(Duration::from_secs(60))),
            (json!(null), None),
            (json!(-1), None),
            (json!(1e300), None),
        ] {
            assert_eq!(
                decode(&json!({"ttlMs": sent})).unwrap().ttl,
                expected,
                "{sent}"
            );
        }
    }

    #[test]
    fn status_messages_are_shortened_and_cannot_control_a_terminal() {
        let message = |text: &str| {
            let info = decode(&json!({"statusMessage": text})).unwrap();
            info.status_message
        };

        let red = message("\u{1b}[31mred\u{7}\n\tdone").unwrap();
        assert_eq!(red, "\u{fffd}[31mred\u{fffd}\n\tdone");
        assert_eq!(message(""), None);
        let long = message(&"ä".repeat(5000)).unwrap();
        assert_eq!(long.chars().count(), MAX_MESSAGE + 1);
        assert!(
            decode(&json!({"statusMessage": 7}))
                .unwrap()
                .status_message
                .is_none()
        );
    }

    #[test]
    fn invalid_ids_and_unknown_statuses_are_refused() {
        for (members, expected) in [
            (json!({"taskId": ""}), "invalid task id: it is empty"),
            (
                json!({"taskId": "a\r\nb"}),
                "invalid task id: it contains control characters",
            ),
            (
                json!({"taskId": "a".repeat(1025)}),
                "invalid task id: it is too long",
            ),
            (json!({"taskId": 7}), "failed to decode a task"),
            (
                json!({"status": "paused\u{1b}"}),
                "unknown status `paused\u{fffd}` of a task",
            ),
            (
                json!({"status": "input_required", "inputRequests": []}),
                "expected an object as `inputRequests` of a task",
            ),
        ] {
            let error = decode(&members).unwrap_err();
            assert!(
                matches!(&error, Error::Protocol { what, .. } if what == expected),
                "{error}"
            );
        }
    }

    #[test]
    fn a_failed_task_without_an_error_has_its_message_as_error() {
        let get = |task: Value| TaskInfo::decode_result(&task.into(), "A7");

        let failed = get(json!({"taskId": "A7", "status": "failed", "statusMessage": "no disk"}));
        assert_eq!(failed.unwrap().error.unwrap().message, "no disk");
        let completed = get(json!({"taskId": "A7", "status": "completed"})).unwrap_err();
        assert!(
            completed.to_string().contains("expected the `result`"),
            "{completed}"
        );
    }

    #[test]
    fn members_of_another_status_are_ignored() {
        let info = decode(
            &json!({"result": {}, "error": {"code": 1, "message": ""}, "inputRequests": {"k": {}}}),
        );

        let info = info.unwrap();
        assert!(info.result.is_none() && info.error.is_none() && info.input_requests.is_empty());
    }
}
