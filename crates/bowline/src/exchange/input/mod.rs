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

mod client_requests;
use client_requests::ClientRequestsInput;

mod error;
pub use error::InputError;

mod form;
pub use form::{Form, FormTypeError};

mod once;
pub(crate) use once::OnceGuard;

mod pending_input;
pub use pending_input::{Elicitation, ElicitationOutcome, PendingInput};

mod persist;

mod rounds;
use rounds::RoundsInput;

mod source;
pub use source::{AcceptedAnswers, InputRequestOptions, InputSource};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bowline_core::era::{ElicitationModes, InputMechanism};
use bowline_core::input::{InputKind, RawInputRequest, ServerRound};
use bowline_types::{ElicitMode, Json, RpcError};
use tokio::sync::OnceCell;

use super::{BoxFuture, Context};
use crate::deprecation;
use crate::sync::Mutex;

/// The input state of one run of a handler: what is the same for every source, and the source itself.
pub(crate) struct HandlerRun {
    state: Mutex<RunState>,
    /// The answer to `roots/list`, which is requested once: the roots do not depend on the handler's state.
    roots: OnceCell<Json>,
    source: RunSource,
}

#[derive(Default)]
struct RunState {
    /// How often each key of an input request was used in this run.
    uses: BTreeMap<String, u32>,
    /// How often each name of a step was used in this run.
    steps: BTreeMap<String, u32>,
    /// The last input request that failed a check, or the last effect that was refused.
    rejected: Option<RejectedInput>,
}

/// The source of a run. The sources of `Server` are stored in place, so that a call that requests no input costs no
/// allocation for them.
enum RunSource {
    ClientRequests(ClientRequestsInput),
    Rounds(RoundsInput),
    Other(Arc<dyn InputSource>),
}

/// An input request that was not sent because the client does not support it, or a `requestState` that was used before.
pub(crate) struct RejectedInput {
    /// The text of the [`InputError`] that the handler got. If the handler fails with this text, the client gets
    /// `error` in place of a tool result.
    pub(crate) why: String,
    pub(crate) error: RpcError,
}

impl HandlerRun {
    /// Creates the run of a handler that sends server-to-client requests.
    pub(crate) fn with_client_requests(cx: &Context, timeout: Duration) -> Self {
        Self::new(RunSource::ClientRequests(ClientRequestsInput::new(
            cx, timeout,
        )))
    }

    /// Creates the run of a handler in one round of a multi round-trip request.
    pub(crate) fn with_round(round: ServerRound, once: Option<OnceGuard>) -> Self {
        Self::new(RunSource::Rounds(RoundsInput::new(round, once)))
    }

    fn new(source: RunSource) -> Self {
        Self {
            state: Mutex::default(),
            roots: OnceCell::new(),
            source,
        }
    }

    /// Returns whether an input request of the round waits for the client's answer.
    pub(crate) fn is_pending(&self) -> bool {
        self.rounds().is_some_and(RoundsInput::is_pending)
    }

    /// Ends the round. Later input requests fail with [`InputError::RequestEnded`].
    pub(crate) fn take_round(&self) -> Option<ServerRound> {
        self.rounds()?.take_round()
    }

    /// Takes the last input request that failed a check, or the last refused effect.
    pub(crate) fn take_rejected_input(&self) -> Option<RejectedInput> {
        self.state.lock().rejected.take()
    }

    /// Wakes `round_future` when an input request of the round becomes pending.
    pub(crate) fn wake_on_input_request(&self, round_future: &Waker) {
        if let Some(rounds) = self.rounds() {
            rounds.wake_on_input_request(round_future);
        }
    }

    fn source(&self) -> &dyn InputSource {
        match &self.source {
            RunSource::ClientRequests(source) => source,
            RunSource::Rounds(source) => source,
            RunSource::Other(source) => &**source,
        }
    }

    fn rounds(&self) -> Option<&RoundsInput> {
        match &self.source {
            RunSource::Rounds(rounds) => Some(rounds),
            RunSource::ClientRequests(_) | RunSource::Other(_) => None,
        }
    }

