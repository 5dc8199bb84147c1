//! Rows as records, and records as rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_tasks::store::{
    Attempt, JournalEntry, JournalKind, ListPosition, NewTask, RunMode, TaskOutcome, TaskPage,
    TaskRecord, TaskStatus, TaskSummary, Timestamp, Version,
};
use bowline_tasks::{ReplicaId, TaskId};
use bowline_types::{Json, RpcError};
use deadpool_postgres::GenericClient;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};

use super::error::Failure;
use super::statements::{JOURNAL, LIST, NOW, READ};

/// A record, and where it is stored.
#[derive(Debug)]
pub(super) struct StoredTask {
    pub(super) number: i64,
    pub(super) principal: i64,
    pub(super) journal_bytes: usize,
    pub(super) record: TaskRecord,
}

/// Returns the time of the database.
pub(super) async fn now(client: &impl GenericClient) -> Result<Timestamp, Failure> {
    let row = query_opt(client, NOW, &[]).await?;
    let row = row.ok_or_else(|| Failure::invalid("expected the time"))?;
    Columns::new(&row).time()
}

/// Reads a task unless it counts as removed at `now`.
pub(super) async fn read(
    client: &impl GenericClient,
    id: TaskId,
    now: Timestamp,
) -> Result<Option<StoredTask>, Failure> {
    read_with(client, READ, id, now).await
}

/// Reads a task with [`READ`] or a statement with the same columns.
pub(super) async fn read_with(
    client: &impl GenericClient,
    sql: &str,
    id: TaskId,
    now: Timestamp,
) -> Result<Option<StoredTask>, Failure> {
    let row = query_opt(client, sql, &[&&id.as_bytes()[..], &time(now)]).await?;
    row.as_ref().map(stored_task).transpose()
}

/// Reads the journal of a task, in order.
pub(super) async fn journal(
    client: &impl GenericClient,
    id: TaskId,
    now: Timestamp,
) -> Result<Vec<JournalEntry>, Failure> {
    let rows = query(client, JOURNAL, &[&&id.as_bytes()[..], &time(now)]).await?;
    let entries = rows.iter().map(|row| {
        let mut columns = Columns::new(row);
        let kind = columns.named(JournalKind::from_name)?;
        let name: String = columns.next()?;
        Ok(JournalEntry::new(kind, name, columns.json()?))
    });
    entries.collect()
}

/// Reads a page of a principal's tasks.
pub(super) async fn list(
    client: &impl GenericClient,
    principal: &str,
    after: Option<ListPosition>,
    max: usize,
    now: Timestamp,
) -> Result<TaskPage, Failure> {
    // A time before all others.
    let (created_at, id) = match &after {
        Some(position) => (time(position.created_at), position.id.as_bytes().as_slice()),
        None => (-1, [].as_slice()),
    };
    let limit = integer(max.saturating_add(1));
    let values: [&(dyn ToSql + Sync); 5] = [&principal, &created_at, &id, &time(now), &limit];
    let rows = query(client, LIST, &values).await?;
    let tasks = rows.iter().map(|row| {
        let mut columns = Columns::new(row);
        Ok(TaskSummary {
            id: columns.task_id()?,
            status: columns.named(TaskStatus::from_name)?,
            ttl: columns.optional_duration()?,
            poll_interval: columns.optional_duration()?,
            created_at: columns.time()?,
            updated_at: columns.time()?,
            status_message: columns.next()?,
        })
    });
    let tasks: Result<Vec<_>, Failure> = tasks.collect();
    Ok(TaskPage::new(tasks?, max))
}

/// Reads the columns of a record, in their order.
pub(super) fn stored_task(row: &Row) -> Result<StoredTask, Failure> {
    let mut columns = Columns::new(row);
    Ok(StoredTask {
        number: columns.next()?,
        principal: columns.next()?,
        journal_bytes: columns.size()?,
        record: record(&mut columns)?,
    })
}

fn record(columns: &mut Columns<'_>) -> Result<TaskRecord, Failure> {
    let id = columns.task_id()?;
    // Records and requests can be made from `NewTask` only; what is stored is assigned below.
    let owner = ReplicaId::from_bytes([0; 16]);
    let new = NewTask::new(id, "", owner, Duration::ZERO);
    let (mut record, _) = new.into_record(Timestamp::default());
    record.principal = columns.next::<Option<String>>()?.map(Arc::from);
    record.run_mode = columns.named(RunMode::from_name)?;
    record.ttl = columns.optional_duration()?;
    record.poll_interval = columns.optional_duration()?;
    record.status_message = columns.next()?;
    record.questions = columns.inputs()?;
    record.answers = columns.inputs()?;
    record.is_cancel_requested = columns.next()?;
    record.outcome = columns.outcome()?;
    record.created_at = columns.time()?;
    record.updated_at = columns.time()?;
    record.expires_at = columns.optional_time()?;
    record.remove_at = columns.optional_time()?;
    record.owner = ReplicaId::from_bytes(columns.array()?);
    record.attempt = columns.attempt()?;
    record.leased_until = columns.optional_time()?;
    record.version = columns.version()?;
    let request = Arc::make_mut(&mut record.request);
    request.tool = columns.next()?;
    request.arguments = columns.json()?;
    request.meta = columns.optional_json()?;
    request.context = columns.optional_json()?;
    Ok(record)
}

