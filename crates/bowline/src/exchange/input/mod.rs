//! Input that a handler requests from the client: elicitation, sampling, roots. One API for both eras.
//!
//! ```text
//!                       ┌─ legacy: send a server-to-client request, wait for its result
//! cx.elicit(key, …) ────┤
//!                       └─ modern: is there an answer for `key`? ─yes─▶ return it
//!                                          └─no─▶ end the round: `InputRequiredResult`, run again on the retry
//! ```
//!
//! A handler is the same in both cases, so it must be able to run again from its beginning: with the same answers it
//! must request the same input under the same keys. Effects that must happen once are wrapped in [`Context::once`].

mod pending_input;
pub use pending_input::{Elicitation, ElicitationOutcome, PendingInput};

mod error;
pub use error::InputError;

mod form;
pub use form::FormTypeError;

mod persist;

mod once;
pub(crate) use once::OnceGuard;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bowline_core::era::{ElicitationModes, InputMechanism, Request};
use bowline_core::input::{InputKind, InputStatus, RawInputRequest, ServerRound};
use bowline_core::mux::CallOptions;
use bowline_types::{ElicitMode, Json, RpcError};

use super::{Answer, Context};
use crate::sync::Mutex;
use crate::{Error, deprecation};

/// One round of a multi round-trip request, shared by the handler and by the runner that ends the round.
pub(crate) struct InputRound {
    state: Mutex<RoundState>,
    /// The timeout of server-to-client requests.
    timeout: Duration,
    /// Guards `Context::once`; `None` in a first round.
    once: Option<OnceGuard>,
}

struct RoundState {
    /// `None` once the round is over.
    round: Option<ServerRound>,
    /// How often each key was used in this run.
    uses: BTreeMap<String, u32>,
    /// The task that ends the round. It must be woken, since a question may come from a task that the handler spawned.
    runner: Option<Waker>,
    /// The last question that failed a check.
    rejected: Option<RejectedQuestion>,
}

/// A question that was not sent. `why` is the text of the handler's error; if the handler fails with that text, `error`
/// is sent to the client.
pub(crate) struct RejectedQuestion {
    pub(crate) why: String,
    pub(crate) error: RpcError,
}

impl InputRound {
    pub(crate) fn new(round: ServerRound, timeout: Duration, once: Option<OnceGuard>) -> Self {
        Self {
            once,
            state: Mutex::new(RoundState {
                round: Some(round),
                uses: BTreeMap::new(),
                runner: None,
                rejected: None,
            }),
            timeout,
        }
    }

    /// Returns whether a question waits for an answer of the client.
    pub(crate) fn is_pending(&self) -> bool {
        self.state
            .lock()
            .round
            .as_ref()
            .is_some_and(ServerRound::is_pending)
    }

    /// Ends the round. Later questions fail with [`InputError::RequestEnded`].
    pub(crate) fn take_round(&self) -> Option<ServerRound> {
        self.state.lock().round.take()
    }

    /// Takes the last question that failed a check.
    pub(crate) fn take_rejected_question(&self) -> Option<RejectedQuestion> {
        self.state.lock().rejected.take()
    }

    /// Wakes `runner` when a question becomes pending.
    pub(crate) fn wake_on_question(&self, runner: &Waker) {
        let runner = runner.clone();
        let old = self.state.lock().runner.replace(runner);
        drop(old);
    }

    fn ask(
        self: &Arc<Self>,
        key: &str,
        question: RawInputRequest,
        accepted: AcceptedAnswers,
    ) -> Result<AnswerLookup, InputError> {
        let mut state = self.state.lock();
        let key = state.number(key);
        let round = state.round.as_mut().ok_or(InputError::RequestEnded)?;
        if accepted == AcceptedAnswers::All {
            round.accept_unsolicited(&key, &question);
        }
        match round.ask(&key, question)? {
            InputStatus::Answered(answer) => Ok(AnswerLookup::Answer(answer)),
            InputStatus::Pending => {
                let runner = state.runner.take();
                drop(state);
                runner.into_iter().for_each(Waker::wake);
                let input = self.clone();
                Ok(AnswerLookup::Pending(PendingQuestion { input, key }))
            }
        }
    }
}

impl RoundState {
    /// Numbers the uses of one key, so that a loop that asks again gets a new answer: `age`, `age#2`, `age#3`.
    fn number(&mut self, key: &str) -> String {
        let uses = self.uses.entry(key.to_owned()).or_default();
        *uses += 1;
        match *uses {
            1 => key.to_owned(),
            nth => format!("{key}#{nth}"),
        }
    }
}

/// The options of one question.
#[derive(Clone, Copy, Debug, Default)]
struct QuestionOptions {
    /// The timeout, if it is a server-to-client request.
    timeout: Option<Duration>,
    accepted: AcceptedAnswers,
}

/// Which answers in `inputResponses` are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AcceptedAnswers {
    /// Only answers to questions that an earlier round asked.
    #[default]
    Solicited,
    /// Also unsolicited answers.
    All,
}

enum AnswerLookup {
    Answer(Json),
    Pending(PendingQuestion),
}

/// A pending question. Dropping it withdraws the question.
struct PendingQuestion {
    input: Arc<InputRound>,
    key: String,
}

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        if let Some(round) = &mut self.input.state.lock().round {
            round.withdraw(&self.key);
        }
    }
}

