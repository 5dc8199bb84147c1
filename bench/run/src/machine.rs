//! Queries of the operating system: cores, clocks, memory, file descriptors.

use std::path::Path;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The cores that a process is pinned to.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Core {
    /// The core of the load.
    Load,
    /// The core of the program under test.
    Test,
    /// Both. The program under test shares the first with the load.
    Both,
}

/// Pins this thread, and the processes that it starts from now on. Does nothing on a machine with one core.
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

/// Returns the CPU time of the process `pid` with all threads, in nanoseconds.
///
/// # Panics
///
/// If there is no such process.
pub(crate) fn cpu_ns(pid: u32) -> u64 {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a valid process id"));
    let clock = clock_getcpuclockid(pid).expect("the process exists");
    read(clock)
}

/// Returns the CPU time of the ended children of this process, in nanoseconds.
pub(crate) fn own_children_cpu_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("Linux has it");
    let total = usage.user_time() + usage.system_time();
    u64::try_from(total.num_nanoseconds()).unwrap_or(0)
}

/// Returns the CPU time of the children of the process `pid` that have ended, in nanoseconds.
pub(crate) fn ended_children_cpu_ns(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let mut fields = fields.split_whitespace().skip(CHILDREN_USER_TIME);
    let mut ticks = || fields.next().and_then(|it| it.parse::<u64>().ok());
    let total = ticks().unwrap_or(0) + ticks().unwrap_or(0);
    total * NANOSECONDS_PER_TICK
}

/// Reads the monotonic clock, which all processes share, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("failed to read the clock");
    u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000_000
        + u64::try_from(now.tv_nsec()).unwrap_or(0)
}

/// Returns the resident memory of the process `pid`, in KiB.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let digits = line.and_then(|line| line.trim().strip_suffix(" kB"));
    digits
        .and_then(|digits| digits.trim().parse().ok())
        .unwrap_or(0)
}

/// Returns how many file descriptors the process `pid` has open.
pub(crate) fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Raises the limit of file descriptors for this process and its children, for thousands of connections.
pub(crate) fn raise_file_limit() {
    if let Ok((_, max)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, max, max);
    }
}

/// Returns how many file descriptors this process may open.
pub(crate) fn file_limit() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE)
        .map_or(0, |(now, _)| usize::try_from(now).unwrap_or(usize::MAX))
}

/// Describes the processor, its cores and the kernel.
pub(crate) fn describe() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Without the suffix, which is specific to the distribution.
    let version: Vec<_> = kernel.split('.').take(2).collect();
    format!("{model}, {} cores, Linux {}", cores(), version.join("."))
}

/// Returns the folder of the programs under test, which is that of this program.
pub(crate) fn program_folder() -> std::path::PathBuf {
    let this = std::env::current_exe().expect("the path of this program");
    this.parent()
        .map(Path::to_owned)
        .expect("the folder of this program")
}

/// The index of `cutime` behind the name of the program; `cstime` follows.
const CHILDREN_USER_TIME: usize = 13;
/// `USER_HZ` is 100 on all architectures that the benchmark runs on.
const NANOSECONDS_PER_TICK: u64 = 10_000_000;
