//! [`WriteTransaction`]: the operations that change tasks, each of them a transaction.

use std::time::Duration;

use bowline_tasks::store::{
    Appended, Applied, Fence, HeldTask, JournalEntry, NewTask, Renewal, StoreError, TaskChange,
    TaskRecord, Timestamp, Updated, Usage, Version,
};
use bowline_tasks::{ReplicaId, TaskId};
use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::Settings;
use super::error::Failure;
use super::rows::{
    self, Columns, StoredTask, inputs_text, integer, optional_millis, optional_time, outcome_text,
    time, version,
};
use super::statements::{
    ADD_ENTRY, ADD_JOURNAL_BYTES, ADD_PRINCIPAL, ADD_TASK, ADD_USAGE, CHANGE, CLAIM, EXPIRED, HELD,
    LOCK_USAGE, NOTIFY, PRINCIPAL, READ_ENTRY, READ_LOCKED, REMOVABLE, REMOVE, REMOVE_JOURNAL,
    REMOVE_UNUSED_PRINCIPAL, RENEW, USAGE,
};

/// A transaction at one time.
pub(super) struct WriteTransaction<'a> {
    transaction: Transaction<'a>,
    settings: &'a Settings,
    now: Timestamp,
}

impl<'a> WriteTransaction<'a> {
    pub(super) async fn begin(
        transaction: Transaction<'a>,
        settings: &'a Settings,
    ) -> Result<Self, Failure> {
        let now = match &settings.clock {
            Some(clock) => clock.now(),
            None => rows::now(&transaction).await?,
        };
        Ok(Self {
            transaction,
            settings,
            now,
        })
    }

    pub(super) async fn commit(self) -> Result<(), Failure> {
        Ok(self.transaction.commit().await?)
    }

    /// Stores a task. The inner error is for the caller; what was removed for the task stays removed.
    pub(super) async fn create(
        &mut self,
        task: NewTask,
    ) -> Result<Result<TaskRecord, StoreError>, Failure> {
        let (record, journal) = task.into_record(self.now);
        let existing = self.removable(record.id).await?;
        self.execute(LOCK_USAGE, &[]).await?;
        if let Some(existing) = existing {
            if !existing.is_removed {
                return Ok(Err(StoreError::AlreadyExists { id: record.id }));
            }
            self.remove(&existing).await?;
        }
        let journal_bytes = journal.iter().map(JournalEntry::size).sum();
        let bytes = record.size() + journal_bytes;
        if let Err(error) = self.make_room(&record, bytes).await? {
            return Ok(Err(error));
        }
        let stored = StoredTask {
            number: 0,
            principal: self.principal_or_new(record.principal.as_deref()).await?,
            journal_bytes,
            record,
        };
        if !self.insert(&stored, &journal).await? {
            let id = stored.record.id;
            return Err(StoreError::AlreadyExists { id }.into());
        }
        Ok(Ok(stored.record))
    }

    pub(super) async fn update(
        &mut self,
        id: TaskId,
        expected: Version,
        change: TaskChange,
    ) -> Result<Updated, Failure> {
        let stored = rows::read_with(&self.transaction, READ_LOCKED, id, self.now).await?;
        let Some(mut stored) = stored else {
            return Ok(Updated::NotFound);
        };
        let before = stored.record.size() + stored.journal_bytes;
        match stored.record.apply(expected, change, self.now) {
            Applied::Changed => {}
            Applied::Unchanged => return Ok(Updated::Done(expected)),
            Applied::Conflict => return Ok(Updated::Conflict(Box::new(stored.record))),
            Applied::LeaseLost => return Ok(Updated::LeaseLost),
        }
        let is_finished = stored.record.is_finished();
        if is_finished {
            stored.journal_bytes = 0;
            self.execute(REMOVE_JOURNAL, &[&stored.number]).await?;
        }
        let after = stored.record.size() + stored.journal_bytes;
        self.save(&stored).await?;
        // The usage of all is locked only if it changes: most updates are status messages and questions of small tasks.
        if before != after || is_finished {
            self.execute(LOCK_USAGE, &[]).await?;
            self.check_growth(stored.principal, before, after).await?;
            let growth = integer(after) - integer(before);
            self.add_usage(stored.principal, 0, -i64::from(is_finished), growth)
                .await?;
        }
        self.notify(id, stored.record.version).await?;
        Ok(Updated::Done(stored.record.version))
    }

