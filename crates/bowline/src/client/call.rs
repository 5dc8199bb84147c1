//! [`Call`], a request in flight, which is cancelled when it is dropped, and its result, [`Reply`].
//!
//! ```text
//! Waiting ──result──▶ (ListingTools) ──▶ Reply
//!  ▲  ├──result of an extension──▶ Completing ──result──▶ as above
//!  │  ├──input_required──▶ AnsweringInput ─────────────────────────────────┐
//!  │  └──error, version not confirmed or headers rejected──▶ Correcting──┐ │
//!  └────────────────────────── next exchange ◀───────────────────────────┴─┘
//! ```

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::{Request, Unsealed, unseal};
use bowline_core::input::{ClientRounds, InputStep, RoundsMisuse, is_input_required};
use bowline_types::{
    CallToolRequest, CallToolResult, ContentBlock, ErrorCode, InputRequiredResult, Json,
    ListToolsRequest, Meta, Method, NotificationMethod, ProgressNotification,
    ProgressNotificationParams, RequestId, ResultType,
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::cache_policy::CacheMode;
use super::cannot_have_run;
use super::extension_call::Completing;
use super::input_requests::{HostAnswers, retry_pause};
use super::known_tools::{ArgumentHeaders, PageSource, ValidationStatus};
use super::request_builder::with_log_level;
use super::structured;
use super::{Client, ExtensionCall, ExtensionResult};
use crate::exchange::{
    Answer, BoxFuture, CallOptions, Channel, Exchange, ExchangeEvent, InProcess,
};
use crate::{Error, Result};

/// Called for each progress notification.
pub(super) type OnProgress = Box<dyn FnMut(ProgressNotificationParams) + Send>;

/// A request in flight; a future of its [`Reply`].
///
/// # Cancel safety
///
/// Dropping it cancels the request, which drops the server's handler. Other calls are not affected.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// let call = client.call_tool("slow", ()).start();
/// println!("request {:?} is in flight", call.id());
/// call.cancel("the user closed the tab");
/// # Ok(()) }
/// ```
#[must_use = "dropping a call cancels it"]
pub struct Call {
    client: Client,
    request: Request,
    options: CallOptions,
    on_progress: Option<OnProgress>,
    rounds: Option<ClientRounds>,
    /// Whether an `input_required` result is returned to the caller instead of being answered by the host.
    pub(super) manual_input: bool,
    /// Whether the result of an extension is returned to the caller instead of being completed by the extension.
    pub(super) manual_extension: bool,
    /// Whether the tools were listed because the server rejected the headers of the request.
    has_corrected_headers: bool,
    /// The number of changes of the tools when they were requested; 0 for other requests.
    tool_changes: u64,
    /// When the current round began, if there is a total timeout, and the time that the earlier rounds, and the earlier
    /// pages of a list, took of it. The time in which the host or an authorizer waits for a user does not count.
    round_began: Option<Instant>,
    time_spent: Duration,
    phase: RequestPhase,
}

enum RequestPhase {
    Waiting(Exchange),
    /// The host is answering the input requests of the server.
    AnsweringInput(HostAnswers),
    /// The request failed. Its cause is being corrected: the server is probed if the remembered version may be wrong,
    /// and the tools are listed if the headers were rejected. The output is the time that it took if the request is to
    /// be sent again.
    Correcting(BoxFuture<'static, Option<Duration>>, Error),
    /// The result is that of an extension, which obtains the final one.
    Completing(Box<Completing>),
    /// The result has arrived; the tools are being listed for the output schema to validate it.
    ListingTools(BoxFuture<'static, Duration>, Json),
    Done,
}

impl Call {
    pub(super) fn new(
        client: Client,
        request: Request,
        options: CallOptions,
        on_progress: Option<OnProgress>,
        time_spent: Duration,
    ) -> Self {
        Self {
            client,
            request,
            options,
            on_progress,
            rounds: None,
            manual_input: false,
            manual_extension: false,
            has_corrected_headers: false,
            tool_changes: 0,
            round_began: None,
            time_spent,
            phase: RequestPhase::Done,
        }
    }

    /// Sends the request, unless it is answered already.
    pub(super) fn start(&mut self, answered: Option<Exchange>, cache_mode: CacheMode) {
        let in_time = self.add_time_spent(Duration::ZERO); // by the earlier pages of a list
        let answered = answered.or_else(|| in_time.err().map(Exchange::failed));
        let request = self.request.clone();
        self.phase = self.open(|client, options| {
            answered.unwrap_or_else(|| client.open(request, options, cache_mode))
        });
    }

    /// Opens the exchange of a round.
    fn open(&mut self, open: impl FnOnce(&Client, CallOptions) -> Exchange) -> RequestPhase {
        if self.request.method == ListToolsRequest::NAME {
            // Before the request is sent: a result from before a change is outdated.
            self.tool_changes = self.client.inner.notifications.tools.changes();
        }
        let options = CallOptions {
            timeout: self.remaining_time(),
            ..self.options.clone()
        };
        self.round_began = options.timeout.map(|_| Instant::now());
        RequestPhase::Waiting(open(&self.client, options))
    }

    /// Returns the id of the request in flight; `None` between two requests of the call and once it is done.
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        match &self.phase {
            RequestPhase::Waiting(exchange) => exchange.request_id(),
            RequestPhase::AnsweringInput(_)
            | RequestPhase::Correcting(..)
            | RequestPhase::Completing(_)
            | RequestPhase::ListingTools(..)
            | RequestPhase::Done => None,
        }
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the request, with its method and params.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let call = client.call_tool("slow", ()).start();
    /// assert_eq!(call.request().method, "tools/call");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Cancels the request, with a reason for the server where the transport can carry one, and for the extension that
    /// [completes](super::ClientExtension::complete) it, if one does.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let call = client.call_tool("slow", ()).start();
    /// call.cancel("the user closed the tab");
    /// # Ok(()) }
    /// ```
    pub fn cancel(mut self, reason: impl Into<String>) {
        match std::mem::replace(&mut self.phase, RequestPhase::Done) {
            RequestPhase::Waiting(exchange) => exchange.cancel(reason),
            RequestPhase::Completing(completing) => completing.cancel(reason.into()),
            RequestPhase::AnsweringInput(_)
            | RequestPhase::Correcting(..)
            | RequestPhase::ListingTools(..)
            | RequestPhase::Done => {}
        }
    }

    /// Takes the callback, for the request of the next page.
    pub(super) fn take_on_progress(&mut self) -> Option<OnProgress> {
        self.on_progress.take()
    }

    /// Returns how much of the total timeout was spent, if there is one.
    pub(super) fn time_spent(&self) -> Duration {
        self.time_spent
    }

    /// Stores the tools of a `tools/list` result, or validates a `tools/call` result. Pending if the tool is not known
    /// and must be listed first.
    fn process_result(&mut self, result: Json) -> Poll<Result<Reply>> {
        let source = match self.id() {
            Some(_) => PageSource::Server,
            None => PageSource::Cache, // it was not sent
        };
        self.phase = RequestPhase::Done;
        let inner = &self.client.inner;
        let tools = &inner.notifications.tools;
        let result = match &*self.request.method {
            ListToolsRequest::NAME => {
                let headers = inner.current_connection().argument_headers();
                tools.store(&result, headers, self.tool_changes, source)
            }
            CallToolRequest::NAME => match tools.validate(&self.request.params, &result)? {
                ValidationStatus::Valid => result,
                ValidationStatus::UnknownTool => {
                    let listing = self.client.clone().relist_tools(self.listing_limit());
                    self.phase = RequestPhase::ListingTools(Box::pin(listing), result);
                    return Poll::Pending;
                }
            },
            _ => result,
        };
        Poll::Ready(Ok(Reply::complete(result)))
    }

    /// Passes the result of an extension to the extension, or returns it to a caller that requested that.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if no extension of the client defines `result_type` for the method.
    fn complete_extension(&mut self, result_type: String, result: Json) -> Poll<Result<Reply>> {
        let extensions = &self.client.inner.config.extensions;
        let extension = extensions.of_result(&result_type, &self.request.method);
        // The result arrived in time. If no time is left, the extension must still get it, to discard it.
        let _ = self.end_round();
        self.phase = RequestPhase::Done;
        let extension = match extension {
            Ok(extension) if !self.manual_extension => extension,
            checked => return Poll::Ready(checked.map(|_| Reply::incomplete(result_type, result))),
        };
        let result = ExtensionResult::new(result_type, result);
        self.start_completing(|cx| extension.complete(result, cx));
        Poll::Pending
    }

    /// Waits for the result that `complete` obtains.
    pub(super) fn start_completing(
        &mut self,
        complete: impl FnOnce(ExtensionCall) -> BoxFuture<'static, Result<Json>>,
    ) {
        let options = CallOptions {
            timeout: self.remaining_time(),
            ..self.options.clone()
        };
        let (client, request) = (self.client.clone(), self.request.clone());
        let completing = Completing::new(complete, client, request, &options);
        self.phase = RequestPhase::Completing(Box::new(completing));
    }

    /// Handles the output of an extension like a direct result, which must be complete.
    fn finish_completion(
        &mut self,
        completed: Result<Json>,
        spent: Duration,
    ) -> Poll<Result<Reply>> {
        self.phase = RequestPhase::Done;
        let remaining = self.remaining_time();
        let _ = self.add_time_spent(spent); // the result came in time
        let result = match (completed, self.options.timeout) {
            (Ok(result), _) => result,
            // Report the total that the caller set, not the rest of it.
            (Err(Error::Timeout { after }), Some(total)) if Some(after) == remaining => {
                return Poll::Ready(Err(Error::Timeout { after: total }));
            }
            (Err(error), _) => return Poll::Ready(Err(error)),
        };
        let (method, dialect) = (&self.request.method, self.request.caller.dialect);
        match unseal(method, dialect, Ok(result)) {
            Ok(Unsealed::Complete(result)) => self.process_result(result),
            _ => Poll::Ready(Err(Error::protocol(format!(
                "expected a complete result of `{method}` from its extension"
            )))),
        }
    }

    fn handle_notification(&mut self, notification: &Notification) {
        if notification.method != ProgressNotification::NAME {
            return self.client.deliver_from_exchange(notification);
        }
        let (Some(on_progress), Some(params)) = (&mut self.on_progress, &notification.params)
        else {
            return;
        };
        match params.decode() {
            Ok(progress) => on_progress(progress),
            Err(error) => tracing::warn!(%error, "failed to decode a progress notification"),
        }
    }

    /// Passes the input requests of a result to the host.
    fn start_round(&mut self, result: &Json) -> Result<RequestPhase> {
        let rounds = match &mut self.rounds {
            Some(rounds) => rounds,
            none => {
                let (method, params) = (&self.request.method, Json::clone(&self.request.params));
                let max_rounds = self.client.inner.config.max_rounds;
                let rounds = ClientRounds::new(method.clone(), Some(params), max_rounds);
                none.insert(rounds.map_err(rounds_misuse)?)
            }
        };
        let step = rounds
            .next(result)
            .map_err(|broken| Error::protocol(broken.to_string()))?;
        let host = InProcess::new(self.client.inner.config.host.clone());
        let caller = self.request.caller.clone();
        let answers = match step {
            InputStep::Ask(input_requests) => HostAnswers::new(host, caller, input_requests)?,
            InputStep::Retry => {
                let pause = retry_pause(rounds.round());
                self.add_time_spent(pause)?;
                HostAnswers::after_pause(host, caller, pause)
            }
        };
        Ok(RequestPhase::AnsweringInput(answers))
    }

    /// Adds to the time spent.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the total timeout is exceeded.
    fn add_time_spent(&mut self, time: Duration) -> Result<()> {
        self.time_spent = self.time_spent.saturating_add(time);
        match self.options.timeout {
            Some(after) if self.time_spent >= after => Err(Error::Timeout { after }),
            _ => Ok(()),
        }
    }

    /// Records the number of requests of a call whose server has asked for input.
    fn record_legs(&self) {
        if let Some(rounds) = &self.rounds {
            let telemetry = &self.client.inner.config.telemetry;
            telemetry.record_legs(&self.request, rounds.round() + 1);
        }
    }

    fn end_round(&mut self) -> Result<()> {
        let (Some(began), RequestPhase::Waiting(exchange)) = (self.round_began, &self.phase) else {
            return Ok(());
        };
        self.add_time_spent(began.elapsed().saturating_sub(exchange.paused()))
    }

    /// Returns the rest of the total timeout.
    fn remaining_time(&self) -> Option<Duration> {
        let total = self.options.timeout?;
        Some(total.saturating_sub(self.time_spent))
    }

    /// Returns the timeout of listing the tools for this call.
    fn listing_limit(&self) -> Duration {
        let limits = [self.options.idle_timeout, self.remaining_time()];
        limits.into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// Returns the error, or the next phase if a wrong remembered version or an outdated list of tools may have caused
    /// it.
    fn fail_or_correct(&mut self, error: Error) -> Result<RequestPhase> {
        if let Error::Timeout { after } = error
            && Some(after) == self.remaining_time()
        {
            // Report the total that the caller set, not the rest of it that limited this round.
            let after = self.options.timeout.unwrap_or(after);
            return Err(Error::Timeout { after });
        }
        let dialect = self.request.caller.dialect;
        let corrects_headers = self.may_lack_headers(&error);
        if !corrects_headers
            && (self.rounds.is_some() || !self.client.may_be_outdated(dialect, &error))
        {
            return Err(error);
        }
        self.end_round()?;
        let left = self.remaining_time();
        let client = self.client.clone();
        let correcting: BoxFuture<'static, _> = if corrects_headers {
            self.has_corrected_headers = true;
            let listing = client.relist_tools(self.listing_limit());
            Box::pin(async move {
                let took = listing.await;
                left.is_none_or(|left| took < left).then_some(took)
            })
        } else {
            let began = Instant::now();
            Box::pin(async move {
                let is_corrected = within(left, client.correct_version()).await == Some(true);
                is_corrected.then(|| began.elapsed())
            })
        };
        Ok(RequestPhase::Correcting(correcting, error))
    }

    /// Returns whether the server rejected the headers of a tool call for the first time. They depend on the known
    /// tools, which may be outdated.
    fn may_lack_headers(&self, error: &Error) -> bool {
        matches!(error, Error::Rpc(error) if error.code == ErrorCode::HEADER_MISMATCH)
            && self.request.method == CallToolRequest::NAME
            && self.client.inner.current_connection().argument_headers() == ArgumentHeaders::Sent
            && !self.has_corrected_headers
    }

    /// Sends the request again: in the server's actual version, with its current headers, and with the answers of the
    /// host (`inputResponses`).
    fn send_again(&mut self) -> Result<RequestPhase> {
        let log_level = self.request.caller.log_level;
        self.request.caller = with_log_level(self.client.caller(), log_level);
        let mut request = self.request.clone();
        if let Some(rounds) = &self.rounds {
            request.params = rounds.retry_params().map_err(rounds_misuse)?.into();
        }
        self.options.id = None; // a new request must not reuse an id that the caller chose
        Ok(self.open(|client, options| client.inner.current_connection().open(request, options)))
    }

    fn answer_input(&mut self, answers: Vec<(String, Json)>) -> Result<RequestPhase> {
        let rounds = self.rounds.as_mut().ok_or(Error::Closed)?;
        for (key, answer) in answers {
            rounds.answer(&key, answer).map_err(rounds_misuse)?;
        }
        self.send_again()
    }
}

impl Future for Call {
    type Output = Result<Reply>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            let next = match &mut this.phase {
                RequestPhase::Waiting(exchange) => match ready!(exchange.poll_event(cx)) {
                    ExchangeEvent::Notification(notification) => {
                        this.handle_notification(&notification);
                        continue;
                    }
                    ExchangeEvent::Answered(Ok(Answer::InputRequired(result)))
                        if !this.manual_input =>
                    {
                        this.end_round().and_then(|()| this.start_round(&result))
                    }
                    ExchangeEvent::Answered(Ok(Answer::Complete(result))) => {
                        this.client.confirm_version();
                        this.record_legs();
                        let _ = this.end_round(); // the result arrived in time
                        match this.process_result(result) {
                            Poll::Ready(reply) => return Poll::Ready(reply),
                            Poll::Pending => continue,
                        }
                    }
                    ExchangeEvent::Answered(Ok(Answer::Extension {
                        result_type,
                        result,
                    })) => {
                        this.client.confirm_version();
                        match this.complete_extension(result_type, result) {
                            Poll::Ready(reply) => return Poll::Ready(reply),
                            Poll::Pending => continue,
                        }
                    }
                    ExchangeEvent::Answered(Ok(Answer::InputRequired(result))) => {
                        this.phase = RequestPhase::Done;
                        let result_type = ResultType::INPUT_REQUIRED.as_str().to_owned();
                        return Poll::Ready(Ok(Reply::incomplete(result_type, result)));
                    }
                    ExchangeEvent::Answered(Err(error)) => this.fail_or_correct(error),
                },
                RequestPhase::Correcting(correcting, error) => {
                    let took = ready!(correcting.as_mut().poll(cx));
                    let error = std::mem::replace(error, Error::Closed);
                    // Resent only if the error proves that it did not run: a tool must not act twice.
                    match took.filter(|_| cannot_have_run(&error)) {
                        Some(took) => this.add_time_spent(took).and_then(|()| this.send_again()),
                        None => Err(error),
                    }
                }
                RequestPhase::AnsweringInput(answers) => ready!(Pin::new(answers).poll(cx))
                    .and_then(|answers| this.answer_input(answers)),
                RequestPhase::Completing(completing) => {
                    let completed = ready!(completing.poll(this.on_progress.as_mut(), cx));
                    let spent = completing.time_spent();
                    match this.finish_completion(completed, spent) {
                        Poll::Ready(reply) => return Poll::Ready(reply),
                        Poll::Pending => continue,
                    }
                }
                RequestPhase::ListingTools(list, result) => {
                    ready!(list.as_mut().poll(cx));
                    let tools = &this.client.inner.notifications.tools;
                    let validated = tools.validate(&this.request.params, result);
                    let reply = validated.map(|_| Reply::complete(result.clone()));
                    this.phase = RequestPhase::Done;
                    return Poll::Ready(reply);
                }
                RequestPhase::Done => Err(Error::misuse("`Call` was polled after completion")),
            };
            match next {
                Ok(phase) => this.phase = phase,
                Err(error) => {
                    this.phase = RequestPhase::Done;
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.request.method)
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// Runs `future`; `None` if it takes longer than `limit`.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
pub(super) fn rounds_misuse(misuse: RoundsMisuse) -> Error {
    Error::misuse(misuse.to_string())
}

/// The result of a request.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// let reply = client.call_tool("add", serde_json::json!({"a": 1, "b": 2})).await?;
/// println!("{}", reply.text());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    result: Json,
    /// Set if the result is not complete.
    result_type: Option<String>,
}

impl Reply {
    fn complete(result: Json) -> Self {
        Self {
            result,
            result_type: None,
        }
    }

    fn incomplete(result_type: String, result: Json) -> Self {
        Self {
            result,
            result_type: Some(result_type),
        }
    }

    /// Returns the result as JSON text.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.result
    }

    /// Decodes the result as `T`.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if the result is not a `T`.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        self.result
            .decode()
            .map_err(|error| Error::undecodable("failed to decode the result", error))
    }

    /// Returns the text blocks of a tool result, joined by newlines.
    #[must_use]
    pub fn text(&self) -> String {
        let content = self
            .tool_result()
            .map(|result| result.content)
            .unwrap_or_default();
        let texts = content.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// Decodes the structured output of a tool.
    ///
    /// It works in every protocol version. Without `structuredContent`, which exists from 2025-06-18, the output is the
    /// first text block that is JSON. Until 2025-11-25 `structuredContent` is an object, so servers wrap other output
    /// as `{"result": value}`; a `T` for `value` gets the value.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedType`] if the output is not a `T`, or there is no structured output, as after an error of the
    /// tool. [`Error::Protocol`] if the result is not that of a tool.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// #[derive(serde::Deserialize)]
    /// struct Weather {
    ///     celsius: f64,
    /// }
    ///
    /// let reply = client.call_tool("weather", serde_json::json!({"city": "Bergen"})).await?;
    /// let weather: Weather = reply.structured()?;
    /// # Ok(()) }
    /// ```
    pub fn structured<T: DeserializeOwned>(&self) -> Result<T> {
        structured::decode(&self.tool_result()?)
    }

    /// Returns whether the tool failed (`isError`); [`Reply::text`] has the message.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client.call_tool("divide", serde_json::json!({"a": 1, "b": 0})).await?;
    /// if reply.is_error() {
    ///     println!("division failed: {}", reply.text());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.tool_result()
            .is_ok_and(|result| result.is_error == Some(true))
    }

    /// Decodes the result as that of `tools/call`.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if it is not a tool result.
    pub fn tool_result(&self) -> Result<CallToolResult> {
        self.decode()
    }

    /// Returns the `input_required` result of a request that was sent with
    /// [`manual_input`](super::RequestBuilder::manual_input).
    #[must_use]
    pub fn input_required(&self) -> Option<InputRequiredResult> {
        let needs_input = is_input_required(&self.result);
        needs_input.then(|| self.result.decode().ok()).flatten()
    }

    /// Returns the `resultType` of a result that is not complete: `input_required`, after
    /// [`manual_input`](super::RequestBuilder::manual_input), or that of an extension, after
    /// [`manual_extension`](super::RequestBuilder::manual_extension). Returns `None` for the result of the method.
    #[must_use]
    pub fn result_type(&self) -> Option<&str> {
        self.result_type.as_deref()
    }

    /// Returns the `_meta` of the result.
    #[must_use]
    pub fn meta(&self) -> Option<Meta> {
        #[derive(serde::Deserialize)]
        struct WithMeta {
            #[serde(rename = "_meta")]
            meta: Option<Meta>,
        }
        self.result.decode().ok().and_then(|WithMeta { meta }| meta)
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.result.fmt(f)
    }
}
