//! [`ExtensionCall`], the call that an extension completes, and `Completing`, the future of its result in the `Call`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_core::era::Request;
use bowline_core::input::{ClientRounds, InputStep, InputViolation};
use bowline_types::{Json, ProgressNotificationParams};
use serde::Serialize;
use tokio::time::Instant;

use super::call::{OnProgress, rounds_misuse};
use super::input_requests::HostAnswers;
use super::{Client, RequestBuilder, Untyped, encode_object};
use crate::exchange::{BoxFuture, CallOptions, Deadlines, InProcess, PausedTime, Progress};
use crate::sync::Mutex;
use crate::{Error, Result};

/// The call that a [`ClientExtension`](super::ClientExtension) completes: its request, its timeouts, and the host of its client.
///
/// Cheap to clone. A clone that outlives the call has no effect on anything.
#[derive(Clone)]
pub struct ExtensionCall {
    client: Client,
    request: Request,
    state: Arc<CompletionState>,
}

impl ExtensionCall {
    /// Returns the client, to send requests.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the request that the server answered, with its method and params.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns how much of the call's [total timeout](super::RequestBuilder::timeout) is left; `None` if it has none.
    #[must_use]
    pub fn remaining_time(&self) -> Option<Duration> {
        let limit = self.state.limit?;
        Some(limit.saturating_sub(self.state.time_spent()))
    }

    /// Returns the [idle timeout](super::RequestBuilder::idle_timeout) of the call, which [`active`](Self::active) and
    /// [`progress`](Self::progress) restart; `None` if it has none.
    #[must_use]
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.state.idle_timeout
    }

    /// Restarts the idle timeout: the server has shown that it works on the request. Requests that the extension sends
    /// do not restart it.
    pub fn active(&self) {
        self.state.update(|shared| shared.is_active = true);
    }

    /// Returns whether the work is to be cancelled if the call is dropped: unless the caller set
    /// [`cancel_on_drop`](super::RequestBuilder::cancel_on_drop) to `false`, and always after
    /// [`Call::cancel`](super::Call::cancel).
    #[must_use]
    pub fn cancel_on_drop(&self) -> bool {
        self.state.cancel_on_drop || self.cancel_reason().is_some()
    }

    /// Returns the reason of [`Call::cancel`](super::Call::cancel), once it was called.
    #[must_use]
    pub fn cancel_reason(&self) -> Option<String> {
        self.state.shared.lock().cancel_reason.clone()
    }

    /// Returns whether the caller receives progress
    /// ([`RequestBuilder::on_progress`](super::RequestBuilder::on_progress)).
    #[must_use]
    pub fn wants_progress(&self) -> bool {
        self.request.progress_token.is_some()
    }

    /// Passes progress, such as a status message, to the caller's callback, if there is one, and restarts the idle
    /// timeout. The value must increase.
    pub fn progress(&self, progress: impl Into<Progress>) {
        let token = self.request.progress_token.clone();
        let params = token.map(|token| progress.into().into_params(token));
        self.state.update(|shared| {
            shared.is_active = true;
            if shared.progress.len() == MAX_QUEUED_PROGRESS {
                shared.progress.pop_front(); // the callback gets the newest
            }
            shared.progress.extend(params);
        });
    }

    /// Passes input requests of the server to the [host](super::Host), and returns the answers by key.
    ///
    /// `input_requests` serializes to an object of input requests by key, such as the `inputRequests` member of a result.
    /// They are checked like those of an `input_required` result: their form, their number, the capabilities of this
    /// client, and the number of calls of this method ([`ClientBuilder::max_rounds`](super::ClientBuilder::max_rounds)).
    /// The timeouts of the call are paused while the host answers.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] if the server may not send these input requests, [`Error::Cancelled`] if the host refuses
    /// one, [`Error::Misuse`] if an answer of the host is malformed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the host's futures, and the timeouts continue.
    pub fn answer_input(
        &self,
        input_requests: &impl Serialize,
    ) -> BoxFuture<'static, Result<BTreeMap<String, Json>>> {
        let (call, input_requests) = (self.clone(), encode_object(input_requests));
        Box::pin(async move { call.ask_host(&input_requests?).await })
    }

    async fn ask_host(&self, input_requests: &Json) -> Result<BTreeMap<String, Json>> {
        if *input_requests == Json::empty_object() {
            return Ok(BTreeMap::new());
        }
        let config = &self.client.inner.config;
        self.state.count_round(config.max_rounds)?;
        let (method, params) = (&self.request.method, Json::clone(&self.request.params));
        let rounds = ClientRounds::new(method.clone(), Some(params), 1);
        let mut rounds = rounds.map_err(rounds_misuse)?.allow_input();
        let result = Json::object([("inputRequests", input_requests)]);
        let input_requests = match rounds.next(&result).map_err(violation)? {
            InputStep::Ask(input_requests) => input_requests,
            InputStep::Retry => Vec::new(),
        };
        let host = InProcess::new(config.host.clone());
        let caller = self.request.caller.clone();
        let answers = HostAnswers::new(host, caller, input_requests)?;
        let pause = TimeoutPauseGuard::new(&self.state);
        let answers = answers.await?;
        drop(pause);
        for (key, answer) in &answers {
            rounds.answer(key, answer.clone()).map_err(rounds_misuse)?;
        }
        Ok(answers.into_iter().collect())
    }
}