    pub(super) async fn append(
        &mut self,
        id: TaskId,
        fence: Fence,
        entry: &JournalEntry,
    ) -> Result<Appended, Failure> {
        let (owner, attempt) = (
            &fence.owner.as_bytes()[..],
            i64::from(fence.attempt.number()),
        );
        let values: [&(dyn ToSql + Sync); 4] =
            [&&id.as_bytes()[..], &owner, &attempt, &time(self.now)];
        let Some(row) = self.query_opt(HELD, &values).await? else {
            return Ok(Appended::LeaseLost);
        };
        let mut columns = Columns::new(&row);
        let (number, principal): (i64, i64) = (columns.next()?, columns.next()?);
        let before = columns.size()? + columns.size()?;
        let values: [&(dyn ToSql + Sync); 3] = [&number, &entry.kind.as_str(), &entry.name];
        if let Some(row) = self.query_opt(READ_ENTRY, &values).await? {
            return Ok(Appended::Existing(Columns::new(&row).json()?));
        }
        let growth = entry.size();
        self.execute(LOCK_USAGE, &[]).await?;
        self.check_growth(principal, before, before + growth)
            .await?;
        self.add_entry(number, entry).await?;
        let growth = integer(growth);
        self.execute(ADD_JOURNAL_BYTES, &[&number, &growth]).await?;
        self.add_usage(principal, 0, 0, growth).await?;
        Ok(Appended::Done)
    }

    pub(super) async fn claim(
        &mut self,
        owner: ReplicaId,
        lease: Duration,
        max: usize,
    ) -> Result<Vec<TaskRecord>, Failure> {
        let until = time(self.now.after(lease));
        let values: [&(dyn ToSql + Sync); 4] = [
            &time(self.now),
            &integer(max),
            &&owner.as_bytes()[..],
            &until,
        ];
        let rows = rows::query(&self.transaction, CLAIM, &values).await?;
        let mut claimed = Vec::new();
        for row in &rows {
            let record = rows::stored_task(row)?.record;
            let expired: i64 = row.try_get(row.len() - 1)?;
            self.notify(record.id, record.version).await?;
            claimed.push((expired, record));
        }
        // The database returns them in no defined order.
        claimed.sort_by_key(|(expired, _)| *expired);
        Ok(claimed.into_iter().map(|(_, record)| record).collect())
    }

    pub(super) async fn renew(
        &mut self,
        owner: ReplicaId,
        held: &[HeldTask],
        lease: Duration,
    ) -> Result<Renewal, Failure> {
        let ids: Vec<&[u8]> = held.iter().map(|task| &task.id.as_bytes()[..]).collect();
        let attempts = held.iter().map(|task| i64::from(task.attempt.number()));
        let attempts: Vec<i64> = attempts.collect();
        let until = time(self.now.after(lease));
        let values: [&(dyn ToSql + Sync); 5] = [
            &&owner.as_bytes()[..],
            &ids,
            &attempts,
            &until,
            &time(self.now),
        ];
        let mut versions = std::collections::BTreeMap::new();
        for row in rows::query(&self.transaction, RENEW, &values).await? {
            let mut columns = Columns::new(&row);
            versions.insert(columns.task_id()?, columns.version()?);
        }
        let mut renewal = Renewal::default();
        for task in held {
            match versions.get(&task.id) {
                None => renewal.lost.push(task.id),
                Some(version) if *version != task.version => renewal.changed.push(task.id),
                Some(_) => {}
            }
        }
        Ok(renewal)
    }

    pub(super) async fn delete(&mut self, id: TaskId) -> Result<bool, Failure> {
        let Some(task) = self.removable(id).await? else {
            return Ok(false);
        };
        self.execute(LOCK_USAGE, &[]).await?;
        self.remove(&task).await?;
        Ok(!task.is_removed)
    }

