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

use bowline_core::era::{Dialect, InputMechanism, fit_question};
use bowline_core::input::{InputKind, RawInputRequest, ServerRound, check_url};
use bowline_core::json::{Object, pick};
use bowline_types::{Json, RpcError};
use tokio::sync::OnceCell;

use super::{BoxFuture, Context};
use crate::sync::Mutex;
use crate::{deprecation, random};

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
        let input_request = self.fit(key, input_request)?;
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

    /// Checks an input request, and converts it to the protocol version of the client.
    fn fit(&self, key: &str, request: RawInputRequest) -> Result<RawInputRequest, InputError> {
        check_key("key of an input request", key)?;
        if self.is_cancelled() {
            return Err(InputError::RequestEnded);
        }
        // Also checks the version, since a client may declare capabilities that its version does not have.
        let fitted = fit_question(self.caller().dialect, request)
            .map_err(InputError::from)
            .and_then(|request| {
                request.check_capabilities(&self.caller().capabilities)?;
                Ok(request)
            });
        let mut request = fitted.inspect_err(|error| {
            if let Some(input) = self.input() {
                input.reject(error);
            }
        })?;
        if request.is_url() {
            prepare_url(self.caller().dialect, &mut request)?;
        }
        Ok(request)
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

/// Checks the URL of an elicitation, and adds an `elicitationId` if the version has them: it is required there, for
/// `notifications/elicitation/complete`.
fn prepare_url(dialect: &Dialect, request: &mut RawInputRequest) -> Result<(), InputError> {
    let Some(params) = &request.params else {
        return Ok(());
    };
    let [url, id] = pick(params, ["url", "elicitationId"]).unwrap_or_default();
    let url: String = url.and_then(|url| url.decode().ok()).unwrap_or_default();
    check_url(&url).map_err(|error| InputError::misuse(error.to_string()))?;
    if dialect.input_mechanism == InputMechanism::Request
        && id.is_none()
        && let Ok(mut members) = Object::read(params)
    {
        members.set(
            "elicitationId",
            serde_json::Value::from(random_id()?).into(),
        );
        let params = members.to_json();
        request.params = Some(params);
    }
    Ok(())
}

fn random_id() -> Result<String, InputError> {
    let bytes: [u8; 16] = random::bytes().map_err(InputError::misuse)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The default of `Server::client_request_timeout`: the timeout of requests from the server to the client.
pub(crate) const DEFAULT_CLIENT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5 * 60);
