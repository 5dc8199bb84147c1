//! [`MemoryStore`]: tasks in the memory of one process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bowline_types::Json;

use super::{
    Appended, Applied, ChangeFeed, Clock, Fence, HeldTask, JournalEntry, JournalKind, ListPosition,
    NewTask, Renewal, StoreError, StoreFuture, StoreLimits, SystemClock, TaskChange, TaskChanges,
    TaskPage, TaskRecord, TaskStore, Timestamp, Updated, Usage, Version,
};
use crate::sync::Mutex;
use crate::{ReplicaId, TaskId};

/// A bounded store in memory. Its tasks end with the process.
///
/// When it is full it refuses new tasks; it never evicts one before its time to live ends.
pub struct MemoryStore {
    name: Arc<str>,
    limits: StoreLimits,
    clock: Arc<dyn Clock>,
    feed: ChangeFeed,
    tables: Mutex<Tables>,
}

impl MemoryStore {
    /// Creates an empty store with the limits 100,000 tasks and 256 MiB together, and otherwise those of
    /// [`StoreLimits::new`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            name: "the task store in memory".into(),
            limits: StoreLimits::new().max_tasks(100_000).max_bytes(MAX_BYTES),
            clock: Arc::new(SystemClock),
            feed: ChangeFeed::new(),
            tables: Mutex::new(Tables::default()),
        }
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: StoreLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the clock that decides when leases and records expire, for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    fn insert(&self, task: NewTask) -> Result<TaskRecord, StoreError> {
        let now = self.clock.now();
        let (record, journal) = task.into_record(now);
        let entry = Box::new(Entry::new(record, journal));
        let mut tables = self.tables.lock();
        // Expired records are absent, so they must not count for a quota either.
        drop(tables.remove_expired(now, usize::MAX));
        if tables.entries.contains_key(&entry.record.id) {
            let id = entry.record.id;
            return Err(StoreError::AlreadyExists { id });
        }
        let principal = tables.usage(&entry.record);
        let total = tables.total;
        self.limits
            .check_create(&self.name, entry.size(), principal, total)?;
        let record = entry.record.clone();
        tables.add(entry);
        Ok(record)
    }

    fn change(
        &self,
        id: TaskId,
        expected: Version,
        change: TaskChange,
    ) -> Result<Updated, StoreError> {
        let now = self.clock.now();
        let mut tables = self.tables.lock();
        let Some(entry) = tables.current(id, now) else {
            return Ok(Updated::NotFound);
        };
        let mut record = entry.record.clone();
        match record.apply(expected, change, now) {
            Applied::Changed => {}
            Applied::Unchanged => return Ok(Updated::Done(expected)),
            Applied::Conflict => return Ok(Updated::Conflict(Box::new(record))),
            Applied::LeaseLost => return Ok(Updated::LeaseLost),
        }
        let journal_bytes = match record.is_finished() {
            true => 0,
            false => entry.journal_bytes,
        };
        let (before, after) = (entry.size(), record.size() + journal_bytes);
        let (principal, total) = (tables.usage(&record), tables.total);
        self.limits
            .check_growth(&self.name, before, after, principal, total)?;
        let version = record.version;
        tables.replace(record);
        Ok(Updated::Done(version))
    }

    fn append_entry(
        &self,
        id: TaskId,
        fence: Fence,
        entry: JournalEntry,
    ) -> Result<Appended, StoreError> {
        let now = self.clock.now();
        let mut tables = self.tables.lock();
        let held = tables.current(id, now);
        let Some(task) = held.filter(|task| task.record.is_held_by(fence)) else {
            return Ok(Appended::LeaseLost);
        };
        let key = (entry.kind, entry.name.clone());
        if let Some((_, value)) = task.journal.get(&key) {
            return Ok(Appended::Existing(value.clone()));
        }
        let (before, principal) = (task.size(), tables.usage(&task.record));
        let after = before + entry.size();
        self.limits
            .check_growth(&self.name, before, after, principal, tables.total)?;
        tables.append(id, entry);
        Ok(Appended::Done)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = self.tables.lock().total;
        f.debug_struct("MemoryStore")
            .field("limits", &self.limits)
            .field("usage", &usage)
            .finish_non_exhaustive()
    }
}

