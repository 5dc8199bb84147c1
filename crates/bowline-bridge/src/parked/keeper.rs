//! The keeper of a parked call: a task that owns the running call while no client waits for it.
//!
//! ```text
//!  parked ──▶ waits for ──┬── a retry ──────▶ passes the call on, or cancels it if the retry is gone
//!                         ├── the outcome ──▶ releases the upstream, waits until a retry takes the outcome
//!                         └── the deadline ─▶ cancels the call
//! ```

use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::Outcome;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::entry::Serial;
use super::kept_notifications::KeptNotifications;
use super::settings::instant_after;
use super::shared::Shared;
use super::table::{AnsweredAction, Expiry};
use super::upstream::Upstream;

/// What a keeper passes to the retry.
pub(super) enum HandOver<U> {
    Running(U),
    /// The upstream answered at the moment of the retry.
    Answered(Outcome),
}

pub(super) struct Keeper<U> {
    pub(super) shared: Arc<Shared<U>>,
    pub(super) serial: Serial,
    pub(super) kept: Arc<KeptNotifications>,
    pub(super) deadline: Instant,
    pub(super) take_over: oneshot::Receiver<oneshot::Sender<HandOver<U>>>,
    /// Whether the call has ended, or has another owner.
    pub(super) is_done: bool,
}

enum KeeperEvent<U> {
    TakeOver(oneshot::Sender<HandOver<U>>),
    /// The call was ended by another part.
    Ended,
    Outcome(Outcome),
    Deadline,
}

impl<U: Upstream> Keeper<U> {
    /// Keeps the call until a retry takes it over or it ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call, and a retry is answered with "lost".
    pub(super) async fn keep(mut self, mut upstream: U) {
        let outcome = loop {
            let event = tokio::select! {
                biased;
                // First: an accepted retry owns the call, whatever else has happened.
                retry = &mut self.take_over => retry.map_or(KeeperEvent::Ended, KeeperEvent::TakeOver),
                // Before the deadline, so that an outcome at the last moment releases the upstream without a cancel.
                outcome = upstream.outcome(&self.kept) => KeeperEvent::Outcome(outcome),
                () = sleep_until(self.deadline) => KeeperEvent::Deadline,
            };
            match event {
                KeeperEvent::TakeOver(retry) => return self.hand_over(upstream, retry),
                KeeperEvent::Ended => {
                    self.is_done = true;
                    return upstream.cancel("the parked call was cancelled");
                }
                KeeperEvent::Outcome(outcome) => break outcome,
                KeeperEvent::Deadline if self.expire() => {
                    return upstream.cancel("the client did not answer in time");
                }
                KeeperEvent::Deadline => {}
            }
        };
        // Releases the connection, which other calls may need while the outcome waits.
        drop(upstream);
        self.keep_outcome(outcome).await;
    }

    fn hand_over(mut self, upstream: U, retry: oneshot::Sender<HandOver<U>>) {
        // Before the retry has the call: it may park it again at once, with another keeper.
        self.is_done = true;
        if let Err(HandOver::Running(upstream)) = retry.send(HandOver::Running(upstream)) {
            upstream.cancel("the client cancelled the call");
        }
    }

    async fn keep_outcome(mut self, outcome: Outcome) {
        match self.shared.answered(self.serial, outcome) {
            AnsweredAction::Kept => self.wait_until_taken().await,
            AnsweredAction::PassToRetry(outcome) => {
                self.is_done = true;
                if let Ok(retry) = (&mut self.take_over).await {
                    // Fails if the retry is gone: it has cancelled the call, and no client waits for the outcome.
                    let _ = retry.send(HandOver::Answered(outcome));
                }
            }
        }
    }

    /// Waits until a retry takes the outcome, which closes the channel, or the deadline.
    async fn wait_until_taken(mut self) {
        loop {
            tokio::select! {
                biased;
                // First: the outcome belongs to the retry that took it.
                _ = &mut self.take_over => {
                    self.is_done = true;
                    return;
                }
                () = sleep_until(self.deadline) => if self.expire() {
                    return;
                }
            }
        }
    }

    /// Ends the call if its deadline has passed. Returns whether it has ended.
    fn expire(&mut self) -> bool {
        match self.shared.expire(self.serial) {
            Expiry::Ended => {
                self.is_done = true;
                true
            }
            Expiry::NotBefore(deadline) => {
                self.deadline = deadline;
                false
            }
            // A retry was accepted, or the call has ended: the channel is about to say which.
            Expiry::NotParked => {
                self.deadline = instant_after(Instant::now(), Duration::MAX);
                false
            }
        }
    }
}

/// A keeper that panics, or is aborted, leaves a tombstone.
impl<U> Drop for Keeper<U> {
    fn drop(&mut self) {
        if !self.is_done {
            self.shared.end_lost(self.serial);
        }
    }
}
