//! A clock that is comparable between processes, to measure latency across them.

use std::time::Duration;

/// Returns the time since an epoch that all processes of this machine share.
#[cfg(unix)]
#[must_use]
pub fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

/// Returns the time since an epoch that all processes of this machine share.
#[cfg(not(unix))]
#[must_use]
pub fn now() -> Duration {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
}
