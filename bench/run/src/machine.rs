//! What the operating system knows: cores, clocks, memory, descriptors.

use std::path::Path;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The cores that something may run on.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Core {
    /// The core of the load.
    Load,
    /// The core of the program under test.
    Test,
    /// Both of them. A program under test shares the first with the load.
    Both,
}

/// Moves this thread, and what it starts from now on, to a core. On a machine with one core nothing happens.
pub(crate) fn pin(core: Core) {
    let mut set = CpuSet::new();
    let indices: &[usize] = match core {
        Core::Load => &[0],
        Core::Test => &[1],
        Core::Both => &[0, 1],
    };
    if cores() > 1 && indices.iter().all(|index| set.set(*index).is_ok()) {
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

pub(crate) fn cores() -> usize {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.matches("processor\t").count().max(1)
}

/// The CPU time that the process `pid` has used, in nanoseconds, its threads included.
///
/// # Panics
///
/// If there is no such process.
pub(crate) fn cpu_ns(pid: u32) -> u64 {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id is small"));
    let clock = clock_getcpuclockid(pid).expect("the process is there");
    read(clock)
}

/// The clock that all processes share, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("the clock can be read");
    u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000_000
        + u64::try_from(now.tv_nsec()).unwrap_or(0)
}

/// The memory that is held by the process `pid`, in KiB.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let digits = line.and_then(|line| line.trim().strip_suffix(" kB"));
    digits
        .and_then(|digits| digits.trim().parse().ok())
        .unwrap_or(0)
}

/// How many descriptors the process `pid` has open.
pub(crate) fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Thousands of connections need thousands of descriptors, here and in what is started.
pub(crate) fn allow_many_files() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// How many descriptors this process may have open.
pub(crate) fn most_files() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE)
        .map_or(0, |(now, _)| usize::try_from(now).unwrap_or(usize::MAX))
}

/// The processor and how many cores of it there are.
pub(crate) fn describe() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // What follows its version is a name that nobody else can make anything of.
    let version: Vec<_> = kernel.split('.').take(2).collect();
    format!("{model}, {} cores, Linux {}", cores(), version.join("."))
}

/// Where the programs under test are: beside this one.
pub(crate) fn programs() -> std::path::PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    this.parent()
        .map(Path::to_owned)
        .expect("it is in a folder")
}
