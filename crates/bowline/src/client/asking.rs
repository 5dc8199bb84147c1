//! The questions of one round, on their way to the host and back.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bowline_core::era::{Caller, Request};
use bowline_core::input::Question;
use bowline_core::mux::CallOptions;
use bowline_types::Json;
use tokio::time::Sleep;

use crate::exchange::{Answer, Channel, Exchange, InProcess, Step};
use crate::{Error, Result};

/// The host at work on the questions of one round, several at a time.
///
/// # Cancel safety
///
/// Dropping it drops the host's futures.
pub(super) struct Asking {
    host: InProcess,
    caller: Arc<Caller>,
    waiting: VecDeque<(String, Question)>,
    asked: Vec<(String, Exchange)>,
    answers: Vec<(String, Json)>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Asking {
    /// Puts the questions to the host.
    ///
    /// # Errors
    ///
    /// If one of them is about something that `caller` did not declare. None is put then: there is no
    /// way to answer "I cannot", and the others would be asked again.
    pub(super) fn new(
        host: InProcess,
        caller: Arc<Caller>,
        questions: Vec<(String, Question)>,
    ) -> Result<Self> {
        for (key, question) in &questions {
            if let Err(missing) = question.check_capabilities(&caller.capabilities) {
                return Err(Error::protocol(format!(
                    "the server asked `{key}` although {missing}"
                )));
            }
        }
        Ok(Self {
            host,
            caller,
            waiting: questions.into(),
            asked: Vec::new(),
            answers: Vec::new(),
            pause: None,
        })
    }

    /// Waits a little, because the server asked for nothing but another try.
    pub(super) fn pause(host: InProcess, caller: Arc<Caller>, pause: Duration) -> Self {
        Self {
            host,
            caller,
            waiting: VecDeque::new(),
            asked: Vec::new(),
            answers: Vec::new(),
            pause: Some(Box::pin(tokio::time::sleep(pause))),
        }
    }

    fn ask_more(&mut self) {
        while self.asked.len() < MOST_AT_ONCE
            && let Some((key, question)) = self.waiting.pop_front()
        {
            let (method, params) = question.into_request();
            let params = params.unwrap_or_else(Json::empty_object);
            let request = Request::new(method, params, self.caller.clone());
            let exchange = self.host.open(request, CallOptions::default());
            self.asked.push((key, exchange));
        }
    }

    /// Takes in what is answered by now.
    fn poll_asked(&mut self, cx: &mut task::Context<'_>) -> Result<()> {
        let mut place = 0;
        while let Some((_, exchange)) = self.asked.get_mut(place) {
            match exchange.poll_step(cx) {
                Poll::Pending => place += 1,
                // A host has nobody to tell how far it has come.
                Poll::Ready(Step::Notification(_)) => {}
                Poll::Ready(Step::Answered(answer)) => {
                    let (key, _) = self.asked.remove(place);
                    let answer = read(&key, answer)?;
                    self.answers.push((key, answer));
                }
            }
        }
        Ok(())
    }
}

impl Future for Asking {
    type Output = Result<Vec<(String, Json)>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
        }
        loop {
            self.ask_more();
            if self.asked.is_empty() {
                return Poll::Ready(Ok(std::mem::take(&mut self.answers)));
            }
            let before = self.answers.len();
            self.poll_asked(cx)?;
            if self.answers.len() == before {
                return Poll::Pending;
            }
        }
    }
}

/// How long to wait before a server that asked for nothing but another try is tried again.
pub(super) fn pause_before(round: u32) -> Duration {
    let doubled = round.saturating_sub(1).min(16);
    (FIRST_PAUSE * 2_u32.pow(doubled)).min(LONGEST_PAUSE)
}

fn read(key: &str, answer: Result<Answer>) -> Result<Json> {
    match answer {
        Ok(Answer::Complete(answer)) => Ok(answer),
        Ok(Answer::InputRequired(_) | Answer::Extension { .. }) => Err(Error::misuse(format!(
            "the host answered `{key}` by asking back"
        ))),
        Err(Error::Peer(refusal)) => Err(Error::Cancelled {
            reason: format!("the host did not answer `{key}`: {}", refusal.message),
        }),
        Err(error) => Err(error),
    }
}

/// How many questions the host has at the same time.
const MOST_AT_ONCE: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