impl fmt::Debug for ExtensionCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtensionCall")
            .field("method", &self.request.method)
            .field("remaining_time", &self.remaining_time())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Waits for the result of a request that was sent before, by this process or another one: for the handle of an
    /// [extension](super::ClientExtension), such as a ticket that was stored.
    ///
    /// `complete` is called instead of sending `method`. Its future is run like that of
    /// [`ClientExtension::complete`](super::ClientExtension::complete): with the timeouts, the progress callback and the
    /// host of the call, and its output is validated as a result of `method`. `params` are those of the request as far
    /// as they are known; the name of the tool selects the output schema of a `tools/call` result.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # use bowline::exchange::{Outcome, Request};
    /// # use bowline::{Client, Context};
    /// use serde_json::json;
    ///
    /// # async fn server(request: Request, _: Context) -> Outcome {
    /// #     assert_eq!(request.method, "tickets/redeem");
    /// #     Ok(json!({"content": [{"type": "text", "text": "done"}]}).into())
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> bowline::Result<()> {
    /// # let client = Client::in_process(&server).protocol_version("2026-07-28").await?;
    /// let redeem = client.complete_with("tools/call", json!({"name": "slow"}), |cx| {
    ///     Box::pin(async move {
    ///         let redeemed = cx.client().request_raw("tickets/redeem", json!({"ticket": "A7"})).await?;
    ///         Ok(redeemed.json().clone())
    ///     })
    /// });
    /// assert_eq!(redeem.timeout(Duration::from_secs(5)).await?.text(), "done");
    /// # Ok(()) }
    /// ```
    pub fn complete_with(
        &self,
        method: impl Into<String>,
        params: impl Serialize,
        complete: impl FnOnce(ExtensionCall) -> BoxFuture<'static, Result<Json>> + Send + 'static,
    ) -> RequestBuilder<Untyped> {
        RequestBuilder::new(self, method.into(), encode_object(&params), Untyped)
            .skip_capability_check()
            .completed_by(Box::new(complete))
    }
}

/// Returns the future of the result of a call.
pub(super) type CompleteFn =
    Box<dyn FnOnce(ExtensionCall) -> BoxFuture<'static, Result<Json>> + Send>;

/// The future of an extension in its call, with the timeouts of the call.
pub(super) struct Completing {
    future: BoxFuture<'static, Result<Json>>,
    state: Arc<CompletionState>,
    deadlines: Deadlines,
}

impl Completing {
    /// `options` are those of the call, with the rest of its total timeout.
    pub(super) fn new(
        complete: impl FnOnce(ExtensionCall) -> BoxFuture<'static, Result<Json>>,
        client: Client,
        request: Request,
        options: &CallOptions,
    ) -> Self {
        let state = Arc::new(CompletionState {
            began: Instant::now(),
            limit: options.timeout,
            idle_timeout: options.idle_timeout,
            cancel_on_drop: options.cancel_on_drop,
            shared: Mutex::default(),
        });
        let call = ExtensionCall {
            client,
            request,
            state: state.clone(),
        };
        Self {
            future: complete(call),
            state,
            deadlines: Deadlines::new(options),
        }
    }

