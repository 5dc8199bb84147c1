//! [`ConnectionState`], values that handlers keep for the lifetime of a connection.

use std::sync::Arc;

use super::Extensions;
use crate::sync::Mutex;

/// Values of one connection, at most one of each type. They are dropped when the connection ends; a handler that still
/// runs then keeps the values that it has got, and finds none.
///
/// A connection is a wire, such as stdio or a socket, a client in process, or over HTTP what a legacy client
/// initializes. Modern HTTP has no connections: each request is independent, and requests of one
/// client may reach different replicas. Keep state by the [principal](super::Context::principal) there, or let the
/// client send an identifier as an argument.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use bowline::{Context, RpcError};
///
/// #[derive(Default)]
/// struct Calls(AtomicU64);
///
/// async fn count(cx: Context) -> Result<u64, RpcError> {
///     let state = cx.connection_state().ok_or_else(|| RpcError::internal("requires a connection"))?;
///     Ok(state.get_or_insert_with(Calls::default).0.fetch_add(1, Ordering::Relaxed))
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ConnectionState(Arc<Mutex<Extensions>>);

impl ConnectionState {
    /// Returns the value of type `T`.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.lock().get_shared()
    }

    /// Inserts a value, replacing an earlier one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) {
        let mut values = self.0.lock();
        // Kept until the lock is free: to drop the earlier value runs foreign code.
        let old = values.clone();
        values.insert(value);
        drop(values);
        drop(old);
    }

    #[allow(dead_code, reason = "used for legacy clients over HTTP only")]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Drops all values, at the end of the connection.
    pub(crate) fn clear(&self) {
        let values = std::mem::take(&mut *self.0.lock());
        drop(values); // not under the lock
    }

    /// Returns the value of type `T`, or inserts the one that `make` returns.
    ///
    /// If several handlers do this at the same time, one of their values is used by all, and the others are dropped.
    pub fn get_or_insert_with<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(value) = self.get() {
            return value;
        }
        // Outside of the lock, because it runs foreign code.
        let made = Arc::new(make());
        let mut values = self.0.lock();
        if let Some(value) = values.get_shared() {
            return value;
        }
        values.insert_shared(made.clone());
        made
    }
}

/// Drops the values of a connection when it is dropped itself, for connections without a task that ends them. The values
/// may own a [`Context`](super::Context), which refers to the state.
#[derive(Debug, Default)]
pub(super) struct ConnectionGuard(pub(super) ConnectionState);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_and_replaced_by_insert() {
        let state = ConnectionState::default();

        assert_eq!(state.get::<u8>(), None);
        assert_eq!(*state.get_or_insert_with(|| 1_u8), 1);
        assert_eq!(*state.get_or_insert_with(|| 2_u8), 1);
        state.insert(3_u8);
        assert_eq!(state.get::<u8>().as_deref(), Some(&3));
        assert_eq!(state.get::<u16>(), None);
    }

    /// A value that uses its connection state when it is dropped.
    struct Reentrant(ConnectionState);

    impl Drop for Reentrant {
        fn drop(&mut self) {
            self.0.insert(1_u8);
        }
    }

    #[test]
    fn values_are_made_and_dropped_without_the_lock() {
        let state = ConnectionState::default();

        state.get_or_insert_with(|| {
            // The value of a handler that was faster.
            state.insert(Reentrant(state.clone()));
            Reentrant(state.clone())
        });
        state.insert(Reentrant(ConnectionState::default()));

        assert!(state.get::<u8>().is_some());
    }
}
