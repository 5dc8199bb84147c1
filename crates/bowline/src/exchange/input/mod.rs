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
use bowline_types::{ElicitMode, Json, RpcError};
use tokio::sync::OnceCell;

use super::{Answer, CallOptions, Context};
use crate::sync::Mutex;
use crate::{Error, deprecation};

/// The input state of one run of a handler; in the legacy era it only carries the timeout. Shared with `RoundFuture`
/// (`server/input_required.rs`), which ends the round.
pub(crate) struct InputRound {
    state: Mutex<RoundState>,
    /// The timeout of server-to-client requests.
    timeout: Duration,
    /// The answer to `roots/list`, which is requested once: the roots do not depend on the handler's state.
    roots: OnceCell<Json>,
    /// Guards `Context::once` against a repeated `requestState`; `None` in a first round, which has none.
    once: Option<OnceGuard>,
}

struct RoundState {
    /// `None` once the round is over.
    round: Option<ServerRound>,
    /// How often each key was used in this run.
    uses: BTreeMap<String, u32>,
    /// The waker of `RoundFuture`. A task that the handler spawned may request input, and does not wake it otherwise.
    round_future: Option<Waker>,
    /// The last input request that failed a check, or the last use of `Context::once` that was refused.
    rejected: Option<RejectedInput>,
}

/// An input request that was not sent because the client does not support it, or a `requestState` that was used before.
pub(crate) struct RejectedInput {
    /// The text of the [`InputError`] that the handler got. If the handler fails with this text, the client gets
    /// `error` in place of a tool result.
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
                round_future: None,
                rejected: None,
            }),
            timeout,
            roots: OnceCell::new(),
        }
    }

    /// Returns whether an input request waits for the client's answer.
    pub(crate) fn is_pending(&self) -> bool {
        self.state
            .lock()
            .round
            .as_ref()
            .is_some_and(ServerRound::is_pending)
    }

    /// Ends the round. Later input requests fail with [`InputError::RequestEnded`].
    pub(crate) fn take_round(&self) -> Option<ServerRound> {
        self.state.lock().round.take()
    }

    /// Takes the last input request that failed a check, or the last refused use of `Context::once`.
    pub(crate) fn take_rejected_input(&self) -> Option<RejectedInput> {
        self.state.lock().rejected.take()
    }

    /// Wakes `round_future` when an input request becomes pending.
    pub(crate) fn wake_on_input_request(&self, round_future: &Waker) {
        let round_future = round_future.clone();
        let old = self.state.lock().round_future.replace(round_future);
        drop(old);
    }

    fn ask(
        self: &Arc<Self>,
        key: &str,
        input_request: RawInputRequest,
        accepted: AcceptedAnswers,
    ) -> Result<AnswerLookup, InputError> {
        let mut state = self.state.lock();
        let key = state.number(key);
        let round = state.round.as_mut().ok_or(InputError::RequestEnded)?;
        if accepted == AcceptedAnswers::All {
            round.accept_unsolicited(&key, &input_request);
        }
        match round.ask(&key, input_request)? {
            InputStatus::Answered(answer) => Ok(AnswerLookup::Answer(answer)),
            InputStatus::Pending => {
                let round_future = state.round_future.take();
                drop(state);
                round_future.into_iter().for_each(Waker::wake);
                let input = self.clone();
                Ok(AnswerLookup::Pending(PendingInputRequest { input, key }))
            }
        }
    }
}

impl RoundState {
    /// Numbers the uses of one key, so that each request of a loop gets its own answer: `age`, `age#2`, `age#3`.
    fn number(&mut self, key: &str) -> String {
        let uses = self.uses.entry(key.to_owned()).or_default();
        *uses += 1;
        match *uses {
            1 => key.to_owned(),
            nth => format!("{key}#{nth}"),
        }
    }
}

/// The options of one input request.
#[derive(Clone, Copy, Debug, Default)]
struct InputRequestOptions {
    /// The timeout, if it is a server-to-client request.
    timeout: Option<Duration>,
    accepted: AcceptedAnswers,
}

/// Which answers in `inputResponses` are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AcceptedAnswers {
    /// Only answers to input requests of an earlier round.
    #[default]
    Solicited,
    /// Also unsolicited answers.
    All,
}

enum AnswerLookup {
    Answer(Json),
    Pending(PendingInputRequest),
}

/// A pending input request. Dropping it withdraws the request from the round.
struct PendingInputRequest {
    input: Arc<InputRound>,
    key: String,
}

impl Drop for PendingInputRequest {
    fn drop(&mut self) {
        if let Some(round) = &mut self.input.state.lock().round {
            round.withdraw(&self.key);
        }
    }
}

impl Context {
    /// Gets an answer from the client, or the roots that it sent before.
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the input request.
    async fn ask(
        &self,
        key: &str,
        input_request: RawInputRequest,
        options: InputRequestOptions,
    ) -> Result<Json, InputError> {
        match self.input() {
            // A concurrent request waits for the first one, and takes its place if that is dropped or fails.
            Some(input) if input_request.kind == InputKind::Roots => {
                let ask = || self.ask_client(key, input_request, options);
                input.roots.get_or_try_init(ask).await.cloned()
            }
            _ => self.ask_client(key, input_request, options).await,
        }
    }

