//! [`WriteTransaction`]: the operations that change tasks, each of them in a transaction of its caller.

use bowline_types::Json;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::error::Failure;
use super::rows::{
    self, Columns, StoredTask, inputs_text, integer, optional_millis, optional_time, outcome_text,
    time, version,
};
use super::statements::{
    ADD_CHANGE, ADD_ENTRY, ADD_PRINCIPAL, ADD_REQUEST, ADD_RUN, ADD_TASK, ADD_USAGE, CHANGE,
    CLAIMABLE, EXPIRED, HELD, PRINCIPAL, READ_ENTRY, REMOVABLE, REMOVE, REMOVE_JOURNAL,
    REMOVE_UNUSED_PRINCIPAL, SET_JOURNAL_BYTES, SET_LEASE, SET_RUN, SET_VERSION, USAGE,
};
use super::{Settings, StoreError};
use crate::store::{
    Appended, Applied, Fence, HeldTask, JournalEntry, NewTask, Renewal, TaskChange, TaskRecord,
    TaskRequest, Timestamp, Updated, Usage, Version,
};
use crate::{ReplicaId, TaskId};

/// The part of a transaction that one operation performs.
#[derive(Debug)]
pub(super) struct WriteTransaction<'a> {
    connection: &'a Connection,
    settings: &'a Settings,
    now: Timestamp,
    hints: Vec<(TaskId, Version)>,
}

impl<'a> WriteTransaction<'a> {
    pub(super) fn new(connection: &'a Connection, settings: &'a Settings) -> Self {
        Self {
            connection,
            settings,
            // Read while the database is locked, so that a later transaction has a later time.
            now: settings.clock.now(),
            hints: Vec::new(),
        }
    }

    /// Returns the records that were changed.
    pub(super) fn into_hints(self) -> Vec<(TaskId, Version)> {
        self.hints
    }

    /// Stores a task. The inner error is for the caller; what was removed for the task stays removed.
    pub(super) fn create(
        &mut self,
        task: NewTask,
    ) -> Result<Result<TaskRecord, StoreError>, Failure> {
        let (record, journal) = task.into_record(self.now);
        if let Some(existing) = self.removable(record.id)? {
            if !existing.is_removed {
                return Ok(Err(StoreError::AlreadyExists { id: record.id }));
            }
            self.remove(&existing)?;
        }
        let journal_bytes = journal.iter().map(JournalEntry::size).sum();
        if let Err(error) = self.make_room(&record, record.size() + journal_bytes)? {
            return Ok(Err(error));
        }
        let stored = StoredTask {
            number: 0,
            principal: self.principal_or_new(record.principal.as_deref())?,
            journal_bytes,
            record,
        };
        self.insert(&stored, &journal)?;
        Ok(Ok(stored.record))
    }

    pub(super) fn update(
        &mut self,
        id: TaskId,
        expected: Version,
        change: TaskChange,
    ) -> Result<Updated, Failure> {
        let Some(mut stored) = rows::read(self.connection, id, self.now)? else {
            return Ok(Updated::NotFound);
        };
        let before = (stored.record.size(), stored.journal_bytes);
        match stored.record.apply(expected, change, self.now) {
            Applied::Changed => {}
            Applied::Unchanged => return Ok(Updated::Done(expected)),
            Applied::Conflict => return Ok(Updated::Conflict(Box::new(stored.record))),
            Applied::LeaseLost => return Ok(Updated::LeaseLost),
        }
        if stored.record.is_finished() {
            stored.journal_bytes = 0;
            self.execute(REMOVE_JOURNAL, params![stored.number])?;
        }
        let before = before.0 + before.1;
        let after = stored.record.size() + stored.journal_bytes;
        self.check_growth(stored.principal, before, after)?;
        self.save(&stored)?;
        let finished = i64::from(stored.record.is_finished());
        self.add_usage(stored.principal, 0, -finished, difference(before, after))?;
        self.log(id, stored.record.version)?;
        Ok(Updated::Done(stored.record.version))
    }