    fn reject(&self, error: &InputError) {
        self.state.lock().rejected = Some(RejectedInput {
            why: error.to_string(),
            error: error.to_rpc_error(),
        });
        if let RunSource::Other(source) = &self.source {
            source.rejected(error);
        }
    }

    fn number_key(&self, key: &str) -> String {
        number(&mut self.state.lock().uses, key)
    }

    fn number_step(&self, name: &str) -> String {
        number(&mut self.state.lock().steps, name)
    }
}

/// The source of the run, for [`Context::input_source`].
impl InputSource for HandlerRun {
    fn ask<'a>(
        &'a self,
        key: &'a str,
        request: RawInputRequest,
        options: InputRequestOptions,
    ) -> BoxFuture<'a, Result<Json, InputError>> {
        self.source().ask(key, request, options)
    }

    fn store<'a>(&'a self, key: &'a str, value: Json) -> BoxFuture<'a, Result<(), InputError>> {
        self.source().store(key, value)
    }

    fn stored<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        self.source().stored(key)
    }

    fn begin_effect<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, InputError>> {
        self.source().begin_effect(key)
    }

    fn finish_effect<'a>(
        &'a self,
        key: &'a str,
        output: Json,
    ) -> BoxFuture<'a, Result<(), InputError>> {
        self.source().finish_effect(key, output)
    }

    fn rejected(&self, error: &InputError) {
        self.reject(error);
    }
}

/// Numbers the uses of one key, so that each request of a loop gets its own answer: `age`, `age#2`, `age#3`.
fn number(uses: &mut BTreeMap<String, u32>, key: &str) -> String {
    let uses = uses.entry(key.to_owned()).or_default();
    *uses += 1;
    match *uses {
        1 => key.to_owned(),
        nth => format!("{key}#{nth}"),
    }
}

impl Context {
    /// Sets the source of input, for work that outlives its request, such as a task of an extension.
    ///
    /// Input requests and steps are numbered from the beginning. A [`Server`](crate::Server) that answers a request
    /// with such a context starts no rounds of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bowline::Context;
    /// use bowline::exchange::{InputSource, NotificationSink, Request};
    ///
    /// fn of_task(request: &Request, sink: Arc<dyn NotificationSink>, input: Arc<dyn InputSource>) -> Context {
    ///     Context::new("task-7".into(), request, sink).with_input_source(input)
    /// }
    /// ```
    #[must_use]
    pub fn with_input_source(self, source: Arc<dyn InputSource>) -> Self {
        self.with_input(Arc::new(HandlerRun::new(RunSource::Other(source))))
    }

    /// Returns the source of input, for a source that delegates to it; `None` if requests of this method do not
    /// support input.
    #[must_use]
    pub fn input_source(&self) -> Option<Arc<dyn InputSource>> {
        let run = self.input()?;
        match &run.source {
            RunSource::Other(source) => Some(source.clone()),
            RunSource::ClientRequests(_) | RunSource::Rounds(_) => Some(run.clone()),
        }
    }

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
            match self.input() {
                Some(input) => {
                    let key = input.number_key(key);
                    input.source().ask(&key, input_request, options).await
                }
                None => self.ask_without_run(key, input_request, options).await,
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
        check_key("key of an input request", key)?;
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
                input.reject(error);
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

    /// Gets an answer for a handler that is not run by a server.
    async fn ask_without_run(
        &self,
        key: &str,
        input_request: RawInputRequest,
        options: InputRequestOptions,
    ) -> Result<Json, InputError> {
        match self.caller().dialect.input_mechanism {
            InputMechanism::Request => {
                let client = ClientRequestsInput::new(self, DEFAULT_CLIENT_REQUEST_TIMEOUT);
                client.ask(key, input_request, options).await
            }
            InputMechanism::InputRequired => {
                let why = "requests of this method do not support input";
                Err(InputError::Unavailable { why })
            }
        }
    }
}

/// Checks the key of an input request, or the name of a step.
fn check_key(what: &str, key: &str) -> Result<(), InputError> {
    if !key.is_empty() && !key.contains('#') {
        return Ok(());
    }
    Err(InputError::misuse(format!(
        "invalid {what} `{key}`: expected a non-empty text without `#`, which is reserved for \
         numbering repeated uses"
    )))
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