impl TaskStore for MemoryStore {
    fn create(&self, task: NewTask) -> StoreFuture<'_, TaskRecord> {
        Box::pin(async move {
            let record = self.insert(task)?;
            self.feed.send(record.id, record.version);
            Ok(record)
        })
    }

    fn read(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRecord>> {
        Box::pin(async move {
            let now = self.clock.now();
            let tables = self.tables.lock();
            Ok(tables.current(id, now).map(|entry| entry.record.clone()))
        })
    }

    fn update(
        &self,
        id: TaskId,
        expected: Version,
        change: TaskChange,
    ) -> StoreFuture<'_, Updated> {
        Box::pin(async move {
            let updated = self.change(id, expected, change)?;
            if let Updated::Done(version) = updated {
                // A change without effect keeps the version, and is no reason to read the record.
                if version != expected {
                    self.feed.send(id, version);
                }
            }
            Ok(updated)
        })
    }

    fn append(&self, id: TaskId, fence: Fence, entry: JournalEntry) -> StoreFuture<'_, Appended> {
        Box::pin(async move { self.append_entry(id, fence, entry) })
    }

    fn journal(&self, id: TaskId) -> StoreFuture<'_, Vec<JournalEntry>> {
        Box::pin(async move {
            let now = self.clock.now();
            let tables = self.tables.lock();
            let entry = tables.current(id, now);
            Ok(entry.map_or_else(Vec::new, Entry::journal))
        })
    }

    fn claim(
        &self,
        owner: ReplicaId,
        lease: Duration,
        max: usize,
    ) -> StoreFuture<'_, Vec<TaskRecord>> {
        Box::pin(async move {
            let now = self.clock.now();
            let claimed = self.tables.lock().claim(owner, now, now.after(lease), max);
            for record in &claimed {
                self.feed.send(record.id, record.version);
            }
            Ok(claimed)
        })
    }

    fn renew<'a>(
        &'a self,
        owner: ReplicaId,
        held: &'a [HeldTask],
        lease: Duration,
    ) -> StoreFuture<'a, Renewal> {
        Box::pin(async move {
            let now = self.clock.now();
            let mut tables = self.tables.lock();
            let mut renewal = Renewal::default();
            for task in held {
                match tables.renew(owner, task, now, now.after(lease)) {
                    None => renewal.lost.push(task.id),
                    Some(version) if version != task.version => renewal.changed.push(task.id),
                    Some(_) => {}
                }
            }
            Ok(renewal)
        })
    }

    fn list<'a>(
        &'a self,
        principal: &'a str,
        after: Option<ListPosition>,
        max: usize,
    ) -> StoreFuture<'a, TaskPage> {
        Box::pin(async move {
            let now = self.clock.now();
            let tables = self.tables.lock();
            let key = Some(Arc::from(principal));
            let Some(owned) = tables.principals.get(&key) else {
                return Ok(TaskPage::default());
            };
            let start = after.map_or(Bound::Unbounded, Bound::Excluded);
            let tasks = owned
                .positions
                .range((start, Bound::Unbounded))
                .filter_map(|position| tables.current(position.id, now))
                .map(|entry| entry.record.summary());
            Ok(TaskPage::new(
                tasks.take(max.saturating_add(1)).collect(),
                max,
            ))
        })
    }

    fn delete(&self, id: TaskId) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let now = self.clock.now();
            let removed = self.tables.lock().take(id);
            let Some(entry) = removed.filter(|entry| !entry.record.is_removed(now)) else {
                return Ok(false);
            };
            self.feed.send(id, entry.record.version.next());
            Ok(true)
        })
    }

    fn remove_expired(&self, max: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            let now = self.clock.now();
            let removed = self.tables.lock().remove_expired(now, max);
            for entry in &removed {
                self.feed.send(entry.record.id, entry.record.version.next());
            }
            Ok(removed.len())
        })
    }

    fn changes(&self) -> TaskChanges {
        self.feed.subscribe()
    }
}

