//! `HostAnswers`, a future that answers the input requests of one round of a multi round-trip request through the host.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bowline_core::era::{Caller, Request};
use bowline_core::input::RawInputRequest;
use bowline_types::Json;
use tokio::time::Sleep;

use crate::exchange::{Answer, CallOptions, Channel, Exchange, ExchangeEvent, InProcess};
use crate::{Error, Result};

/// Resolves when the host has answered all input requests of one round; up to [`MAX_CONCURRENT`] are with the host at
/// a time.
///
/// # Cancel safety
///
/// Dropping it drops the host's futures.
pub(super) struct HostAnswers {
    host: InProcess,
    /// This client: its capabilities limit what the server may ask.
    caller: Arc<Caller>,
    queued: VecDeque<(String, RawInputRequest)>,
    running: Vec<(String, Exchange)>,
    answers: Vec<(String, Json)>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl HostAnswers {
    /// Passes the input requests to the host.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if one of them needs a capability that `caller`, this client, does not declare. Then the
    /// host gets none of them: the protocol cannot refuse one alone, and a retry would ask the others again.
    pub(super) fn new(
        host: InProcess,
        caller: Arc<Caller>,
        input_requests: Vec<(String, RawInputRequest)>,
    ) -> Result<Self> {
        for (key, input_request) in &input_requests {
            if let Err(missing) = input_request.check_capabilities(&caller.capabilities) {
                return Err(Error::protocol(format!(
                    "the server sent the input request `{key}`, but {missing}"
                )));
            }
        }
        Ok(Self {
            host,
            caller,
            queued: input_requests.into(),
            running: Vec::new(),
            answers: Vec::new(),
            pause: None,
        })
    }

    /// Resolves without answers after `pause`: the server sent `requestState` without input requests, which means
    /// "retry".
    pub(super) fn after_pause(host: InProcess, caller: Arc<Caller>, pause: Duration) -> Self {
        Self {
            host,
            caller,
            queued: VecDeque::new(),
            running: Vec::new(),
            answers: Vec::new(),
            pause: Some(Box::pin(tokio::time::sleep(pause))),
        }
    }

    fn start_queued(&mut self) {
        while self.running.len() < MAX_CONCURRENT
            && let Some((key, input_request)) = self.queued.pop_front()
        {
            let (method, params) = input_request.into_request();
            let params = params.unwrap_or_else(Json::empty_object);
            let request = Request::new(method, params, self.caller.clone());
            let exchange = self.host.open(request, CallOptions::default());
            self.running.push((key, exchange));
        }
    }

    /// Collects the answers that are ready.
    fn poll_running(&mut self, cx: &mut task::Context<'_>) -> Result<()> {
        let mut at = 0;
        while let Some((_, exchange)) = self.running.get_mut(at) {
            match exchange.poll_event(cx) {
                Poll::Pending => at += 1,
                // The host's progress notifications have no receiver. `at` is unchanged, so the exchange is polled
                // again until it is pending and has registered the waker.
                Poll::Ready(ExchangeEvent::Notification(_)) => {}
                Poll::Ready(ExchangeEvent::Answered(answer)) => {
                    let (key, _) = self.running.remove(at);
                    let answer = check_answer(&key, answer)?;
                    self.answers.push((key, answer));
                }
            }
        }
        Ok(())
    }
}

impl Future for HostAnswers {
    type Output = Result<Vec<(String, Json)>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
        }
        loop {
            self.start_queued();
            if self.running.is_empty() {
                return Poll::Ready(Ok(std::mem::take(&mut self.answers)));
            }
            let before = self.answers.len();
            self.poll_running(cx)?;
            if self.answers.len() == before {
                return Poll::Pending;
            }
        }
    }
}

/// Returns the pause before a retry without input requests: doubles with each round, up to [`MAX_PAUSE`].
pub(super) fn retry_pause(round: u32) -> Duration {
    let doublings = round.saturating_sub(1).min(16);
    (FIRST_PAUSE * 2_u32.pow(doublings)).min(MAX_PAUSE)
}

fn check_answer(key: &str, answer: Result<Answer>) -> Result<Json> {
    match answer {
        Ok(Answer::Complete(answer)) => Ok(answer),
        Ok(Answer::InputRequired(_) | Answer::Extension { .. }) => Err(Error::misuse(format!(
            "the host returned an incomplete result for the input request `{key}`"
        ))),
        Err(Error::Rpc(refusal)) => Err(Error::Cancelled {
            reason: format!("the host refused `{key}`: {}", refusal.message),
        }),
        Err(error) => Err(error),
    }
}

/// Maximum number of input requests that are with the host at a time.
const MAX_CONCURRENT: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