    pub(super) async fn remove_expired(&mut self, max: usize) -> Result<usize, Failure> {
        let values: [&(dyn ToSql + Sync); 2] = [&time(self.now), &integer(max)];
        let rows = rows::query(&self.transaction, EXPIRED, &values).await?;
        if !rows.is_empty() {
            self.execute(LOCK_USAGE, &[]).await?;
        }
        for row in &rows {
            self.remove(&RemovableTask::read(row, self.now)?).await?;
        }
        Ok(rows.len())
    }

    /// Checks the limits for a new task. Expired tasks are absent and must not count, so they are removed if the task
    /// would exceed a limit.
    async fn make_room(
        &mut self,
        record: &TaskRecord,
        bytes: usize,
    ) -> Result<Result<(), StoreError>, Failure> {
        loop {
            let principal = match self.principal(record.principal.as_deref()).await? {
                Some(principal) => self.usage(principal).await?,
                None => Usage::default(),
            };
            let total = self.usage(ALL).await?;
            let Settings { limits, name, .. } = self.settings;
            let checked = limits.check_create(name, bytes, principal, total);
            let is_final = matches!(checked, Ok(()) | Err(StoreError::TooLarge { .. }));
            if is_final || self.remove_expired(REMOVED_AT_ONCE).await? == 0 {
                return Ok(checked);
            }
        }
    }

    async fn check_growth(
        &self,
        principal: i64,
        before: usize,
        after: usize,
    ) -> Result<(), Failure> {
        let (principal, total) = (self.usage(principal).await?, self.usage(ALL).await?);
        let Settings { limits, name, .. } = self.settings;
        Ok(limits.check_growth(name, before, after, principal, total)?)
    }

    async fn principal(&self, name: Option<&str>) -> Result<Option<i64>, Failure> {
        let Some(name) = name else {
            return Ok(Some(ANONYMOUS));
        };
        let row = self.query_opt(PRINCIPAL, &[&name]).await?;
        row.map(|row| Columns::new(&row).next()).transpose()
    }

    /// Row 0 is locked, so that no other transaction adds or removes a principal.
    async fn principal_or_new(&self, name: Option<&str>) -> Result<i64, Failure> {
        if let Some(principal) = self.principal(name).await? {
            return Ok(principal);
        }
        let row = self.query_opt(ADD_PRINCIPAL, &[&name]).await?;
        let row = row.ok_or_else(|| Failure::invalid("expected the new principal"))?;
        Columns::new(&row).next()
    }

    async fn usage(&self, principal: i64) -> Result<Usage, Failure> {
        let row = self.query_opt(USAGE, &[&principal]).await?;
        let row = row.ok_or_else(|| Failure::invalid("expected the usage of a principal"))?;
        let mut columns = Columns::new(&row);
        Ok(Usage {
            tasks: columns.size()?,
            unfinished: columns.size()?,
            bytes: columns.size()?,
        })
    }

    async fn add_usage(
        &self,
        principal: i64,
        tasks: i64,
        unfinished: i64,
        bytes: i64,
    ) -> Result<(), Failure> {
        let values: [&(dyn ToSql + Sync); 4] = [&principal, &tasks, &unfinished, &bytes];
        self.execute(ADD_USAGE, &values).await
    }

    /// Returns whether the id was free: another transaction may have used it a moment ago.
    async fn insert(&self, task: &StoredTask, journal: &[JournalEntry]) -> Result<bool, Failure> {
        let (record, request) = (&task.record, &task.record.request);
        let values: [&(dyn ToSql + Sync); 22] = [
            &&record.id.as_bytes()[..],
            &task.principal,
            &version(record.version),
            &record.status().as_str(),
            &record.run_mode.as_str(),
            &record.is_cancel_requested,
            &optional_millis(record.ttl),
            &optional_millis(record.poll_interval),
            &time(record.created_at),
            &time(record.updated_at),
            &optional_time(record.expires_at),
            &optional_time(record.remove_at),
            &&record.owner.as_bytes()[..],
            &i64::from(record.attempt.number()),
            &optional_time(record.leased_until),
            &integer(record.size()),
            &integer(task.journal_bytes),
            &record.status_message,
            &request.tool,
            &request.arguments.as_str(),
            &request.meta.as_ref().map(|meta| meta.as_str()),
            &request.context.as_ref().map(|context| context.as_str()),
        ];
        let Some(row) = self.query_opt(ADD_TASK, &values).await? else {
            return Ok(false);
        };
        let number: i64 = Columns::new(&row).next()?;
        for entry in journal {
            self.add_entry(number, entry).await?;
        }
        let bytes = integer(record.size() + task.journal_bytes);
        self.add_usage(task.principal, 1, 1, bytes).await?;
        self.notify(record.id, record.version).await?;
        Ok(true)
    }

