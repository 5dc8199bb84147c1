//! Rows as records, and records as rows.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use bowline_types::{Json, RpcError};
use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::statements::{JOURNAL, LIST, READ};
use crate::store::clock::duration_millis;
use crate::store::{
    Attempt, JournalEntry, JournalKind, ListPosition, RunMode, TaskOutcome, TaskPage, TaskRecord,
    TaskRequest, TaskStatus, TaskSummary, Timestamp, Version,
};
use crate::{ReplicaId, TaskId};

/// A record, and where it is stored.
#[derive(Debug)]
pub(super) struct StoredTask {
    pub(super) number: i64,
    pub(super) principal: i64,
    pub(super) journal_bytes: usize,
    pub(super) record: TaskRecord,
}

/// Reads a task unless it counts as removed at `now`.
pub(super) fn read(
    connection: &Connection,
    id: TaskId,
    now: Timestamp,
) -> rusqlite::Result<Option<StoredTask>> {
    let mut statement = connection.prepare_cached(READ)?;
    let values = params![id.as_bytes(), time(now)];
    statement.query_row(values, stored_task).optional()
}

/// Reads the journal of a task, in order.
pub(super) fn journal(
    connection: &Connection,
    id: TaskId,
    now: Timestamp,
) -> rusqlite::Result<Vec<JournalEntry>> {
    let mut statement = connection.prepare_cached(JOURNAL)?;
    let entries = statement.query_map(params![id.as_bytes(), time(now)], |row| {
        let mut columns = Columns::new(row);
        let kind = columns.named(JournalKind::from_name)?;
        Ok(JournalEntry {
            kind,
            name: columns.next()?,
            value: columns.json()?,
        })
    })?;
    entries.collect()
}

/// Reads a page of a principal's tasks.
pub(super) fn list(
    connection: &Connection,
    principal: &str,
    after: Option<ListPosition>,
    max: usize,
    now: Timestamp,
) -> rusqlite::Result<TaskPage> {
    // A time before all others, because an index is not used for "or there is no position".
    let (created_at, id) = match &after {
        Some(position) => (time(position.created_at), position.id.as_bytes().as_slice()),
        None => (-1, [].as_slice()),
    };
    let mut statement = connection.prepare_cached(LIST)?;
    let limit = integer(max.saturating_add(1));
    let values = params![principal, created_at, id, time(now), limit];
    let tasks = statement.query_map(values, |row| {
        let mut columns = Columns::new(row);
        Ok(TaskSummary {
            id: TaskId::from_bytes(columns.next()?),
            status: columns.named(TaskStatus::from_name)?,
            ttl: columns.optional_duration()?,
            poll_interval: columns.optional_duration()?,
            created_at: columns.time()?,
            updated_at: columns.time()?,
            status_message: columns.next()?,
        })
    })?;
    Ok(TaskPage::new(tasks.collect::<rusqlite::Result<_>>()?, max))
}

fn stored_task(row: &Row<'_>) -> rusqlite::Result<StoredTask> {
    let mut columns = Columns::new(row);
    Ok(StoredTask {
        number: columns.next()?,
        principal: columns.next()?,
        journal_bytes: columns.size()?,
        record: record(&mut columns)?,
    })
}

/// Reads the columns of [`READ`], in their order.
fn record(columns: &mut Columns<'_>) -> rusqlite::Result<TaskRecord> {
    let id = TaskId::from_bytes(columns.next()?);
    let principal = columns.next::<Option<String>>()?.map(Arc::from);
    let run_mode = columns.named(RunMode::from_name)?;
    Ok(TaskRecord {
        id,
        principal,
        run_mode,
        ttl: columns.optional_duration()?,
        poll_interval: columns.optional_duration()?,
        status_message: columns.next()?,
        questions: columns.inputs()?,
        answers: columns.inputs()?,
        is_cancel_requested: columns.next()?,
        outcome: columns.outcome()?,
        created_at: columns.time()?,
        updated_at: columns.time()?,
        expires_at: columns.optional_time()?,
        remove_at: columns.optional_time()?,
        owner: ReplicaId::from_bytes(columns.next()?),
        attempt: Attempt::from_number(columns.next()?),
        leased_until: columns.optional_time()?,
        version: columns.version()?,
        request: Arc::new(TaskRequest {
            tool: columns.next()?,
            arguments: columns.json()?,
            meta: columns.optional_json()?,
            context: columns.optional_json()?,
        }),
    })
}

