//! [`TaskRecords`]: the parked calls that are tasks, and those that were.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::entry::Serial;

/// The tasks by the serials of their calls. A task that was cancelled stays until its time to live ends, or until there
/// are too many.
#[derive(Debug, Default)]
pub(super) struct TaskRecords(BTreeMap<Serial, TaskRecord>);

/// A task, besides the entry of its call in the table.
#[derive(Debug)]
pub(super) struct TaskRecord {
    pub(super) times: TaskTimes,
    ends_at: Instant,
    /// Dropping it stops the runner; `None` if the task was cancelled.
    runner: Option<oneshot::Sender<()>>,
    /// Whether the task has ended and its client knows, or has stopped answering.
    is_settled: bool,
}

/// The times of a task that its client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskTimes {
    pub(crate) created: SystemTime,
    pub(crate) updated: SystemTime,
    pub(crate) ttl: Duration,
}

impl TaskRecords {
    /// Adds a task. Returns the end of its runner's channel, and what was removed to make room.
    pub(super) fn insert(
        &mut self,
        serial: Serial,
        ttl: Duration,
        ends_at: Instant,
    ) -> (oneshot::Receiver<()>, Vec<TaskRecord>) {
        let removed = self.remove_surplus(Instant::now());
        let (runner, stopped) = oneshot::channel();
        let created = SystemTime::now();
        let record = TaskRecord {
            times: TaskTimes {
                created,
                updated: created,
                ttl,
            },
            ends_at,
            runner: Some(runner),
            is_settled: false,
        };
        self.0.insert(serial, record);
        (stopped, removed)
    }

    pub(super) fn get(&self, serial: Serial) -> Option<&TaskRecord> {
        self.0.get(&serial)
    }

    /// Records that a task has changed.
    pub(super) fn touch(&mut self, serial: Serial) {
        if let Some(record) = self.0.get_mut(&serial) {
            record.times.updated = SystemTime::now();
        }
    }

    /// Records that no client waits for a task that has ended.
    pub(super) fn settle(&mut self, serial: Serial) {
        if let Some(record) = self.0.get_mut(&serial) {
            record.is_settled = true;
        }
    }

    /// Returns whether a task has ended, and is only kept in case that its client looks again.
    pub(super) fn is_settled(&self, serial: Serial) -> bool {
        self.get(serial).is_some_and(|record| record.is_settled)
    }

    /// Cancels a task that was not cancelled before. Dropping what it returns stops the runner.
    pub(super) fn cancel(&mut self, serial: Serial) -> Option<oneshot::Sender<()>> {
        self.touch(serial);
        self.0.get_mut(&serial)?.runner.take()
    }

    pub(super) fn remove(&mut self, serial: Serial) -> Option<TaskRecord> {
        self.0.remove(&serial)
    }

    /// Removes cancelled tasks that have expired, and the oldest ones of too many. Others are limited by the budget.
    fn remove_surplus(&mut self, now: Instant) -> Vec<TaskRecord> {
        let is_over = |record: &TaskRecord| record.is_cancelled() && record.ends_at <= now;
        let mut removed: Vec<_> = (self.0.extract_if(.., |_, record| is_over(record)))
            .map(|(_, record)| record)
            .collect();
        while self.0.len() >= MAX_RECORDS {
            let oldest = self.0.iter().find(|(_, record)| record.is_cancelled());
            let Some(oldest) = oldest.map(|(serial, _)| *serial) else {
                break;
            };
            removed.extend(self.0.remove(&oldest));
        }
        removed
    }
}

impl TaskRecord {
    pub(super) fn is_cancelled(&self) -> bool {
        self.runner.is_none()
    }
}

/// Besides those that run, which are charged.
const MAX_RECORDS: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_tasks_make_room_for_new_ones_and_running_ones_do_not() {
        let mut records = TaskRecords::default();
        let (ttl, ends_at) = (
            Duration::from_secs(60),
            Instant::now() + Duration::from_secs(60),
        );
        let mut running = Vec::new();
        for serial in 0..MAX_RECORDS as u64 {
            running.push(records.insert(Serial(serial), ttl, ends_at));
        }
        assert!(records.cancel(Serial(3)).is_some());
        assert!(records.cancel(Serial(3)).is_none(), "it is cancelled once");

        let (_stopped, removed) = records.insert(Serial(u64::MAX), ttl, ends_at);

        assert_eq!(removed.len(), 1);
        assert!(records.get(Serial(3)).is_none());
        assert!(records.get(Serial(4)).is_some());
    }
}
