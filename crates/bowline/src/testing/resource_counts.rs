//! [`ResourceCounts`], to detect leaks.

use std::time::Duration;

use tokio::time::Instant;

/// The resources that this process holds.
///
/// # Examples
///
/// ```
/// use bowline::testing::{ResourceCounts, eventually};
/// use bowline::{Client, Server, wire};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// let before = ResourceCounts::now();
/// let (near, far) = wire::memory();
/// tokio::spawn(Server::new("clock", "1.0.0").serve(far));
/// let client = Client::from_wire(near).await?;
///
/// drop(client);
///
/// assert!(eventually(|| ResourceCounts::now() == before).await, "{:?}", ResourceCounts::now().since(before));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceCounts {
    /// The tasks of the current tokio runtime.
    pub tasks: usize,
    /// The open file descriptors; 0 where the system has no `/dev/fd`.
    pub descriptors: usize,
    /// The child processes; 0 where the system has no `/proc`.
    pub children: usize,
}

impl ResourceCounts {
    /// Counts the resources that this process holds now.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn now() -> Self {
        let metrics = tokio::runtime::Handle::current().metrics();
        Self {
            tasks: metrics.num_alive_tasks(),
            descriptors: std::fs::read_dir("/dev/fd").map_or(0, Iterator::count),
            children: children(),
        }
    }

    /// Returns the resources that are held in addition to those of `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            tasks: self.tasks.saturating_sub(before.tasks),
            descriptors: self.descriptors.saturating_sub(before.descriptors),
            children: self.children.saturating_sub(before.children),
        }
    }
}

/// Evaluates a condition every millisecond, for up to five seconds; returns whether it became true.
///
/// # Cancel safety
///
/// Safe: waiting changes nothing.
pub async fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + WAIT_LIMIT;
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    while !condition() {
        if ticks.tick().await > deadline {
            return condition();
        }
    }
    true
}

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

/// The time within which closed resources must be released. Far more than it takes, for a machine that is busy; how long
/// it takes is measured by benchmarks.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
