//! [`OnDiscarded`], the callback of `Context::on_discarded`.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::callback::catch_panic;
use crate::sync::Mutex;

type Callback = Box<dyn FnOnce() + Send>;

/// A callback that is called once, at the latest when this is dropped, unless it is cleared before.
#[derive(Default)]
pub(super) struct OnDiscarded {
    callback: Mutex<Option<Callback>>,
    /// Whether there was a callback. Most requests have none, and then do not lock.
    is_set: AtomicBool,
}

impl OnDiscarded {
    pub(super) fn set(&self, callback: Callback) {
        let old = self.callback.lock().replace(callback);
        self.is_set.store(true, Ordering::Release);
        drop(old);
    }

    /// Returns whether there is a callback.
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire) && self.callback.lock().is_some()
    }

    /// Drops the callback without calling it.
    pub(super) fn clear(&self) {
        drop(self.take());
    }

    pub(super) fn call(&self) {
        if let Some(callback) = self.take() {
            catch_panic("`on_discarded`", callback);
        }
    }

    fn take(&self) -> Option<Callback> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.callback.lock().take()
    }
}

impl Drop for OnDiscarded {
    fn drop(&mut self) {
        self.call();
    }
}
