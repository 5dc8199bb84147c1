//! What is left when everything should be gone.

use std::time::Duration;

use serde::Serialize;

/// What this process holds, as far as it can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holdings {
    tasks: usize,
    descriptors: usize,
    children: usize,
}

/// What was left behind, each counted; all zero if nothing was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Remains {
    pub(crate) handlers: u64,
    /// Calls and requests in the tables of both ends.
    pub(crate) entries: usize,
    pub(crate) tasks: usize,
    pub(crate) descriptors: usize,
    pub(crate) children: usize,
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

    /// What is held now and was not then, once what is on its way out had the time to go.
    pub(crate) async fn left_since(self) -> Remains {
        let mut left = Remains::default();
        eventually(|| {
            let now = Self::now();
            left.tasks = now.tasks.saturating_sub(self.tasks);
            left.descriptors = now.descriptors.saturating_sub(self.descriptors);
            left.children = now.children.saturating_sub(self.children);
            left == Remains::default()
        })
        .await;
        left
    }
}

impl Remains {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// What was left, for people.
    pub(crate) fn in_words(&self) -> String {
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
            true => "nothing".to_owned(),
            false => words.join(", "),
        }
    }
}

/// Looks again and again until it is so, for some seconds; whether it ever was.
pub(crate) async fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let patience = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        if tokio::time::Instant::now() > patience {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
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
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
