//! The child processes of this one, and their children.

use std::process::Command;

/// Returns the ids of the children whose command line contains `argument`.
pub(crate) fn of(argument: &str) -> Vec<u32> {
    let has_argument = |id: &u32| has_argument(*id, argument);
    all().into_iter().filter(has_argument).collect()
}

/// Returns the ids of all processes whose command line contains `argument`. One that has ended has no command line.
pub(crate) fn anywhere(argument: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let ids = processes.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| has_argument(*id, argument)).collect()
}

fn has_argument(id: u32, argument: &str) -> bool {
    let command_line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let mut words = command_line.split(|byte| *byte == 0);
    words.any(|word| word == argument.as_bytes())
}

/// Returns the ids of all children, also of those that have ended and were not waited for.
pub(crate) fn all() -> Vec<u32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let children = std::fs::read_to_string(thread.ok()?.path().join("children"));
        children.ok()
    };
    let children: Vec<String> = threads.filter_map(of_thread).collect();
    let ids = children.iter().flat_map(|line| line.split_whitespace());
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// Kills a child of this process.
pub(crate) fn kill(id: u32) {
    // Fails if it has ended by itself.
    let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
}
