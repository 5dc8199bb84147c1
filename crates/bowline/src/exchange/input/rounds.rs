//! [`RoundsInput`], the [`InputSource`] of the modern era: the rounds of a multi round-trip request.

use std::task::Waker;

use bowline_core::input::{InputStatus, RawInputRequest, ServerRound};
use bowline_types::Json;

use super::once::{ClaimOutcome, OnceGuard};
use super::{AcceptedAnswers, InputError, InputRequestOptions, InputSource};
use crate::exchange::BoxFuture;
use crate::sync::Mutex;

/// One round. `RoundFuture` (`server/input_required.rs`) ends it.
pub(super) struct RoundsInput {
    state: Mutex<RoundState>,
    /// Guards effects against a repeated `requestState`; `None` in a first round, which has none.
    once: Option<OnceGuard>,
}

struct RoundState {
    /// `None` once the round is over.
    round: Option<ServerRound>,
    /// The waker of `RoundFuture`. A task that the handler spawned may request input, and does not wake it otherwise.
    round_future: Option<Waker>,
}

impl RoundsInput {
    pub(super) fn new(round: ServerRound, once: Option<OnceGuard>) -> Self {
        let state = RoundState {
            round: Some(round),
            round_future: None,
        };
        Self {
            state: Mutex::new(state),
            once,
        }
    }

    /// Returns whether an input request waits for the client's answer.
    pub(super) fn is_pending(&self) -> bool {
        let state = self.state.lock();
        state.round.as_ref().is_some_and(ServerRound::is_pending)
    }

    /// Ends the round. Later input requests fail with [`InputError::RequestEnded`].
    pub(super) fn take_round(&self) -> Option<ServerRound> {
        self.state.lock().round.take()
    }

    /// Wakes `round_future` when an input request becomes pending.
    pub(super) fn wake_on_input_request(&self, round_future: &Waker) {
        let round_future = round_future.clone();
        let old = self.state.lock().round_future.replace(round_future);
        drop(old);
    }

    /// Returns the client's answer if it came with this round or an earlier one; otherwise adds the input request to
    /// those that the round ends with.
    fn look_up(
        &self,
        key: &str,
        request: RawInputRequest,
        accepted: AcceptedAnswers,
    ) -> Result<AnswerLookup<'_>, InputError> {
        let mut state = self.state.lock();
        let round = state.round.as_mut().ok_or(InputError::RequestEnded)?;
        if accepted == AcceptedAnswers::All {
            round.accept_unsolicited(key, &request);
        }
        match round.ask(key, request)? {
            InputStatus::Answered(answer) => Ok(AnswerLookup::Answer(answer)),
            InputStatus::Pending => {
                let round_future = state.round_future.take();
                drop(state);
                round_future.into_iter().for_each(Waker::wake);
                Ok(AnswerLookup::Pending(PendingInputRequest {
                    source: self,
                    key: key.to_owned(),
                }))
            }
        }
    }

    fn with_round<T>(&self, act: impl FnOnce(&mut ServerRound) -> T) -> Result<T, InputError> {
        let mut state = self.state.lock();
        let round = state.round.as_mut().map(act);
        round.ok_or(InputError::RequestEnded)
    }
}

impl InputSource for RoundsInput {
    fn ask<'a>(
        &'a self,
        key: &'a str,
        request: RawInputRequest,
        options: InputRequestOptions,
    ) -> BoxFuture<'a, Result<Json, InputError>> {
        Box::pin(async move {
            match self.look_up(key, request, options.accepted)? {
                AnswerLookup::Answer(answer) => Ok(answer),
                // `RoundFuture` ends the round by dropping the handler, and this future with it. A task that the
                // handler spawned is not dropped: there, `Context::ask` stops waiting because `RoundFuture` also
                // cancels the context.
                AnswerLookup::Pending(_pending) => std::future::pending().await,
            }
        })
    }

    fn store<'a>(&'a self, key: &'a str, value: Json) -> BoxFuture<'a, Result<(), InputError>> {
        let stored = self.with_round(|round| round.remember(key, value));
        Box::pin(std::future::ready(stored))
    }

    fn stored<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        let stored = self.with_round(|round| round.recall(key).cloned());
        Box::pin(std::future::ready(stored))
    }

    fn begin_effect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        Box::pin(async move {
            let output = self.with_round(|round| round.recall(key).cloned())?;
            if output.is_some() {
                return Ok(output);
            }
            let Some(once) = &self.once else {
                return Ok(None); // a first round has no `requestState` to replay
            };
            match once.claim(key).await? {
                ClaimOutcome::First => Ok(None),
                ClaimOutcome::Done(output) => {
                    self.with_round(|round| round.remember(key, output.clone()))?;
                    Ok(Some(output))
                }
            }
        })
    }

    fn finish_effect<'a>(
        &'a self,
        key: &'a str,
        output: Json,
    ) -> BoxFuture<'a, Result<(), InputError>> {
        Box::pin(async move {
            if let Some(once) = &self.once {
                once.store_output(key, &output).await;
            }
            self.with_round(|round| round.remember(key, output))
        })
    }
}

enum AnswerLookup<'a> {
    Answer(Json),
    Pending(PendingInputRequest<'a>),
}

/// A pending input request. Dropping it withdraws the request from the round.
struct PendingInputRequest<'a> {
    source: &'a RoundsInput,
    key: String,
}

impl Drop for PendingInputRequest<'_> {
    fn drop(&mut self) {
        if let Some(round) = &mut self.source.state.lock().round {
            round.withdraw(&self.key);
        }
    }
}
