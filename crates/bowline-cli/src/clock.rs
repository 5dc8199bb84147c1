//! A clock that two processes read alike, to measure from one into the other.

use std::time::Duration;

/// The time since some moment that is the same for every process of this machine.
#[cfg(unix)]
#[must_use]
pub fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

/// The time since some moment that is the same for every process of this machine.
#[cfg(not(unix))]
#[must_use]
pub fn now() -> Duration {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}
