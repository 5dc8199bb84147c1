//! [`Mutex`]: a lock that ignores poisoning.

use std::sync::{MutexGuard, PoisonError};

/// A [`std::sync::Mutex`] whose `lock` cannot fail.
///
/// The values behind the locks of this crate stay valid if a panic interrupts a critical section, so one panicking
/// request must not make the token cache unusable for all others. Application code is never called under a lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Acquires the lock, blocking the thread. Must not be held across an `.await`.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
