//! The resources of a process that can be counted: tasks, file descriptors, children, memory.

use std::time::Duration;

use tokio::time::Instant;

/// The resources that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResourceCounts {
    tasks: usize,
    descriptors: usize,
    children: usize,
}

impl ResourceCounts {
    pub(crate) fn now() -> Self {
        let metrics = tokio::runtime::Handle::current().metrics();
        Self {
            tasks: metrics.num_alive_tasks(),
            descriptors: descriptors(),
            children: children(),
        }
    }

    /// Asserts that the process holds as many resources as it did then; waits for tasks and sockets that are closing.
    pub(crate) async fn assert_restored(self) {
        eventually(|| Self::now() == self).await;
        assert_eq!(Self::now(), self, "resources leaked, or missing");
    }
}

/// Polls a condition for up to [`WAIT_LIMIT`]; returns whether it became true.
pub(crate) async fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + WAIT_LIMIT;
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    while !condition() {
        if ticks.tick().await > deadline {
            return condition();
        }
    }
    true
}

/// The resident memory of this process and another, in bytes; 0 where `/proc` does not exist.
pub(crate) fn memory(other: Option<i32>) -> usize {
    let other = other.map_or(0, |id| memory_of(&id.to_string()));
    memory_of("self") + other
}

fn memory_of(process: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    resident.map_or(0, |kilobytes| kilobytes.parse::<usize>().unwrap() * 1024)
}

/// The number of open file descriptors; 0 where the system does not list them.
fn descriptors() -> usize {
    std::fs::read_dir("/dev/fd").map_or(0, Iterator::count)
}

/// The number of child processes; 0 where the system does not list them.
fn children() -> usize {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let children = threads.filter_map(|thread| {
        let children = std::fs::read_to_string(thread.ok()?.path().join("children"));
        Some(children.ok()?.split_whitespace().count())
    });
    children.sum()
}

/// The time within which closed resources must be released.
const WAIT_LIMIT: Duration = Duration::from_secs(5);
