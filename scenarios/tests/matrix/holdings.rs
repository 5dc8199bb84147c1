//! What a process holds, as far as it can be counted: tasks, descriptors, children, memory.

use std::time::Duration;

use tokio::time::Instant;

/// What this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holdings {
    tasks: usize,
    descriptors: usize,
    children: usize,
}

impl Holdings {
    pub(crate) fn now() -> Self {
        let metrics = tokio::runtime::Handle::current().metrics();
        Self {
            tasks: metrics.num_alive_tasks(),
            descriptors: descriptors(),
            children: children(),
        }
    }

    /// Asserts that the same is held as then, once what is on its way out had the time to go.
    pub(crate) async fn assert_nothing_is_left(self) {
        eventually(|| Self::now() == self).await;
        assert_eq!(Self::now(), self, "something is left, or missing");
    }
}

/// Looks again and again until it is so, for some seconds; whether it ever was.
pub(crate) async fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let patience = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    while !is_so() {
        if ticks.tick().await > patience {
            return is_so();
        }
    }
    true
}

/// How much memory this process and another have in use, in bytes; nothing where the system does not tell.
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

/// How many descriptors are open; nothing where the system does not tell.
fn descriptors() -> usize {
    std::fs::read_dir("/dev/fd").map_or(0, Iterator::count)
}

/// How many children there are; nothing where the system does not tell.
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

/// How long what is on its way out may take.
const PATIENCE: Duration = Duration::from_secs(5);
