//! Writes a [`TaskRecord`] in the forms of the extension: as `CreateTaskResult`, and as the result of `tasks/get`.
//!
//! By hand and in one buffer, because every task is written at least twice: serde and the strings between cost three
//! times as much.

use std::time::Duration;

use bowline_types::Json;

use crate::protocol::RESULT_TYPE;
use crate::store::{TaskOutcome, TaskRecord, Timestamp};

/// Returns the `CreateTaskResult`, the result of a call that became this task.
pub(crate) fn create_result(record: &TaskRecord) -> Json {
    let mut text = task(record, 0);
    push_name(&mut text, "resultType");
    push_plain(&mut text, RESULT_TYPE.as_bytes());
    close(text)
}

/// Returns the task with what its status adds, for `tasks/get` and `notifications/tasks`.
///
/// # Errors
///
/// If the error of a failed task cannot be serialized.
pub(crate) fn detailed_task(record: &TaskRecord) -> Result<Json, serde_json::Error> {
    let text = match &record.outcome {
        None if record.questions.is_empty() => task(record, 0),
        None => {
            let mut text = task(record, 0);
            push_name(&mut text, "inputRequests");
            let questions = record.questions.iter();
            let questions = Json::object(questions.map(|(key, question)| (&**key, question)));
            text.extend_from_slice(questions.as_bytes());
            text
        }
        Some(TaskOutcome::Completed(result)) => {
            let mut text = task(record, result.as_bytes().len());
            push_name(&mut text, "result");
            text.extend_from_slice(result.as_bytes());
            text
        }
        Some(TaskOutcome::Failed(error)) => {
            let mut text = task(record, 0);
            push_name(&mut text, "error");
            text.extend_from_slice(Json::encode(error)?.as_bytes());
            text
        }
        Some(TaskOutcome::Cancelled) => task(record, 0),
    };
    Ok(close(text))
}

/// Returns the members of every task, with room for one of about `added` bytes.
fn task(record: &TaskRecord, added: usize) -> Vec<u8> {
    let message = record.status_message.as_deref();
    let mut text = Vec::with_capacity(TASK_LEN + message.map_or(0, str::len) + added);
    text.extend_from_slice(b"{\"taskId\":");
    push_plain(&mut text, &record.id.to_text());
    push_name(&mut text, "status");
    push_plain(&mut text, record.status().as_str().as_bytes());
    if let Some(message) = message {
        push_name(&mut text, "statusMessage");
        Json::push_string(&mut text, message);
    }
    push_name(&mut text, "createdAt");
    push_plain(&mut text, &record.created_at.to_text());
    push_name(&mut text, "lastUpdatedAt");
    push_plain(&mut text, &record.updated_at.to_text());
    push_name(&mut text, "ttlMs");
    match record.ttl {
        Some(ttl) => push_millis(&mut text, ttl),
        None => text.extend_from_slice(b"null"),
    }
    if let Some(interval) = record.poll_interval {
        push_name(&mut text, "pollIntervalMs");
        push_millis(&mut text, interval);
    }
    text
}

/// Appends the name of the next member. It contains nothing that has to be escaped.
fn push_name(text: &mut Vec<u8>, name: &str) {
    text.push(b',');
    push_plain(text, name.as_bytes());
    text.push(b':');
}

/// Appends a string that contains nothing that has to be escaped.
fn push_plain(text: &mut Vec<u8>, plain: &[u8]) {
    text.push(b'"');
    text.extend_from_slice(plain);
    text.push(b'"');
}

fn push_millis(text: &mut Vec<u8>, duration: Duration) {
    let mut millis = Timestamp::default().after(duration).as_millis();
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (millis % 10) as u8;
        millis /= 10;
        if millis == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[start..]);
}

fn close(mut text: Vec<u8>) -> Json {
    text.push(b'}');
    Json::from_valid(text.into())
}

/// The length of a task without texts of the application, and some more.
const TASK_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use bowline_types::{ErrorCode, RpcError};
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::{DetailedTask, Task};
    use crate::store::{NewTask, TaskChange};
    use crate::{ReplicaId, TaskId};

    fn record(change: TaskChange) -> TaskRecord {
        let owner = ReplicaId::random().unwrap();
        let new = NewTask::new(TaskId::random().unwrap(), "t", owner, Duration::ZERO)
            .ttl(Duration::from_millis(3_600_001))
            .poll_interval(Duration::ZERO);
        let (mut record, _) = new.into_record(Timestamp::from_millis(1_785_240_001_020));
        let later = Timestamp::from_millis(1_785_240_001_021);
        record.apply(record.version, change, later);
        record
    }

    #[test]
    fn a_new_task_is_written_as_serde_does() {
        for ttl in [None, Some(Duration::from_secs(60)), Some(Duration::MAX)] {
            let mut record = record(TaskChange::new().status_message("\"a\"\n\u{1}ö"));
            record.ttl = ttl;
            let mut expected = serde_json::to_value(Task::from(&record)).unwrap();
            expected["resultType"] = Value::from("task");

            let written: Value = create_result(&record).decode().unwrap();

            assert_eq!(written, expected);
            assert!(ttl.is_none() || !written["ttlMs"].is_null());
        }
    }

    #[test]
    fn every_state_is_written_with_what_it_adds() {
        let error = RpcError::new(ErrorCode::INTERNAL_ERROR, "no \"disk\"");
        for (change, added) in [
            (TaskChange::new(), None),
            (
                TaskChange::new().ask("k\"", Json::empty_object()),
                Some("inputRequests"),
            ),
            (
                TaskChange::new().complete(json!({"content": []}).into()),
                Some("result"),
            ),
            (TaskChange::new().fail(error), Some("error")),
            (TaskChange::new().cancel(), None),
        ] {
            let record = record(change);

            let written = detailed_task(&record).unwrap();

            assert_eq!(
                DetailedTask::decode(&written).unwrap(),
                DetailedTask::from(&record)
            );
            let members: serde_json::Map<String, Value> = written.decode().unwrap();
            let added: Vec<&str> = added.into_iter().collect();
            let known = ["inputRequests", "result", "error"];
            let present = known.into_iter().filter(|name| members.contains_key(*name));
            assert_eq!(present.collect::<Vec<_>>(), added, "{written}");
        }
    }
}
