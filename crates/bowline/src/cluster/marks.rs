//! [`Marks`]: small values with an expiry that replicas share.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::MarkError;

/// The future of a [`Marks`] method.
pub type MarkFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, MarkError>> + Send + 'a>>;

/// A store of marks: small values that are set if absent, compared when they are replaced, and that expire.
///
/// Used for what must happen once ([`Context::once`](crate::Context::once), `DPoP` proofs) and for who owns something.
/// [`MemoryMarks`](super::MemoryMarks), the default, covers one process. Replicas share the marks of an engine.
///
/// # What may be lost
///
/// - A mark is not evicted before its lifetime ends: a store without capacity refuses new marks. Otherwise an effect
///   could happen twice. An engine that loses its data, such as Redis without persistence that restarts, loses marks
///   all the same; the documentation of each engine says when.
/// - While the engine is away, every method fails with [`MarkError::Unavailable`] within a few seconds. What follows is
///   the caller's decision: an effect that must happen once is refused; a hint, such as that an id was revoked, is
///   treated as absent, and logged.
/// - The engine's clock decides when a mark has expired, with the resolution of a second.
///
/// # Rules
///
/// - Every method sees what any replica was told is stored.
/// - Each method is atomic. Of several replicas that set an absent mark, exactly one succeeds.
/// - Keys have at most [`MAX_MARK_KEY_BYTES`], values at most [`MAX_MARK_VALUE_BYTES`]. Neither is secret: seal what the
///   operators of the engine must not read.
/// - An implementation may extend a lifetime to the next whole second.
///
/// # Cancel safety
///
/// The operation of a dropped future has happened completely or not at all. Callers that need to know treat the mark as
/// set.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use bowline::cluster::{Marks, MemoryMarks};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bowline::cluster::MarkError> {
/// let marks = MemoryMarks::new();
/// let minute = Duration::from_secs(60);
///
/// // Two replicas want to own a connection; the first gets it.
/// assert_eq!(marks.set_if_absent(b"owner of db", b"replica 1", minute).await?, None);
/// let owner = marks.set_if_absent(b"owner of db", b"replica 2", minute).await?;
/// assert_eq!(owner.as_deref(), Some(&b"replica 1"[..]));
///
/// // The owner extends its lease; the other cannot.
/// assert!(marks.renew(b"owner of db", b"replica 1", minute).await?);
/// assert!(!marks.renew(b"owner of db", b"replica 2", minute).await?);
/// # Ok(()) }
/// ```
pub trait Marks: Send + Sync + 'static {
    /// Sets a mark if it is absent; otherwise returns its value. An existing mark keeps its lifetime.
    ///
    /// # Errors
    ///
    /// [`MarkError`]. After [`MarkError::Unavailable`] the mark may be set.
    fn set_if_absent<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, Option<Bytes>>;

    /// Sets a mark, whatever it is now.
    ///
    /// # Errors
    ///
    /// [`MarkError`].
    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8], lifetime: Duration) -> MarkFuture<'a, ()>;

    /// Replaces the value and the lifetime of a mark that has the value `expected`; returns whether it had.
    ///
    /// # Errors
    ///
    /// [`MarkError`].
    fn replace<'a>(
        &'a self,
        key: &'a [u8],
        expected: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, bool>;

    /// Extends a mark that has the value `expected` to `lifetime` from now; returns whether it had.
    ///
    /// # Errors
    ///
    /// [`MarkError`].
    fn renew<'a>(
        &'a self,
        key: &'a [u8],
        expected: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, bool> {
        self.replace(key, expected, expected, lifetime)
    }

    /// Returns the value of a mark.
    ///
    /// # Errors
    ///
    /// [`MarkError`].
    fn read<'a>(&'a self, key: &'a [u8]) -> MarkFuture<'a, Option<Bytes>>;

    /// Removes a mark that has the value `expected`; returns whether it had.
    ///
    /// # Errors
    ///
    /// [`MarkError`].
    fn remove<'a>(&'a self, key: &'a [u8], expected: &'a [u8]) -> MarkFuture<'a, bool>;
}

/// The maximum size of the key of a mark.
pub const MAX_MARK_KEY_BYTES: usize = 512;
/// The maximum size of the value of a mark.
pub const MAX_MARK_VALUE_BYTES: usize = 512 * 1024;

/// Checks the size of the key and the value of a mark, for implementations of [`Marks`].
///
/// # Errors
///
/// [`MarkError::TooLarge`].
pub fn check_mark_size(key: &[u8], value: &[u8]) -> Result<(), MarkError> {
    let limits = [
        ("key", key.len(), MAX_MARK_KEY_BYTES),
        ("value", value.len(), MAX_MARK_VALUE_BYTES),
    ];
    for (what, bytes, limit) in limits {
        if bytes > limit {
            return Err(MarkError::TooLarge { what, bytes, limit });
        }
    }
    Ok(())
}

impl<M: Marks + ?Sized> Marks for Arc<M> {
    fn set_if_absent<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, Option<Bytes>> {
        (**self).set_if_absent(key, value, lifetime)
    }

    fn set<'a>(&'a self, key: &'a [u8], value: &'a [u8], lifetime: Duration) -> MarkFuture<'a, ()> {
        (**self).set(key, value, lifetime)
    }

    fn replace<'a>(
        &'a self,
        key: &'a [u8],
        expected: &'a [u8],
        value: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, bool> {
        (**self).replace(key, expected, value, lifetime)
    }

    fn renew<'a>(
        &'a self,
        key: &'a [u8],
        expected: &'a [u8],
        lifetime: Duration,
    ) -> MarkFuture<'a, bool> {
        (**self).renew(key, expected, lifetime)
    }

    fn read<'a>(&'a self, key: &'a [u8]) -> MarkFuture<'a, Option<Bytes>> {
        (**self).read(key)
    }

    fn remove<'a>(&'a self, key: &'a [u8], expected: &'a [u8]) -> MarkFuture<'a, bool> {
        (**self).remove(key, expected)
    }
}
