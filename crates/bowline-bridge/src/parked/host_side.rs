//! [`HostSide`], where the upstream's questions about a call arrive.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};

use bowline::Json;
use bowline::exchange::{Outcome, RawInputRequest};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::entry::{QuestionKey, Serial};
use super::refusal::QuestionRefusal;
use super::shared::Shared;
use super::upstream::Upstream;

/// Where the questions of the upstream about a call arrive, whether it is parked or not. Cheap to clone.
pub(crate) struct HostSide<U> {
    shared: Weak<Shared<U>>,
    serial: Serial,
}

impl<U> Clone for HostSide<U> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            serial: self.serial,
        }
    }
}

impl<U> fmt::Debug for HostSide<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostSide")
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

impl<U: Upstream> HostSide<U> {
    pub(super) fn new(shared: &Arc<Shared<U>>, serial: Serial) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            serial,
        }
    }

    /// Puts a question to the client and waits for its answer, through any number of rounds.
    ///
    /// # Errors
    ///
    /// The error for the upstream: the code of a client that did not declare the capability, or -32603 if the call ends
    /// before the question is answered, or there are too many questions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the question.
    pub(crate) fn question(
        &self,
        request: RawInputRequest,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        let (shared, serial) = (self.shared.clone(), self.serial);
        async move {
            let (_withdraw, answer) = {
                let shared = shared.upgrade().ok_or(QuestionRefusal::CallEnded)?;
                ask(&shared, serial, request)?
            };
            let answer = answer.await;
            answer.map_err(|_| QuestionRefusal::CallEnded.into())
        }
    }
}

fn ask<U>(
    shared: &Arc<Shared<U>>,
    serial: Serial,
    request: RawInputRequest,
) -> Result<(WithdrawOnDrop<U>, oneshot::Receiver<Json>), QuestionRefusal> {
    let now = Instant::now();
    let mut state = shared.lock();
    let key = state.table.ask(serial, request, now)?;
    let (sender, answer) = oneshot::channel();
    let live = state.live.get_mut(&serial);
    let asked = live.map(|live| {
        live.waiting.insert(key, sender);
        live.asked.clone()
    });
    drop(state);
    if let Some(asked) = asked {
        asked.notify_one();
    }
    let withdraw = WithdrawOnDrop {
        shared: Arc::downgrade(shared),
        serial,
        key,
    };
    Ok((withdraw, answer))
}

/// Removes a question that its upstream no longer waits for. Does nothing if it was answered.
struct WithdrawOnDrop<U> {
    shared: Weak<Shared<U>>,
    serial: Serial,
    key: QuestionKey,
}

impl<U> Drop for WithdrawOnDrop<U> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut state = shared.lock();
        state.table.withdraw(self.serial, self.key);
        let live = state.live.get_mut(&self.serial);
        let sender = live.and_then(|live| live.waiting.remove(&self.key));
        drop(state);
        drop(sender);
    }
}
