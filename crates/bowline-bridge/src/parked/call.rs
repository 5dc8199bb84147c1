//! [`Call`]: a call that is attached to a front.

use std::fmt;
use std::sync::Arc;

use bowline::exchange::{Digest, Outcome, Principal, Request};
use bowline::{Json, RpcError};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::ParkedCalls;
use super::entry::{Round, Serial};
use super::host_side::HostSide;
use super::keeper::Keeper;
use super::refusal::{Refusal, Sent};
use super::retry::call_digest;
use super::shared::{KeeperHandle, Shared};
use super::tombstones::Ended;
use super::upstream::Upstream;

/// A call for which a client waits. The front owns it together with the running call.
///
/// Dropping it ends the call: open questions are refused, and later retries with a state of the call are answered with
/// "cancelled". The running call is cancelled by its own drop.
#[must_use = "dropping a call ends it"]
pub(crate) struct Call<U: Upstream> {
    pub(super) calls: ParkedCalls<U>,
    pub(super) serial: Serial,
    pub(super) principal: Principal,
    /// The request of the client that waits.
    pub(super) request: Request,
    pub(super) asked: Arc<Notify>,
    /// Why the call has ended, if it is dropped now; `None` if it has another owner.
    pub(super) ended: Option<Ended>,
}

impl<U: Upstream> Call<U> {
    /// Charges the call before it is sent. Use it if the upstream has asked questions before: a refusal has no side
    /// effect then.
    ///
    /// # Errors
    ///
    /// -32603 `too many parked calls`, with `"mayHaveRun": false`.
    pub(crate) fn reserve(&self) -> Result<(), RpcError> {
        let mut state = self.calls.shared().lock();
        Ok(state.table.reserve(self.serial)?)
    }

    /// Returns the side that the upstream's questions arrive at. It does not keep the call alive.
    pub(crate) fn host_side(&self) -> HostSide<U> {
        HostSide::new(self.calls.shared(), self.serial)
    }

    /// Waits until a question should be put to the client. A request for roots alone is ready after a delay.
    ///
    /// # Cancel safety
    ///
    /// Safe: a question stays until the call is parked or the upstream withdraws it.
    pub(crate) async fn questions_ready(&self) {
        loop {
            let ready_at = self.calls.shared().lock().table.ready_at(self.serial);
            match ready_at {
                Some(at) if at <= Instant::now() => return,
                // A permit of `asked` is kept for a front that does not wait, so no question is missed.
                Some(at) => tokio::select! {
                    biased;
                    // First: a new question may be ready earlier.
                    () = self.asked.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.asked.notified().await,
            }
        }
    }

    /// Waits until there is a question of any kind, without the delay of [`questions_ready`](Self::questions_ready). For
    /// a call that is not sent before the question is answered.
    ///
    /// # Cancel safety
    ///
    /// Safe: a question stays until the call is parked or the upstream withdraws it.
    pub(crate) async fn question_asked(&self) {
        while !self.calls.shared().lock().table.has_question(self.serial) {
            self.asked.notified().await;
        }
    }

    /// Parks the call: a keeper owns `upstream` until the client retries. Returns the `input_required` result, with all
    /// questions that are open now. If the upstream has withdrawn the last one, it has none, and the client retries at
    /// once.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// -32603 `too many parked calls`, if there is no budget, or another -32603, if the call was parked for too long or
    /// its state cannot be sealed. `upstream` is cancelled then.
    pub(crate) fn park(mut self, upstream: U) -> Outcome {
        let (sender, take_over) = oneshot::channel();
        let handle = KeeperHandle {
            take_over: sender,
            kept: Arc::default(),
        };
        let kept = handle.kept.clone();
        let digest = call_digest(upstream.server(), &self.request);
        let sent = match upstream.may_have_run() {
            true => Sent::Yes,
            false => Sent::No,
        };
        let round = match self.start_round(digest, sent, handle) {
            Ok(round) => round,
            Err(refusal) => {
                let error = RpcError::from(refusal);
                upstream.cancel(&error.message);
                return Err(error);
            }
        };
        let result = input_required(self.calls.shared(), &round, &self.principal, digest);
        if let Err(error) = &result {
            upstream.cancel(&error.message);
            return result;
        }
        self.ended = None;
        let keeper = Keeper {
            shared: self.calls.shared().clone(),
            serial: self.serial,
            kept,
            deadline: round.deadline,
            take_over,
            is_done: false,
        };
        self.calls.spawn(keeper.keep(upstream));
        result
    }

    /// Ends the call, because its outcome is passed to the client.
    pub(crate) fn finish(mut self) {
        self.ended = Some(Ended::Answered);
    }

    fn start_round(
        &self,
        digest: Digest,
        sent: Sent,
        handle: KeeperHandle<U>,
    ) -> Result<Round, Refusal> {
        let now = Instant::now();
        let mut state = self.calls.shared().lock();
        let round = state.table.park(self.serial, digest, sent, now)?;
        if let Some(live) = state.live.get_mut(&self.serial) {
            live.keeper = Some(handle);
        }
        Ok(round)
    }
}

impl<U: Upstream> Drop for Call<U> {
    fn drop(&mut self) {
        if let Some(ended) = self.ended {
            self.calls.shared().end(self.serial, ended);
        }
    }
}

impl<U: Upstream> fmt::Debug for Call<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

/// Returns the `input_required` result of a round.
pub(super) fn input_required<U>(
    shared: &Shared<U>,
    round: &Round,
    principal: &Principal,
    digest: Digest,
) -> Outcome {
    let state = shared.states.seal(round, principal, digest)?;
    let questions = (round.questions.iter())
        .map(|(key, request)| (key.to_string(), request.to_json()))
        .collect::<Vec<_>>();
    let questions = questions.iter().map(|(key, json)| (key.as_str(), json));
    let mut members = vec![(
        "resultType",
        Json::from(serde_json::json!("input_required")),
    )];
    if !round.questions.is_empty() {
        members.push(("inputRequests", Json::object(questions)));
    }
    members.push(("requestState", Json::from(serde_json::json!(state))));
    let members = members.iter().map(|(name, value)| (*name, value));
    Ok(Json::object(members))
}
