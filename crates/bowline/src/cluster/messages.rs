//! [`ReplicaMessages`]: messages between the replicas of a server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{AskError, GroupId, ReplicaId, Unavailable};
use crate::exchange::BoxFuture;

/// How replicas reach each other: one replica that answers, or all members of a group.
///
/// An engine implements it, and moves bytes that it cannot read: [`Cluster`](super::Cluster) seals what it sends. Code
/// that sends messages uses a [`Cluster`](super::Cluster).
///
/// # What may be lost
///
/// - A message is delivered at most once, and not in order.
/// - [`ask`](Self::ask) returns [`AskError::ReplicaGone`] only if the replica has certainly ended. After
///   [`AskError::TimedOut`] or [`AskError::Unavailable`] it may have received the message. So verbs that are asked again
///   must be idempotent.
/// - [`tell`](Self::tell) reports whether the engine took the message. A member may lose it all the same, when its
///   connection breaks. The engine then calls [`ReplicaInbox::missed`] of that member once it is connected again:
///   messages are never lost in silence.
/// - Messages in flight are lost with the process of their sender.
///
/// # Rules
///
/// - Nothing waits without a limit: while the engine is away, methods fail within a few seconds.
/// - An implementation connects again by itself, and joins its groups again.
/// - When it is dropped, the replica ends: others get [`AskError::ReplicaGone`].
/// - Messages and answers have at most [`MAX_MESSAGE_BYTES`].
pub trait ReplicaMessages: Send + Sync + 'static {
    /// Returns the id of this replica.
    fn replica(&self) -> ReplicaId;

    /// Sets the receiver of messages. Called once, before any other method but [`replica`](Self::replica), inside of a
    /// tokio runtime.
    fn start(&self, inbox: Arc<dyn ReplicaInbox>);

    /// Sends a message to one replica, and waits for its answer for at most `within`.
    ///
    /// # Errors
    ///
    /// [`AskError`].
    ///
    /// # Cancel safety
    ///
    /// The replica may receive the message although the future is dropped.
    fn ask(
        &self,
        to: ReplicaId,
        message: Bytes,
        within: Duration,
    ) -> BoxFuture<'_, Result<Bytes, AskError>>;

    /// Sends a message to every member of a group, also to this replica if it is one.
    ///
    /// # Errors
    ///
    /// If it is unknown whether the engine took the message.
    ///
    /// # Cancel safety
    ///
    /// The message may be sent although the future is dropped.
    fn tell<'a>(
        &'a self,
        group: &'a GroupId,
        message: Bytes,
    ) -> BoxFuture<'a, Result<(), Unavailable>>;

    /// Makes this replica a member of a group. Messages that any replica sends after this has returned are delivered,
    /// or reported as missed. Joining again has no effect.
    ///
    /// # Errors
    ///
    /// If the engine is away. The replica is no member then.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the replica may be a member; [`leave`](Self::leave) makes sure that it is not.
    fn join<'a>(&'a self, group: &'a GroupId) -> BoxFuture<'a, Result<(), Unavailable>>;

    /// Ends the membership of this replica in a group. Does not block; messages may still arrive for a moment.
    fn leave(&self, group: &GroupId);
}

/// The maximum size of a message or an answer that an engine moves: the limit that NATS has by default.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// Checks the size of a message, for implementations of [`ReplicaMessages`].
///
/// # Errors
///
/// [`AskError::TooLarge`].
pub fn check_message_size(message: &[u8]) -> Result<(), AskError> {
    let (bytes, limit) = (message.len(), MAX_MESSAGE_BYTES);
    if bytes > limit {
        return Err(AskError::TooLarge { bytes, limit });
    }
    Ok(())
}

/// Receives the messages of a replica; see [`ReplicaMessages::start`].
pub trait ReplicaInbox: Send + Sync + 'static {
    /// Answers a message of [`ReplicaMessages::ask`]. The engine runs the future in a task of its own.
    fn answer(&self, message: Bytes) -> BoxFuture<'static, Bytes>;

    /// Receives a message to a group. Must not block.
    fn deliver(&self, group: &GroupId, message: Bytes);

    /// Receives that messages to any group may have been lost. Must not block.
    fn missed(&self);
}