/// All tasks, with an index for each way to find them.
#[derive(Debug, Default)]
struct Tables {
    /// Boxed, because the map moves its values when others are added.
    entries: EntryMap,
    /// Unfinished tasks by the end of their lease.
    leases: BTreeSet<(Timestamp, TaskId)>,
    /// Tasks by the time of their removal.
    removals: BTreeSet<(Timestamp, TaskId)>,
    principals: BTreeMap<Option<Arc<str>>, PrincipalTasks>,
    total: Usage,
}

/// Tasks by their id. Hashed, because in a tree of random ids each level is a cache miss.
#[allow(
    clippy::disallowed_types,
    reason = "it is never iterated, so its order has no effect"
)]
type EntryMap = std::collections::HashMap<TaskId, Box<Entry>>;

#[derive(Debug, Default)]
struct PrincipalTasks {
    /// Empty for anonymous callers, which cannot list their tasks.
    positions: BTreeSet<ListPosition>,
    usage: Usage,
}

impl Tables {
    /// Returns a task unless it counts as removed.
    fn current(&self, id: TaskId, now: Timestamp) -> Option<&Entry> {
        let entry = self.entries.get(&id).map(|entry| &**entry);
        entry.filter(|entry| !entry.record.is_removed(now))
    }

    /// Returns the usage of the principal of `record`.
    fn usage(&self, record: &TaskRecord) -> Usage {
        let principal = self.principals.get(&record.principal);
        principal.map_or_else(Usage::default, |principal| principal.usage)
    }

    /// Adds a task to all indices.
    fn add(&mut self, entry: Box<Entry>) {
        let record = &entry.record;
        let owned = self.principals.entry(record.principal.clone()).or_default();
        if record.principal.is_some() {
            owned.positions.insert(record.position());
        }
        for usage in [&mut owned.usage, &mut self.total] {
            usage.tasks += 1;
            usage.unfinished += usize::from(!record.is_finished());
            usage.bytes += entry.size();
        }
        self.leases
            .extend(record.leased_until.map(|until| (until, record.id)));
        self.removals
            .extend(record.remove_at.map(|at| (at, record.id)));
        self.entries.insert(record.id, entry);
    }

    /// Removes a task from all indices.
    fn take(&mut self, id: TaskId) -> Option<Box<Entry>> {
        let entry = self.entries.remove(&id)?;
        let record = &entry.record;
        if let Some(owned) = self.principals.get_mut(&record.principal) {
            owned.positions.remove(&record.position());
            for usage in [&mut owned.usage, &mut self.total] {
                usage.tasks -= 1;
                usage.unfinished -= usize::from(!record.is_finished());
                usage.bytes -= entry.size();
            }
            if owned.usage.tasks == 0 {
                self.principals.remove(&record.principal);
            }
        }
        if let Some(until) = record.leased_until {
            self.leases.remove(&(until, id));
        }
        if let Some(at) = record.remove_at {
            self.removals.remove(&(at, id));
        }
        Some(entry)
    }

