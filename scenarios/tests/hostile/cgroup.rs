//! A memory cgroup for one process, below the cgroup of the runner: version 2 or 1, where the system allows it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A memory cgroup with a limit; removed on drop if its processes have exited.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup with this name and a limit in bytes.
    pub(crate) fn create(name: &str, limit: u64) -> io::Result<Self> {
        let (parent, file) = parent()?;
        let cgroup = Self {
            folder: parent.join(name),
        };
        fs::create_dir(&cgroup.folder)?;
        fs::write(cgroup.folder.join(file), limit.to_string())?;
        Ok(cgroup)
    }

    /// Moves a process into the cgroup.
    pub(crate) fn add(&self, process: u32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), process.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Fails while a process of it is still exiting; a leftover empty cgroup is harmless.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The directory of this process's memory cgroup, and the name of the limit file of a child cgroup.
fn parent() -> io::Result<(PathBuf, &'static str)> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let path = |controllers: &str| {
        let mut entries = own.lines().filter_map(|line| line.split_once(':'));
        entries.find_map(|(_, rest)| {
            let (names, path) = rest.split_once(':')?;
            let is_it = names.split(',').any(|name| name == controllers);
            is_it.then(|| path.trim_start_matches('/').to_owned())
        })
    };
    if let Some(path) = path("memory") {
        let folder = Path::new("/sys/fs/cgroup/memory").join(path);
        return Ok((folder, "memory.limit_in_bytes"));
    }
    let missing = || io::Error::new(io::ErrorKind::NotFound, "no memory controller");
    let folder = Path::new("/sys/fs/cgroup").join(path("").ok_or_else(missing)?);
    // A version 2 cgroup with processes cannot delegate the memory controller, unless it is the root.
    let delegated = fs::read_to_string(folder.join("cgroup.subtree_control"))?;
    match delegated.split_whitespace().any(|name| name == "memory") {
        true => Ok((folder, "memory.max")),
        false => Err(missing()),
    }
}