impl Context {
    /// Gets an answer from the client.
    ///
    /// # Cancel safety
    ///
    /// Dropping it withdraws the question.
    async fn ask(
        &self,
        key: &str,
        question: RawInputRequest,
        options: QuestionOptions,
    ) -> Result<Json, InputError> {
        self.check(key, &question)?;
        deprecation::warn_deprecated(question.kind.method(), self.caller().dialect);
        let answer = async {
            match self.caller().dialect.input_mechanism {
                InputMechanism::Request => self.send_and_wait(key, question, options.timeout).await,
                InputMechanism::InputRequired => {
                    self.ask_in_round(key, question, options.accepted).await
                }
            }
        };
        tokio::select! {
            // An available answer takes precedence over a cancellation.
            biased;
            answer = answer => answer,
            () = self.cancelled() => Err(InputError::RequestEnded),
        }
    }

    fn check(&self, key: &str, question: &RawInputRequest) -> Result<(), InputError> {
        if key.is_empty() || key.contains('#') {
            return Err(InputError::misuse(format!(
                "invalid question key `{key}`: it must not be empty or contain `#`, which numbers its uses"
            )));
        }
        if self.is_cancelled() {
            return Err(InputError::RequestEnded);
        }
        let checked = self.check_dialect(question).and_then(|()| {
            let declared = &self.caller().capabilities;
            question
                .check_capabilities(declared)
                .map_err(InputError::from)
        });
        checked.inspect_err(|error| {
            if let Some(input) = self.input() {
                input.state.lock().rejected = Some(RejectedQuestion {
                    why: error.to_string(),
                    error: error.to_rpc_error(),
                });
            }
        })
    }

    /// Checks the protocol version, since a client may declare capabilities that its version does not have.
    fn check_dialect(&self, question: &RawInputRequest) -> Result<(), InputError> {
        let dialect = self.caller().dialect;
        let method = question.kind.method();
        let unsupported = |what| InputError::Unsupported {
            what,
            version: dialect.version,
        };
        if dialect.input_mechanism == InputMechanism::Request
            && dialect.lacks_server_request(method)
        {
            return Err(unsupported(method));
        }
        if !dialect.rich_sampling && question.has_tools() {
            return Err(unsupported("sampling/createMessage with tools"));
        }
        if !dialect.rich_forms && question.has_multi_select() {
            return Err(unsupported("elicitation/create with multi-select fields"));
        }
        if question.kind != InputKind::Elicitation {
            return Ok(());
        }
        match dialect.elicitation {
            ElicitationModes::FormAndUrl => Ok(()),
            ElicitationModes::Form if !is_url(question) => Ok(()),
            ElicitationModes::Form => Err(unsupported("elicitation/create in URL mode")),
            ElicitationModes::None => Err(unsupported(method)),
        }
    }

    /// Sends a server-to-client request. Dropping the future cancels it.
    async fn send_and_wait(
        &self,
        key: &str,
        question: RawInputRequest,
        timeout: Option<Duration>,
    ) -> Result<Json, InputError> {
        let Some(client) = self.back_channel() else {
            let why = "the connection has no channel for server-to-client requests";
            return Err(InputError::Unavailable { why });
        };
        let own = self.input().map(|input| input.timeout);
        let options = CallOptions {
            total_timeout: Some(timeout.or(own).unwrap_or(DEFAULT_CLIENT_REQUEST_TIMEOUT)),
            ..CallOptions::default()
        };
        let (method, params) = question.into_request();
        let params = params.unwrap_or_else(Json::empty_object);
        let request = Request::new(method, params, self.shared_caller());
        let key = key.to_owned();
        match client.open(request, options).answer().await {
            Ok(Answer::Complete(answer)) => Ok(answer),
            Ok(Answer::InputRequired(_) | Answer::Extension { .. }) => {
                let why = "expected a complete result".into();
                Err(InputError::InvalidAnswer { key, why })
            }
            Err(Error::Peer(error)) => Err(InputError::Refused { key, error }),
            Err(source) => Err(InputError::Failed { key, source }),
        }
    }

    /// Returns the answer of an earlier round, or waits for this round to end.
    async fn ask_in_round(
        &self,
        key: &str,
        question: RawInputRequest,
        accepted: AcceptedAnswers,
    ) -> Result<Json, InputError> {
        let Some(input) = self.input() else {
            let why = "requests of this method do not support input";
            return Err(InputError::Unavailable { why });
        };
        match input.ask(key, question, accepted)? {
            AnswerLookup::Answer(answer) => Ok(answer),
            AnswerLookup::Pending(_pending) => {
                // Ending the round drops the handler and cancels `self`, which resolves this in spawned tasks.
                self.cancelled().await;
                Err(InputError::RequestEnded)
            }
        }
    }
}

fn is_url(question: &RawInputRequest) -> bool {
    #[derive(serde::Deserialize)]
    struct Mode {
        mode: Option<ElicitMode>,
    }
    let params = question.params.as_ref();
    let mode = params.and_then(|params| params.decode::<Mode>().ok());
    mode.is_some_and(|params| params.mode == Some(ElicitMode::Url))
}

/// The default timeout of server-to-client requests.
pub(crate) const DEFAULT_CLIENT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5 * 60);