    /// Replaces the record of a task, and removes its journal if it is finished. Its principal and its times of creation
    /// and removal are those of the old record.
    fn replace(&mut self, record: TaskRecord) {
        let Some(entry) = self.entries.get_mut(&record.id) else {
            return;
        };
        let (id, bytes) = (record.id, entry.size());
        let has_finished = record.is_finished() && !entry.record.is_finished();
        if record.is_finished() {
            entry.journal.clear();
            entry.journal_bytes = 0;
        }
        let before = std::mem::replace(&mut entry.record, record);
        let (after, owned) = (&entry.record, self.principals.get_mut(&before.principal));
        for usage in owned
            .map(|owned| &mut owned.usage)
            .into_iter()
            .chain([&mut self.total])
        {
            usage.unfinished -= usize::from(has_finished);
            usage.bytes = usage.bytes - bytes + entry.size();
        }
        if before.leased_until != after.leased_until {
            if let Some(until) = before.leased_until {
                self.leases.remove(&(until, id));
            }
            self.leases
                .extend(after.leased_until.map(|until| (until, id)));
        }
    }

    fn append(&mut self, id: TaskId, added: JournalEntry) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let bytes = added.size();
        entry.push(added);
        self.total.bytes += bytes;
        if let Some(owned) = self.principals.get_mut(&entry.record.principal) {
            owned.usage.bytes += bytes;
        }
    }

    fn claim(
        &mut self,
        owner: ReplicaId,
        now: Timestamp,
        until: Timestamp,
        max: usize,
    ) -> Vec<TaskRecord> {
        let expired = self.leases.iter().take_while(|(until, _)| *until <= now);
        let expired = expired.filter_map(|(_, id)| self.current(*id, now));
        let expired = expired.take(max).map(|entry| entry.record.clone());
        let mut claimed: Vec<TaskRecord> = expired.collect();
        for record in &mut claimed {
            record.claim(owner, until);
            self.replace(record.clone());
        }
        claimed
    }

    /// Extends a lease and returns the version of the record; `None` if `owner` does not hold it.
    fn renew(
        &mut self,
        owner: ReplicaId,
        held: &HeldTask,
        now: Timestamp,
        until: Timestamp,
    ) -> Option<Version> {
        let entry = self.entries.get_mut(&held.id)?;
        let record = &mut entry.record;
        let fence = Fence {
            owner,
            attempt: held.attempt,
        };
        if !record.is_held_by(fence) || record.is_removed(now) {
            return None;
        }
        let before = record.leased_until.replace(until);
        let version = record.version;
        if let Some(before) = before {
            self.leases.remove(&(before, held.id));
        }
        self.leases.insert((until, held.id));
        Some(version)
    }

    #[allow(clippy::vec_box, reason = "they are boxed in the table")]
    fn remove_expired(&mut self, now: Timestamp, max: usize) -> Vec<Box<Entry>> {
        let expired = self.removals.iter().take_while(|(at, _)| *at <= now);
        let expired: Vec<TaskId> = expired.take(max).map(|(_, id)| *id).collect();
        expired.into_iter().filter_map(|id| self.take(id)).collect()
    }
}

/// A task with its journal.
#[derive(Debug)]
struct Entry {
    record: TaskRecord,
    /// The values by kind and name, each with its place in the order of the entries.
    journal: BTreeMap<(JournalKind, String), (usize, Json)>,
    journal_bytes: usize,
}

impl Entry {
    fn new(record: TaskRecord, journal: Vec<JournalEntry>) -> Self {
        let mut entry = Self {
            record,
            journal: BTreeMap::new(),
            journal_bytes: 0,
        };
        journal.into_iter().for_each(|added| entry.push(added));
        entry
    }

    fn push(&mut self, added: JournalEntry) {
        self.journal_bytes += added.size();
        let place = self.journal.len();
        let value = added.value.to_unshared();
        self.journal
            .insert((added.kind, added.name), (place, value));
    }

    fn size(&self) -> usize {
        self.record.size() + self.journal_bytes
    }

    fn journal(&self) -> Vec<JournalEntry> {
        let mut entries: Vec<_> = self.journal.iter().collect();
        entries.sort_by_key(|(_, (place, _))| *place);
        let entries = entries.into_iter();
        entries
            .map(|((kind, name), (_, value))| JournalEntry::new(*kind, name, value.clone()))
            .collect()
    }
}

const MAX_BYTES: usize = 256 * 1024 * 1024;
