//! A request that was sent: a future whose drop is the cancel.
//!
//! ```text
//! exchange ──answered──▶ Reply
//!    ▲  └──input required──▶ the host decides ──┐
//!    └──────────── next exchange ◀──────────────┘
//! ```

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::{Caller, Request};
use bowline_core::input::{Misuse, Rounds, Step as Asks, is_input_required};
use bowline_core::mux::CallOptions;
use bowline_types::{
    CallToolRequest, CallToolResult, ContentBlock, InputRequiredResult, Json, ListToolsRequest,
    Meta, Method, Notice, ProgressNotification, ProgressNotificationParams, RequestId, Tool,
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::Client;
use super::asking::{Asking, pause_before};
use super::outputs::Looked;
use super::remembered_version::cannot_have_run;
use crate::exchange::{Answer, BoxFuture, Channel, Exchange, InProcess, Step};
use crate::{Error, Result};

/// Called for each progress report.
pub(super) type OnProgress = Box<dyn FnMut(ProgressNotificationParams) + Send>;

/// A request that was sent, and the future of its reply.
///
/// # Cancel safety
///
/// Dropping it cancels the request: the server's handler is dropped, and nobody else is disturbed.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// let call = client.call_tool("slow", ()).start();
/// println!("request {:?} is under way", call.id());
/// call.cancel("the user closed the tab");
/// # Ok(()) }
/// ```
#[must_use = "dropping a call cancels it"]
pub struct Call {
    client: Client,
    request: Request,
    options: CallOptions,
    on_progress: Option<OnProgress>,
    rounds: Option<Rounds>,
    /// Whether the caller answers the server's questions, rather than the host.
    by_hand: bool,
    /// When the round under way began, if its time is limited, and what the rounds before it took of the total time.
    round_began: Option<Instant>,
    spent: Duration,
    state: State,
}

enum State {
    Waiting(Exchange),
    /// The host is answering the server's questions.
    Asking(Asking),
    /// The request failed, and the server is being probed: the remembered version may be wrong.
    Correcting(BoxFuture<'static, bool>, Error),
    /// The result is there; what it must look like is being asked for.
    Listing(BoxFuture<'static, Result<Vec<Tool>>>, Json),
    Done,
}

impl Call {
    pub(super) fn new(
        client: Client,
        request: Request,
        options: CallOptions,
        on_progress: Option<OnProgress>,
        exchange: Exchange,
    ) -> Self {
        let state = State::Waiting(exchange);
        let round_began = options.total_timeout.map(|_| Instant::now());
        Self {
            client,
            request,
            options,
            on_progress,
            rounds: None,
            by_hand: false,
            round_began,
            spent: Duration::ZERO,
            state,
        }
    }

    pub(super) fn by_hand(mut self, by_hand: bool) -> Self {
        self.by_hand = by_hand;
        self
    }

    /// The id of the request that is under way, if one is.
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        match &self.state {
            State::Waiting(exchange) => exchange.request_id(),
            State::Asking(_) | State::Correcting(..) | State::Listing(..) | State::Done => None,
        }
    }

    /// Cancels the call and tells the server why.
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
        if let State::Waiting(exchange) = std::mem::replace(&mut self.state, State::Done) {
            exchange.cancel(reason);
        }
    }

    /// The callback, for the request that carries on where this one ended.
    pub(super) fn take_on_progress(&mut self) -> Option<OnProgress> {
        self.on_progress.take()
    }

    /// Looks at a result before its caller gets it.
    fn take_in(&mut self, result: Json) -> Poll<Result<Reply>> {
        let outputs = &self.client.inner.hearing.outputs;
        match &*self.request.method {
            ListToolsRequest::NAME => outputs.learn(&result),
            CallToolRequest::NAME => match outputs.look(&self.request.params, &result) {
                Ok(Looked::Fine) => {}
                Ok(Looked::Unlisted) => {
                    let list = self.client.list_tools().into_future();
                    let list = match self.left() {
                        Some(after) => Box::pin(async move {
                            let listed = timeout(after, list).await;
                            listed.unwrap_or(Err(Error::Timeout { after }))
                        }),
                        None => list,
                    };
                    self.state = State::Listing(list, result);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            },
            _ => {}
        }
        Poll::Ready(Ok(Reply(result)))
    }

    fn hear(&mut self, notification: &Notification) {
        if notification.method != ProgressNotification::NAME {
            return self.client.hear_within(notification);
        }
        let (Some(on_progress), Some(params)) = (&mut self.on_progress, &notification.params)
        else {
            return;
        };
        match params.decode() {
            Ok(progress) => on_progress(progress),
            Err(error) => tracing::warn!(%error, "the server's progress has the wrong shape"),
        }
    }

    /// Puts the server's questions to the host.
    fn ask(&mut self, result: &Json) -> Result<State> {
        let rounds = match &mut self.rounds {
            Some(rounds) => rounds,
            none => {
                let (method, params) = (&self.request.method, Json::clone(&self.request.params));
                let cap = self.client.inner.most_rounds;
                let rounds = Rounds::new(method.clone(), Some(params), cap);
                none.insert(rounds.map_err(misuse)?)
            }
        };
        let asks = rounds
            .next(result)
            .map_err(|broken| Error::protocol(broken.to_string()))?;
        let host = InProcess::new(self.client.inner.host.clone());
        let caller = self.request.caller.clone();
        let asking = match asks {
            Asks::Ask(questions) => Asking::new(host, caller, questions)?,
            Asks::Retry => {
                let pause = pause_before(rounds.round());
                self.spend(pause)?;
                Asking::pause(host, caller, pause)
            }
        };
        Ok(State::Asking(asking))
    }

    /// Counts time as part of the call: the total deadline is that of all rounds. Time in which the host or an authorizer
    /// decides is not counted.
    ///
    /// # Errors
    ///
    /// If that is more than is left, in which case there is no use in waiting.
    fn spend(&mut self, time: Duration) -> Result<()> {
        self.spent = self.spent.saturating_add(time);
        match self.options.total_timeout {
            Some(after) if self.spent >= after => Err(Error::Timeout { after }),
            _ => Ok(()),
        }
    }

    fn end_round(&mut self, paused: Duration) -> Result<()> {
        let took = self.round_began.map(|began| began.elapsed());
        self.spend(took.unwrap_or_default().saturating_sub(paused))
    }

    /// What is left of the total time for what is to come.
    fn left(&self) -> Option<Duration> {
        let total = self.options.total_timeout?;
        Some(total.saturating_sub(self.spent))
    }

    /// Returns the error, or the next state if a wrong remembered version may have caused it.
    fn fail_or_correct(&mut self, error: Error, paused: Duration) -> Result<State> {
        if let Error::Timeout { after } = error
            && Some(after) == self.left()
        {
            // The caller set the total; what was left of it for this round means nothing to them.
            let after = self.options.total_timeout.unwrap_or(after);
            return Err(Error::Timeout { after });
        }
        let dialect = self.request.caller.dialect;
        if self.rounds.is_some() || !self.client.may_be_outdated(dialect, &error) {
            return Err(error);
        }
        self.end_round(paused)?;
        let left = self.left();
        self.round_began = left.map(|_| Instant::now());
        let correcting = self.client.clone().correct_version();
        let correcting = async move {
            match left {
                Some(left) => timeout(left, correcting).await.unwrap_or(false),
                None => correcting.await,
            }
        };
        Ok(State::Correcting(Box::pin(correcting), error))
    }

    /// Sends the request again in the server's actual version.
    fn resend(&mut self) -> State {
        let mut caller = Caller::clone(&self.client.caller());
        caller.log_level = self.request.caller.log_level;
        self.request.caller = Arc::new(caller);
        let options = CallOptions {
            id: None,
            total_timeout: self.left(),
            ..self.options.clone()
        };
        self.round_began = options.total_timeout.map(|_| Instant::now());
        let channel = &self.client.inner.now().channel;
        State::Waiting(channel.open(self.request.clone(), options))
    }

    /// Sends the request again, with the answers.
    fn retry(&mut self, answers: Vec<(String, Json)>) -> Result<State> {
        let rounds = self.rounds.as_mut().ok_or(Error::Closed)?;
        for (key, answer) in answers {
            rounds.answer(&key, answer).map_err(misuse)?;
        }
        let mut request = self.request.clone();
        request.params = rounds.retry_params().map_err(misuse)?.into();
        // A retry is a new request: a chosen id was used up by the first.
        let options = CallOptions {
            id: None,
            total_timeout: self.left(),
            ..self.options.clone()
        };
        self.round_began = options.total_timeout.map(|_| Instant::now());
        Ok(State::Waiting(
            self.client.inner.now().channel.open(request, options),
        ))
    }
}

impl Future for Call {
    type Output = Result<Reply>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            let next = match &mut this.state {
                State::Waiting(exchange) => match ready!(exchange.poll_step(cx)) {
                    Step::Notification(notification) => {
                        this.hear(&notification);
                        continue;
                    }
                    Step::Answered(Ok(Answer::InputRequired(result))) if !this.by_hand => {
                        let paused = exchange.paused();
                        this.end_round(paused).and_then(|()| this.ask(&result))
                    }
                    Step::Answered(Ok(Answer::Complete(result))) => {
                        this.client.confirm_version();
                        let paused = exchange.paused();
                        let _ = this.end_round(paused); // the answer came in time
                        this.state = State::Done;
                        match this.take_in(result) {
                            Poll::Ready(reply) => return Poll::Ready(reply),
                            Poll::Pending => continue,
                        }
                    }
                    Step::Answered(Ok(
                        Answer::InputRequired(result) | Answer::Extension { result, .. },
                    )) => {
                        this.state = State::Done;
                        return Poll::Ready(Ok(Reply(result)));
                    }
                    Step::Answered(Err(error)) => {
                        let paused = exchange.paused();
                        this.fail_or_correct(error, paused)
                    }
                },
                State::Correcting(correcting, error) => {
                    let is_corrected = ready!(correcting.as_mut().poll(cx));
                    let error = std::mem::replace(error, Error::Closed);
                    match is_corrected && cannot_have_run(&error) {
                        true => this.end_round(Duration::ZERO).map(|()| this.resend()),
                        false => Err(error),
                    }
                }
                State::Asking(answers) => {
                    ready!(Pin::new(answers).poll(cx)).and_then(|answers| this.retry(answers))
                }
                State::Listing(list, result) => {
                    if let Err(error) = ready!(list.as_mut().poll(cx)) {
                        tracing::debug!(%error, "there is no list to check a tool's output by");
                    }
                    let outputs = &this.client.inner.hearing.outputs;
                    let looked = outputs.look(&this.request.params, result);
                    let reply = looked.map(|_| Reply(result.clone()));
                    this.state = State::Done;
                    return Poll::Ready(reply);
                }
                State::Done => Err(Error::misuse("a call that is done was polled again")),
            };
            match next {
                Ok(state) => this.state = state,
                Err(error) => {
                    this.state = State::Done;
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

#[allow(clippy::needless_pass_by_value, reason = "it is made for `map_err`")]
fn misuse(misuse: Misuse) -> Error {
    Error::misuse(misuse.to_string())
}

/// What a request was answered with.
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
pub struct Reply(Json);

impl Reply {
    /// The result, as JSON text.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.0
    }

    /// The result as the type that its method names.
    ///
    /// # Errors
    ///
    /// If the server's result does not have that shape.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        self.0
            .decode()
            .map_err(|error| Error::undecodable("the result has the wrong shape", error))
    }

    /// The text of a tool's result: its text blocks, a line each.
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

    /// The structured output of a tool. What is no object, such as a number, servers wrap into one as its
    /// only member `result`; it is found there.
    ///
    /// # Errors
    ///
    /// If there is none, or it does not have the shape of `T`.
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
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wrapped<T> {
            result: T,
        }

        let Some(structured) = self.tool_result()?.structured_content else {
            return Err(Error::protocol("the tool gave no structured output"));
        };
        structured.decode().or_else(|error| {
            let wrapped: Result<Wrapped<T>, _> = structured.decode();
            wrapped
                .map(|wrapped| wrapped.result)
                .map_err(|_| Error::undecodable("the structured output has the wrong shape", error))
        })
    }

    /// Whether the tool says that it failed. What went wrong is in [`Reply::text`].
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(client: bowline::Client) -> bowline::Result<()> {
    /// let reply = client.call_tool("divide", serde_json::json!({"a": 1, "b": 0})).await?;
    /// if reply.is_error() {
    ///     println!("it did not work: {}", reply.text());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.tool_result()
            .is_ok_and(|result| result.is_error == Some(true))
    }

    /// The result of a tool.
    ///
    /// # Errors
    ///
    /// If the result is not that of a tool.
    pub fn tool_result(&self) -> Result<CallToolResult> {
        self.decode()
    }

    /// What the server needs first, of a request that was sent
    /// [by hand](super::Draft::by_hand).
    #[must_use]
    pub fn input_required(&self) -> Option<InputRequiredResult> {
        let needs_input = is_input_required(&self.0);
        needs_input.then(|| self.0.decode().ok()).flatten()
    }

    /// What accompanies the result.
    #[must_use]
    pub fn meta(&self) -> Option<Meta> {
        #[derive(serde::Deserialize)]
        struct WithMeta {
            #[serde(rename = "_meta")]
            meta: Option<Meta>,
        }
        self.0.decode().ok().and_then(|WithMeta { meta }| meta)
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