    pub(super) fn poll(
        &mut self,
        on_progress: Option<&mut OnProgress>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Result<Json>> {
        // What the future does during this poll is read below and needs no wake.
        let old = self.state.shared.lock().waker.take();
        drop(old);
        let polled = self.future.as_mut().poll(cx);
        let waker = polled.is_pending().then(|| cx.waker().clone());
        let mut shared = self.state.shared.lock();
        // Registered in the same lock: an update by another task is read now or wakes.
        shared.waker = waker;
        let progress = std::mem::take(&mut shared.progress);
        let is_active = std::mem::take(&mut shared.is_active);
        let is_paused = shared.pauses > 0;
        drop(shared);
        if let Some(on_progress) = on_progress {
            progress.into_iter().for_each(on_progress);
        }
        if polled.is_ready() {
            return polled;
        }
        if is_active || is_paused {
            self.deadlines.restart_idle();
        }
        if is_paused {
            return Poll::Pending;
        }
        match self.deadlines.poll_elapsed(|| self.state.paused(), cx) {
            Some(after) => Poll::Ready(Err(Error::Timeout { after })),
            None => Poll::Pending,
        }
    }

    /// Returns how much of the total timeout was spent.
    pub(super) fn time_spent(&self) -> Duration {
        self.state.time_spent()
    }

    /// Drops the future, which can read the reason.
    pub(super) fn cancel(self, reason: String) {
        self.state.shared.lock().cancel_reason = Some(reason);
    }
}

/// What a call and the future of an extension in it share.
struct CompletionState {
    began: Instant,
    /// The rest of the total timeout of the call, when it began.
    limit: Option<Duration>,
    idle_timeout: Option<Duration>,
    cancel_on_drop: bool,
    shared: Mutex<SharedState>,
}

#[derive(Default)]
struct SharedState {
    /// The number of futures that wait for the host.
    pauses: usize,
    paused: PausedTime,
    /// Whether the idle timeout is to be restarted.
    is_active: bool,
    /// For the callback of the caller; at most [`MAX_QUEUED_PROGRESS`].
    progress: VecDeque<ProgressNotificationParams>,
    /// How often the host was asked.
    rounds: u32,
    cancel_reason: Option<String>,
    /// Wakes the call. Set while it is not polled.
    waker: Option<Waker>,
}

impl CompletionState {
    /// Changes the state, and wakes the call to read it.
    fn update(&self, change: impl FnOnce(&mut SharedState)) {
        let mut shared = self.shared.lock();
        change(&mut shared);
        let waker = shared.waker.take();
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn count_round(&self, max: u32) -> Result<()> {
        let mut shared = self.shared.lock();
        if shared.rounds >= max {
            return Err(violation(InputViolation::TooManyRounds { max }));
        }
        shared.rounds += 1;
        Ok(())
    }

    fn paused(&self) -> Duration {
        self.shared.lock().paused.total(Instant::now())
    }

    fn time_spent(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.paused())
    }
}

/// Pauses the timeouts of a call while it exists.
struct TimeoutPauseGuard<'a>(&'a CompletionState);

impl<'a> TimeoutPauseGuard<'a> {
    fn new(state: &'a CompletionState) -> Self {
        state.update(|shared| {
            shared.pauses += 1;
            shared.paused.begin(Instant::now());
        });
        Self(state)
    }
}

impl Drop for TimeoutPauseGuard<'_> {
    fn drop(&mut self) {
        self.0.update(|shared| {
            shared.pauses -= 1;
            if shared.pauses == 0 {
                shared.paused.end(Instant::now());
            }
            shared.is_active = true;
        });
    }
}

#[allow(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn violation(violation: InputViolation) -> Error {
    Error::protocol(violation.to_string())
}

/// How many progress reports are queued between two polls of the call.
const MAX_QUEUED_PROGRESS: usize = 64;
