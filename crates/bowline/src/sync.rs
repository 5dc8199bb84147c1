//! A mutex without poisoning.

use std::sync::PoisonError;

pub(crate) use std::sync::MutexGuard;

/// A mutex that a panic does not poison.
///
/// Everything under a lock of this crate is consistent after each statement, and no callback of the application runs
/// under one. A panic of one call must not fail every later call that needs the same lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Blocks until the lock is free. It is never held across an `.await`.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