    /// Gets an answer from the client.
    ///
    /// # Cancel safety
    ///
    /// Dropping it cancels the input request.
    async fn ask_client(
        &self,
        key: &str,
        input_request: RawInputRequest,
        options: InputRequestOptions,
    ) -> Result<Json, InputError> {
        self.check(key, &input_request)?;
        deprecation::warn_deprecated(input_request.kind.method(), self.caller().dialect);
        let answer = async {
            match self.caller().dialect.input_mechanism {
                InputMechanism::Request => {
                    self.send_and_wait(key, input_request, options.timeout)
                        .await
                }
                InputMechanism::InputRequired => {
                    self.ask_in_round(key, input_request, options.accepted)
                        .await
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

    fn check(&self, key: &str, input_request: &RawInputRequest) -> Result<(), InputError> {
        if key.is_empty() || key.contains('#') {
            return Err(InputError::misuse(format!(
                "invalid key `{key}` of an input request: expected a non-empty text without `#`, \
                 which is reserved for numbering repeated uses of a key"
            )));
        }
        if self.is_cancelled() {
            return Err(InputError::RequestEnded);
        }
        let checked = self.check_dialect(input_request).and_then(|()| {
            let declared = &self.caller().capabilities;
            input_request
                .check_capabilities(declared)
                .map_err(InputError::from)
        });
        checked.inspect_err(|error| {
            if let Some(input) = self.input() {
                input.state.lock().rejected = Some(RejectedInput {
                    why: error.to_string(),
                    error: error.to_rpc_error(),
                });
            }
        })
    }

    /// Checks the protocol version, since a client may declare capabilities that its version does not have.
    fn check_dialect(&self, input_request: &RawInputRequest) -> Result<(), InputError> {
        let dialect = self.caller().dialect;
        let method = input_request.kind.method();
        let unsupported = |what| InputError::Unsupported {
            what,
            version: dialect.version,
        };
        if dialect.input_mechanism == InputMechanism::Request
            && dialect.lacks_server_request(method)
        {
            return Err(unsupported(method));
        }
        if !dialect.rich_sampling && input_request.has_tools() {
            return Err(unsupported("sampling/createMessage with tools"));
        }
        if !dialect.rich_forms && input_request.has_multi_select() {
            return Err(unsupported("elicitation/create with multi-select fields"));
        }
        if input_request.kind != InputKind::Elicitation {
            return Ok(());
        }
        match dialect.elicitation {
            ElicitationModes::FormAndUrl => Ok(()),
            ElicitationModes::Form if !is_url(input_request) => Ok(()),
            ElicitationModes::Form => Err(unsupported("elicitation/create in URL mode")),
            ElicitationModes::None => Err(unsupported(method)),
        }
    }

    /// Sends a server-to-client request. Dropping the future cancels it.
    async fn send_and_wait(
        &self,
        key: &str,
        input_request: RawInputRequest,
        timeout: Option<Duration>,
    ) -> Result<Json, InputError> {
        let Some(client) = self.back_channel() else {
            let why = "the connection has no channel for server-to-client requests";
            return Err(InputError::Unavailable { why });
        };
        let server_default = self.input().map(|input| input.timeout);
        let options = CallOptions {
            timeout: timeout
                .or(server_default)
                .or(Some(DEFAULT_CLIENT_REQUEST_TIMEOUT)),
            ..CallOptions::default()
        };
        let (method, params) = input_request.into_request();
        let params = params.unwrap_or_else(Json::empty_object);
        let request = Request::new(method, params, self.shared_caller());
        let key = key.to_owned();
        match client.open(request, options).answer().await {
            Ok(Answer::Complete(answer)) => Ok(answer),
            Ok(Answer::InputRequired(_) | Answer::Extension { .. }) => {
                let why = "expected a complete result".into();
                Err(InputError::InvalidAnswer { key, why })
            }
            Err(Error::Rpc(error)) => Err(InputError::Rpc { key, error }),
            Err(source) => Err(InputError::Failed { key, source }),
        }
    }

    /// Returns the client's answer if it came with this round or an earlier one; otherwise waits until the round ends.
    async fn ask_in_round(
        &self,
        key: &str,
        input_request: RawInputRequest,
        accepted: AcceptedAnswers,
    ) -> Result<Json, InputError> {
        let Some(input) = self.input() else {
            let why = "requests of this method do not support input";
            return Err(InputError::Unavailable { why });
        };
        match input.ask(key, input_request, accepted)? {
            AnswerLookup::Answer(answer) => Ok(answer),
            AnswerLookup::Pending(_pending) => {
                // `RoundFuture` ends the round by dropping the handler, and this future with it. A task that the
                // handler spawned is not dropped: there, this resolves because `RoundFuture` also cancels the context.
                self.cancelled().await;
                Err(InputError::RequestEnded)
            }
        }
    }
}

fn is_url(input_request: &RawInputRequest) -> bool {
    #[derive(serde::Deserialize)]
    struct Mode {
        mode: Option<ElicitMode>,
    }
    let params = input_request.params.as_ref();
    let mode = params.and_then(|params| params.decode::<Mode>().ok());
    mode.is_some_and(|params| params.mode == Some(ElicitMode::Url))
}

/// The default of `Server::client_request_timeout`: the timeout of requests from the server to the client.
pub(crate) const DEFAULT_CLIENT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5 * 60);