/// Reads the columns of a row one after the other.
pub(super) struct Columns<'a> {
    row: &'a Row<'a>,
    next: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn new(row: &'a Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    pub(super) fn next<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        let index = self.next;
        self.next += 1;
        self.row.get(index)
    }

    pub(super) fn size(&mut self) -> rusqlite::Result<usize> {
        let number: i64 = self.next()?;
        usize::try_from(number).map_err(|error| self.invalid(error))
    }

    pub(super) fn version(&mut self) -> rusqlite::Result<Version> {
        let number: i64 = self.next()?;
        let number = u64::try_from(number).map_err(|error| self.invalid(error))?;
        Ok(Version::from_number(number))
    }

    pub(super) fn optional_time(&mut self) -> rusqlite::Result<Option<Timestamp>> {
        let Some(millis) = self.next::<Option<i64>>()? else {
            return Ok(None);
        };
        let millis = u64::try_from(millis).map_err(|error| self.invalid(error))?;
        Ok(Some(Timestamp::from_millis(millis)))
    }

    fn time(&mut self) -> rusqlite::Result<Timestamp> {
        let time = self.optional_time()?;
        time.ok_or_else(|| self.invalid("expected a time"))
    }

    fn optional_duration(&mut self) -> rusqlite::Result<Option<Duration>> {
        let millis = self.optional_time()?;
        Ok(millis.map(|millis| Duration::from_millis(millis.as_millis())))
    }

    fn named<T>(&mut self, from_name: fn(&str) -> Option<T>) -> rusqlite::Result<T> {
        let name: String = self.next()?;
        from_name(&name).ok_or_else(|| self.invalid("unknown name"))
    }

    pub(super) fn json(&mut self) -> rusqlite::Result<Json> {
        let json = self.optional_json()?;
        json.ok_or_else(|| self.invalid("expected JSON"))
    }

    fn optional_json(&mut self) -> rusqlite::Result<Option<Json>> {
        let Some(text) = self.next::<Option<String>>()? else {
            return Ok(None);
        };
        let json = Json::parse(text).map_err(|error| self.invalid(error))?;
        Ok(Some(json))
    }

    fn inputs(&mut self) -> rusqlite::Result<BTreeMap<String, Json>> {
        match self.optional_json()? {
            None => Ok(BTreeMap::new()),
            Some(json) => json.decode().map_err(|error| self.invalid(error)),
        }
    }

    /// Reads the status and what belongs to it.
    fn outcome(&mut self) -> rusqlite::Result<Option<TaskOutcome>> {
        let status = self.named(TaskStatus::from_name)?;
        let value = self.optional_json()?;
        match (status, value) {
            (TaskStatus::Working | TaskStatus::InputRequired, None) => Ok(None),
            (TaskStatus::Completed, Some(result)) => Ok(Some(TaskOutcome::Completed(result))),
            (TaskStatus::Cancelled, None) => Ok(Some(TaskOutcome::Cancelled)),
            (TaskStatus::Failed, Some(error)) => {
                let error: RpcError = error.decode().map_err(|error| self.invalid(error))?;
                Ok(Some(TaskOutcome::Failed(error)))
            }
            _ => Err(self.invalid("expected an outcome for a finished task only")),
        }
    }

    /// Returns the error for the column that was read last.
    fn invalid(&self, reason: impl Into<Box<dyn StdError + Send + Sync>>) -> rusqlite::Error {
        let index = self.next.saturating_sub(1);
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, reason.into())
    }
}

/// Returns the text of what belongs to the status of a finished task.
pub(super) fn outcome_text(outcome: Option<&TaskOutcome>) -> rusqlite::Result<Option<Json>> {
    match outcome {
        Some(TaskOutcome::Completed(result)) => Ok(Some(result.clone())),
        Some(TaskOutcome::Failed(error)) => {
            let encoded = Json::encode(error);
            let invalid = |error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
            encoded.map(Some).map_err(invalid)
        }
        Some(TaskOutcome::Cancelled) | None => Ok(None),
    }
}

/// Returns questions or answers as an object; `None` if there are none.
pub(super) fn inputs_text(inputs: &BTreeMap<String, Json>) -> Option<Json> {
    let members = inputs.iter().map(|(key, value)| (key.as_str(), value));
    (!inputs.is_empty()).then(|| Json::object(members))
}

pub(super) fn time(time: Timestamp) -> i64 {
    time.as_millis().cast_signed()
}

pub(super) fn optional_time(at: Option<Timestamp>) -> Option<i64> {
    at.map(time)
}

pub(super) fn optional_millis(duration: Option<Duration>) -> Option<i64> {
    duration.map(|duration| duration_millis(duration).cast_signed())
}

pub(super) fn version(version: Version) -> i64 {
    i64::try_from(version.number()).unwrap_or(i64::MAX)
}

/// Returns a size or count; one that is too large for SQLite means "all".
pub(super) fn integer(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
