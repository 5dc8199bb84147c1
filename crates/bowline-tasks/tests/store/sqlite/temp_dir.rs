//! [`TempDir`].

use std::path::PathBuf;

use bowline_tasks::TaskId;

/// A directory that is removed when it is dropped.
pub(super) struct TempDir(PathBuf);

impl TempDir {
    pub(super) fn new() -> Self {
        let name = format!("bowline-tasks-{}", TaskId::random().unwrap());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // On Windows a thread of a store may still have a file open.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
