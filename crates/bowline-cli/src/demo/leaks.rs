//! Counts leaked resources.

use std::time::Duration;

use serde::Serialize;

/// The resources that this process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldResources {
    tasks: usize,
    descriptors: usize,
    children: usize,
}

/// The number of leaked resources of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Leaks {
    pub(crate) handlers: u64,
    /// Calls and requests in the tables of both ends.
    pub(crate) entries: usize,
    pub(crate) tasks: usize,
    pub(crate) descriptors: usize,
    pub(crate) children: usize,
}

impl HeldResources {
    pub(crate) fn now() -> Self {
        let metrics = tokio::runtime::Handle::current().metrics();
        Self {
            tasks: metrics.num_alive_tasks(),
            descriptors: descriptors(),
            children: children(),
        }
    }

    /// Returns the resources held in addition to `self`; waits up to [`RELEASE_TIMEOUT`] for their release.
    pub(crate) async fn leaks_since(self) -> Leaks {
        let mut left = Leaks::default();
        wait_until(|| {
            let now = Self::now();
            left.tasks = now.tasks.saturating_sub(self.tasks);
            left.descriptors = now.descriptors.saturating_sub(self.descriptors);
            left.children = now.children.saturating_sub(self.children);
            left == Leaks::default()
        })
        .await;
        left
    }
}

impl Leaks {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the leaks as text.
    pub(crate) fn describe(&self) -> String {
        let counts = [
            (self.handlers, "handlers"),
            (self.entries as u64, "entries"),
            (self.tasks as u64, "tasks"),
            (self.descriptors as u64, "descriptors"),
            (self.children as u64, "children"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        match words.is_empty() {
            true => "none".to_owned(),
            false => words.join(", "),
        }
    }
}

/// Polls until `condition` returns true, for up to [`RELEASE_TIMEOUT`]; returns whether it did.
pub(crate) async fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + RELEASE_TIMEOUT;
    while !condition() {
        if tokio::time::Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
}

/// Returns the number of open descriptors; 0 where the system has no `/dev/fd`.
fn descriptors() -> usize {
    std::fs::read_dir("/dev/fd").map_or(0, Iterator::count)
}

/// Returns the number of child processes; 0 where the system has no `/proc`.
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

/// How long to wait for resources to be released.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