pub(super) async fn query(
    client: &impl GenericClient,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Failure> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, values).await?)
}

pub(super) async fn query_opt(
    client: &impl GenericClient,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Option<Row>, Failure> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_opt(&statement, values).await?)
}

/// Reads the columns of a row one after the other.
pub(super) struct Columns<'a> {
    row: &'a Row,
    next: usize,
}

impl<'a> Columns<'a> {
    pub(super) fn new(row: &'a Row) -> Self {
        Self { row, next: 0 }
    }

    pub(super) fn next<T: FromSql<'a>>(&mut self) -> Result<T, Failure> {
        let index = self.next;
        self.next += 1;
        self.row.try_get(index).map_err(Failure::invalid)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let bytes: &[u8] = self.next()?;
        bytes.try_into().map_err(Failure::invalid)
    }

    pub(super) fn task_id(&mut self) -> Result<TaskId, Failure> {
        self.array().map(TaskId::from_bytes)
    }

    fn number<T: TryFrom<i64>>(&mut self) -> Result<T, Failure> {
        let number: i64 = self.next()?;
        let out_of_range = |_| Failure::invalid(format!("number {number} is out of range"));
        number.try_into().map_err(out_of_range)
    }

    pub(super) fn size(&mut self) -> Result<usize, Failure> {
        self.number()
    }

    fn attempt(&mut self) -> Result<Attempt, Failure> {
        self.number().map(Attempt::from_number)
    }

    pub(super) fn version(&mut self) -> Result<Version, Failure> {
        self.number().map(Version::from_number)
    }

    pub(super) fn optional_time(&mut self) -> Result<Option<Timestamp>, Failure> {
        let Some(millis) = self.next::<Option<i64>>()? else {
            return Ok(None);
        };
        let millis = u64::try_from(millis).map_err(Failure::invalid)?;
        Ok(Some(Timestamp::from_millis(millis)))
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, Failure> {
        let time = self.optional_time()?;
        time.ok_or_else(|| Failure::invalid("expected a time"))
    }

    fn optional_duration(&mut self) -> Result<Option<Duration>, Failure> {
        let millis = self.optional_time()?;
        Ok(millis.map(|millis| Duration::from_millis(millis.as_millis())))
    }

    fn named<T>(&mut self, from_name: fn(&str) -> Option<T>) -> Result<T, Failure> {
        let name: &str = self.next()?;
        from_name(name).ok_or_else(|| Failure::invalid(format!("unknown name `{name}`")))
    }

    pub(super) fn json(&mut self) -> Result<Json, Failure> {
        let json = self.optional_json()?;
        json.ok_or_else(|| Failure::invalid("expected JSON"))
    }

    fn optional_json(&mut self) -> Result<Option<Json>, Failure> {
        let Some(text) = self.next::<Option<String>>()? else {
            return Ok(None);
        };
        Json::parse(text).map(Some).map_err(Failure::invalid)
    }

    fn inputs(&mut self) -> Result<BTreeMap<String, Json>, Failure> {
        match self.optional_json()? {
            None => Ok(BTreeMap::new()),
            Some(json) => json.decode().map_err(Failure::invalid),
        }
    }

    /// Reads the status and what belongs to it.
    fn outcome(&mut self) -> Result<Option<TaskOutcome>, Failure> {
        let status = self.named(TaskStatus::from_name)?;
        let value = self.optional_json()?;
        match (status, value) {
            (TaskStatus::Working | TaskStatus::InputRequired, None) => Ok(None),
            (TaskStatus::Completed, Some(result)) => Ok(Some(TaskOutcome::Completed(result))),
            (TaskStatus::Cancelled, None) => Ok(Some(TaskOutcome::Cancelled)),
            (TaskStatus::Failed, Some(error)) => {
                let error: RpcError = error.decode().map_err(Failure::invalid)?;
                Ok(Some(TaskOutcome::Failed(error)))
            }
            _ => Err(Failure::invalid(
                "expected an outcome for a finished task only",
            )),
        }
    }
}

/// Returns the text of what belongs to the status of a finished task.
pub(super) fn outcome_text(outcome: Option<&TaskOutcome>) -> Result<Option<Json>, Failure> {
    match outcome {
        Some(TaskOutcome::Completed(result)) => Ok(Some(result.clone())),
        Some(TaskOutcome::Failed(error)) => Json::encode(error).map(Some).map_err(Failure::invalid),
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
    duration.map(|duration| time(Timestamp::default().after(duration)))
}

pub(super) fn version(version: Version) -> i64 {
    i64::try_from(version.number()).unwrap_or(i64::MAX)
}

/// Returns a size or count; one that is too large for the database means "all".
pub(super) fn integer(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