    pub(super) fn append(
        &mut self,
        id: TaskId,
        fence: Fence,
        entry: &JournalEntry,
    ) -> Result<Appended, Failure> {
        let Some(held) = self.held(id, fence)? else {
            return Ok(Appended::LeaseLost);
        };
        if let Some(existing) = self.entry(held.number, entry)? {
            return Ok(Appended::Existing(existing));
        }
        let before = held.bytes + held.journal_bytes;
        self.check_growth(held.principal, before, before + entry.size())?;
        self.add_entry(held.number, entry)?;
        let journal_bytes = integer(held.journal_bytes + entry.size());
        self.execute(SET_JOURNAL_BYTES, params![held.number, journal_bytes])?;
        self.add_usage(held.principal, 0, 0, integer(entry.size()))?;
        Ok(Appended::Done)
    }

    pub(super) fn claim(
        &mut self,
        owner: ReplicaId,
        leased_until: Timestamp,
        max: usize,
    ) -> Result<Vec<TaskRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(CLAIMABLE)?;
        let ids = statement.query_map(params![time(self.now), integer(max)], |row| {
            Ok(TaskId::from_bytes(row.get(0)?))
        })?;
        let ids: Vec<TaskId> = ids.collect::<rusqlite::Result<_>>()?;
        let mut claimed = Vec::new();
        for id in ids {
            let Some(mut stored) = rows::read(self.connection, id, self.now)? else {
                continue;
            };
            stored.record.claim(owner, leased_until);
            let record = &stored.record;
            let values = params![stored.number, version(record.version)];
            self.execute(SET_VERSION, values)?;
            self.save_run(SET_RUN, stored.number, record, stored.journal_bytes)?;
            self.log(id, record.version)?;
            claimed.push(stored.record);
        }
        Ok(claimed)
    }

    pub(super) fn renew(
        &mut self,
        owner: ReplicaId,
        held: &[HeldTask],
        leased_until: Timestamp,
    ) -> Result<Renewal, Failure> {
        let mut renewal = Renewal::default();
        for task in held {
            let attempt = task.attempt;
            let Some(row) = self.held(task.id, Fence { owner, attempt })? else {
                renewal.lost.push(task.id);
                continue;
            };
            self.execute(SET_LEASE, params![row.number, time(leased_until)])?;
            if row.version != task.version {
                renewal.changed.push(task.id);
            }
        }
        Ok(renewal)
    }

    pub(super) fn delete(&mut self, id: TaskId) -> Result<bool, Failure> {
        let Some(task) = self.removable(id)? else {
            return Ok(false);
        };
        self.remove(&task)?;
        Ok(!task.is_removed)
    }

    pub(super) fn remove_expired(&mut self, max: usize) -> Result<usize, Failure> {
        let mut statement = self.connection.prepare_cached(EXPIRED)?;
        let values = params![time(self.now), integer(max)];
        let expired = statement.query_map(values, |row| RemovableTask::read(row, self.now))?;
        let expired: Vec<RemovableTask> = expired.collect::<rusqlite::Result<_>>()?;
        for task in &expired {
            self.remove(task)?;
        }
        Ok(expired.len())
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn set_pragma(&self, name: &str, value: i64) -> rusqlite::Result<()> {
        // Some pragmas return the value, others return no row.
        self.connection.pragma(None, name, value, |_| Ok(()))
    }

    /// Checks the limits for a new task. Expired tasks are absent and must not count, so they are removed if the task
    /// would exceed a limit.
    fn make_room(
        &mut self,
        record: &TaskRecord,
        bytes: usize,
    ) -> Result<Result<(), StoreError>, Failure> {
        loop {
            let principal = match self.principal(record.principal.as_deref())? {
                Some(principal) => self.usage(principal)?,
                None => Usage::default(),
            };
            let total = self.usage(ALL)?;
            let (limits, store) = (&self.settings.limits, &self.settings.name);
            let checked = limits.check_create(store, bytes, principal, total);
            let is_final = matches!(checked, Ok(()) | Err(StoreError::TooLarge { .. }));
            if is_final || self.remove_expired(REMOVED_AT_ONCE)? == 0 {
                return Ok(checked);
            }
        }
    }

    fn check_growth(&self, principal: i64, before: usize, after: usize) -> Result<(), Failure> {
        let (principal, total) = (self.usage(principal)?, self.usage(ALL)?);
        let (limits, store) = (&self.settings.limits, &self.settings.name);
        Ok(limits.check_growth(store, before, after, principal, total)?)
    }

    fn principal(&self, name: Option<&str>) -> rusqlite::Result<Option<i64>> {
        let Some(name) = name else {
            return Ok(Some(ANONYMOUS));
        };
        let mut statement = self.connection.prepare_cached(PRINCIPAL)?;
        statement.query_row([name], |row| row.get(0)).optional()
    }

    fn principal_or_new(&self, name: Option<&str>) -> rusqlite::Result<i64> {
        if let Some(principal) = self.principal(name)? {
            return Ok(principal);
        }
        self.execute(ADD_PRINCIPAL, params![name])?;
        Ok(self.connection.last_insert_rowid())
    }

    fn usage(&self, principal: i64) -> rusqlite::Result<Usage> {
        let mut statement = self.connection.prepare_cached(USAGE)?;
        statement.query_row([principal], |row| {
            let mut columns = Columns::new(row);
            Ok(Usage {
                tasks: columns.size()?,
                unfinished: columns.size()?,
                bytes: columns.size()?,
            })
        })
    }

    fn add_usage(
        &self,
        principal: i64,
        tasks: i64,
        unfinished: i64,
        bytes: i64,
    ) -> rusqlite::Result<()> {
        self.execute(ADD_USAGE, params![principal, tasks, unfinished, bytes])
    }

    fn insert(&mut self, task: &StoredTask, journal: &[JournalEntry]) -> Result<(), Failure> {
        let record = &task.record;
        let values = params![
            record.id.as_bytes(),
            task.principal,
            version(record.version),
            record.status().as_str(),
            record.run_mode.as_str(),
            record.is_cancel_requested,
            optional_millis(record.ttl),
            optional_millis(record.poll_interval),
            time(record.created_at),
            time(record.updated_at),
            optional_time(record.expires_at),
            optional_time(record.remove_at),
            integer(record.size()),
            record.status_message,
        ];
        self.execute(ADD_TASK, values)?;
        let number = self.connection.last_insert_rowid();
        self.save_run(ADD_RUN, number, record, task.journal_bytes)?;
        self.add_request(number, &record.request)?;
        for entry in journal {
            self.add_entry(number, entry)?;
        }
        let bytes = integer(record.size() + task.journal_bytes);
        self.add_usage(task.principal, 1, 1, bytes)?;
        self.log(record.id, record.version)?;
        Ok(())
    }

    fn add_request(&self, task: i64, request: &TaskRequest) -> rusqlite::Result<()> {
        let values = params![
            task,
            request.tool,
            request.arguments.as_str(),
            request.meta.as_ref().map(|meta| meta.as_str()),
            request.context.as_ref().map(|context| context.as_str()),
        ];
        self.execute(ADD_REQUEST, values)
    }

    /// Writes what an update has changed.
    fn save(&self, task: &StoredTask) -> Result<(), Failure> {
        let record = &task.record;
        let (questions, answers) = (inputs_text(&record.questions), inputs_text(&record.answers));
        let outcome = outcome_text(record.outcome.as_ref())?;
        let values = params![
            task.number,
            version(record.version),
            record.status().as_str(),
            record.is_cancel_requested,
            time(record.updated_at),
            integer(record.size()),
            record.status_message,
            questions.as_ref().map(|text| text.as_str()),
            answers.as_ref().map(|text| text.as_str()),
            outcome.as_ref().map(|text| text.as_str()),
        ];
        self.execute(CHANGE, values)?;
        self.save_run(SET_RUN, task.number, record, task.journal_bytes)?;
        Ok(())
    }

    /// Writes owner, attempt, lease and journal size, with [`ADD_RUN`] or [`SET_RUN`].
    fn save_run(
        &self,
        sql: &str,
        task: i64,
        record: &TaskRecord,
        journal_bytes: usize,
    ) -> rusqlite::Result<()> {
        let values = params![
            task,
            record.owner.as_bytes(),
            record.attempt.number(),
            optional_time(record.leased_until),
            integer(journal_bytes),
        ];
        self.execute(sql, values)
    }

    fn held(&self, id: TaskId, fence: Fence) -> rusqlite::Result<Option<HeldRow>> {
        let mut statement = self.connection.prepare_cached(HELD)?;
        let (owner, attempt) = (fence.owner, fence.attempt.number());
        let values = params![id.as_bytes(), owner.as_bytes(), attempt, time(self.now)];
        let row = statement.query_row(values, |row| {
            let mut columns = Columns::new(row);
            Ok(HeldRow {
                number: columns.next()?,
                principal: columns.next()?,
                version: columns.version()?,
                bytes: columns.size()?,
                journal_bytes: columns.size()?,
            })
        });
        row.optional()
    }

    fn entry(&self, task: i64, entry: &JournalEntry) -> rusqlite::Result<Option<Json>> {
        let mut statement = self.connection.prepare_cached(READ_ENTRY)?;
        let values = params![task, entry.kind.as_str(), entry.name];
        let value = statement.query_row(values, |row| Columns::new(row).json());
        value.optional()
    }

    fn add_entry(&self, task: i64, entry: &JournalEntry) -> rusqlite::Result<()> {
        let (kind, value) = (entry.kind.as_str(), entry.value.as_str());
        self.execute(ADD_ENTRY, params![task, kind, entry.name, value])
    }

    fn removable(&self, id: TaskId) -> rusqlite::Result<Option<RemovableTask>> {
        let mut statement = self.connection.prepare_cached(REMOVABLE)?;
        let task = statement.query_row([id.as_bytes()], |row| RemovableTask::read(row, self.now));
        task.optional()
    }

    /// Removes a task from all tables.
    fn remove(&mut self, task: &RemovableTask) -> rusqlite::Result<()> {
        self.execute(REMOVE, [task.number])?;
        let unfinished = i64::from(task.is_unfinished);
        self.add_usage(task.principal, -1, -unfinished, -integer(task.bytes))?;
        self.execute(REMOVE_UNUSED_PRINCIPAL, [task.principal])?;
        self.log(task.id, task.version.next())
    }

    /// Records a change for the listeners of this process and of others.
    fn log(&mut self, id: TaskId, new: Version) -> rusqlite::Result<()> {
        self.hints.push((id, new));
        self.execute(ADD_CHANGE, params![id.as_bytes(), version(new)])
    }

    fn execute(&self, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }
}

struct HeldRow {
    number: i64,
    principal: i64,
    version: Version,
    bytes: usize,
    journal_bytes: usize,
}

/// What is subtracted from the usage when a task is removed.
struct RemovableTask {
    number: i64,
    id: TaskId,
    principal: i64,
    version: Version,
    bytes: usize,
    is_unfinished: bool,
    /// Whether the task counts as removed already.
    is_removed: bool,
}

impl RemovableTask {
    fn read(row: &Row<'_>, now: Timestamp) -> rusqlite::Result<Self> {
        let mut columns = Columns::new(row);
        Ok(Self {
            number: columns.next()?,
            id: TaskId::from_bytes(columns.next()?),
            principal: columns.next()?,
            version: columns.version()?,
            bytes: columns.size()?,
            is_unfinished: columns.next()?,
            is_removed: columns.optional_time()?.is_some_and(|at| at <= now),
        })
    }
}

fn difference(before: usize, after: usize) -> i64 {
    integer(after) - integer(before)
}

/// The row of all principals together.
const ALL: i64 = 0;
/// The row of anonymous callers.
const ANONYMOUS: i64 = 1;
const REMOVED_AT_ONCE: usize = 256;