    /// Writes what an update has changed.
    async fn save(&self, task: &StoredTask) -> Result<(), Failure> {
        let record = &task.record;
        let (questions, answers) = (inputs_text(&record.questions), inputs_text(&record.answers));
        let outcome = outcome_text(record.outcome.as_ref())?;
        let values: [&(dyn ToSql + Sync); 12] = [
            &task.number,
            &version(record.version),
            &record.status().as_str(),
            &record.is_cancel_requested,
            &time(record.updated_at),
            &integer(record.size()),
            &record.status_message,
            &questions.as_ref().map(|text| text.as_str()),
            &answers.as_ref().map(|text| text.as_str()),
            &outcome.as_ref().map(|text| text.as_str()),
            &optional_time(record.leased_until),
            &integer(task.journal_bytes),
        ];
        self.execute(CHANGE, &values).await
    }

    async fn add_entry(&self, task: i64, entry: &JournalEntry) -> Result<(), Failure> {
        let (kind, value) = (entry.kind.as_str(), entry.value.as_str());
        self.execute(ADD_ENTRY, &[&task, &kind, &entry.name, &value])
            .await
    }

    async fn removable(&self, id: TaskId) -> Result<Option<RemovableTask>, Failure> {
        let row = self.query_opt(REMOVABLE, &[&&id.as_bytes()[..]]).await?;
        row.map(|row| RemovableTask::read(&row, self.now))
            .transpose()
    }

    /// Removes a task from all tables.
    async fn remove(&self, task: &RemovableTask) -> Result<(), Failure> {
        self.execute(REMOVE, &[&task.number]).await?;
        let unfinished = i64::from(task.is_unfinished);
        self.add_usage(task.principal, -1, -unfinished, -task.bytes)
            .await?;
        self.execute(REMOVE_UNUSED_PRINCIPAL, &[&task.principal])
            .await?;
        self.notify(task.id, task.version.next()).await
    }

    /// Sends a hint to the listeners of all processes, when the transaction is committed.
    async fn notify(&self, id: TaskId, version: Version) -> Result<(), Failure> {
        let hint = super::hints::to_text(id, version);
        self.execute(NOTIFY, &[&hint]).await
    }

    async fn query_opt(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Failure> {
        rows::query_opt(&self.transaction, sql, values).await
    }

    async fn execute(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<(), Failure> {
        let statement = self.transaction.prepare_cached(sql).await?;
        self.transaction.execute(&statement, values).await?;
        Ok(())
    }
}

/// What is subtracted from the usage when a task is removed.
struct RemovableTask {
    number: i64,
    id: TaskId,
    principal: i64,
    version: Version,
    bytes: i64,
    is_unfinished: bool,
    is_removed: bool,
}

impl RemovableTask {
    fn read(row: &Row, now: Timestamp) -> Result<Self, Failure> {
        let mut columns = Columns::new(row);
        Ok(Self {
            number: columns.next()?,
            id: columns.task_id()?,
            principal: columns.next()?,
            version: columns.version()?,
            bytes: columns.next()?,
            is_unfinished: columns.next()?,
            is_removed: columns.optional_time()?.is_some_and(|at| at <= now),
        })
    }
}

/// The row of all principals together.
const ALL: i64 = 0;
/// The row of anonymous callers.
const ANONYMOUS: i64 = 1;
const REMOVED_AT_ONCE: usize = 256;
