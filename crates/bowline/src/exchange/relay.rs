//! [`Relay`], an exchange whose notifications and answer are passed on to a request of another connection.

mod errors;

mod rewrite;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline_core::Notification;
use bowline_core::era::Request;
use bowline_types::{
    CancelledNotification, LoggingMessageNotification, Method, NotificationMethod,
    ProgressNotification, ProgressToken, RequestId, SubscriptionsListenRequest,
};

use super::{Answer, CallOptions, Channel, Context, Exchange, ExchangeEvent};
use crate::client::cannot_have_run;
use crate::{Error, Result};

/// An exchange with one server (the *upstream*) on behalf of a request of another client (the *front*).
///
/// What names the front's request must not reach the upstream, and the other way round: two clients may use the same
/// progress token, and the request ids of two connections are unrelated. A relay sends a progress token of its own,
/// which is unique in this process. On the way back it writes those of the front into `progressToken` and into the
/// subscription id of `_meta`. It edits the text, so that unknown members are kept.
///
/// A relay works on every [`Channel`]. It does not fit the request to the upstream: the
/// [`caller`](Request::caller) of the request is that of the upstream's connection.
///
/// # Cancel safety
///
/// Dropping it before it is answered cancels the request.
///
/// # Examples
///
/// A responder that passes every request on:
///
/// ```
/// use std::sync::Arc;
/// use bowline::exchange::{Answer, CallOptions, Channel, Outcome, Relay, Request};
/// use bowline::{Context, Error, ErrorCode, RpcError};
///
/// async fn pass_on(upstream: Arc<dyn Channel>, request: Request, cx: Context) -> Outcome {
///     let mut relay = Relay::open(&*upstream, request, CallOptions::default());
///     match relay.answer(&cx).await {
///         Ok(Answer::Complete(result) | Answer::InputRequired(result)) => Ok(result),
///         Ok(Answer::Extension { result, .. }) => Ok(result),
///         Err(Error::Rpc(error)) => Err(error),
///         Err(error) => Err(RpcError::new(ErrorCode::INTERNAL_ERROR, error.to_string())),
///     }
/// }
///
/// # use bowline::{Client, Server, Tool};
/// # use bowline::exchange::InProcess;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// # let now = Tool::new("now", async || "noon");
/// # let server = Server::new("clock", "1.0.0").tool(now);
/// let upstream: Arc<dyn Channel> = Arc::new(InProcess::new(Arc::new(server)));
/// let front = move |request, cx| pass_on(upstream.clone(), request, cx);
///
/// let client = Client::in_process(&front).protocol_version("2026-07-28").await?;
/// assert_eq!(client.call_tool("now", ()).await?.text(), "noon");
/// # Ok(()) }
/// ```
#[must_use = "dropping a relay cancels its request"]
#[derive(Debug)]
pub struct Relay {
    /// `None` after it was cancelled.
    exchange: Option<Exchange>,
    method: Cow<'static, str>,
    /// The token that the upstream was sent.
    upstream_token: Option<ProgressToken>,
    is_answered: bool,
    /// Whether it was answered with an error that proves that the request did not run.
    is_refused: bool,
    /// Why the front that waited last was cancelled.
    cancel_reason: Option<String>,
}

impl Relay {
    /// The `requestState` of an answer that stands for the error -32042 of a legacy upstream: the user has to open
    /// URLs, and then the request is to be sent again. See [`answer`](Self::answer).
    pub const SEND_AGAIN: &'static str = "bowline:send-again";

    /// Sends `request` to the upstream.
    ///
    /// If it has a progress token, another one is sent in its place. Without one, none is sent, and progress of the
    /// upstream is dropped.
    ///
    /// If its `requestState` is [`SEND_AGAIN`](Self::SEND_AGAIN), the request is sent without it and without
    /// `inputResponses`, which the upstream would not know. It is not sent if the user declined.
    pub fn open(upstream: &dyn Channel, mut request: Request, options: CallOptions) -> Self {
        let upstream_token = request.progress_token.as_ref().map(|_| new_token());
        rewrite::set_progress_token(&mut request, upstream_token.as_ref());
        let method = request.method.clone();
        let exchange = match errors::take_consent(&mut request) {
            Ok(()) => upstream.open(request, options),
            Err(declined) => Exchange::failed(declined.into()),
        };
        Self {
            exchange: Some(exchange),
            method,
            upstream_token,
            is_answered: false,
            is_refused: false,
            cancel_reason: None,
        }
    }

    /// Returns the id of the request at the upstream, or `None` if it failed before it was assigned one, or has none.
    #[must_use]
    pub fn request_id(&self) -> Option<&RequestId> {
        self.exchange.as_ref()?.request_id()
    }

    /// Waits for the answer, and sends each notification that arrives before it to `cx`.
    ///
    /// Progress carries the token of `cx`; the notifications and the result of `subscriptions/listen` carry its id.
    /// Log messages below the level that the caller of `cx` requested are dropped, since the upstream may log for
    /// several callers.
    ///
    /// Errors that concern the connection to the upstream only (-32020 for headers, -32022 for the version) become
    /// -32603. The error -32042 of 2025-11-25 (URL elicitation required) becomes an
    /// [`InputRequired`](Answer::InputRequired) answer for a modern front, with a question for each URL and the state
    /// [`SEND_AGAIN`](Self::SEND_AGAIN): the upstream has ended the call, and the retry of the front is a new one.
    ///
    /// It may be called again with another context, after the future was dropped: that is how a call that is waiting
    /// for input changes its front.
    ///
    /// # Errors
    ///
    /// The error of the exchange, or [`Error::Misuse`] if the relay was answered before.
    ///
    /// # Cancel safety
    ///
    /// Safe: a notification is sent as soon as it is received, and the answer is consumed only when it is returned.
    pub async fn answer(&mut self, cx: &Context) -> Result<Answer> {
        let front = Front { relay: self, cx };
        loop {
            match front.relay.next_event().await? {
                ExchangeEvent::Notification(notification) => front.notify(notification),
                ExchangeEvent::Answered(answer) => return front.convert(answer),
            }
        }
    }

    /// Returns whether the upstream has refused the request in a way that proves that it did not run: it does not know
    /// the version, the headers or the method, or has no endpoint for it. Then it may be sent again, for example in the
    /// version that the server has now.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Cancels the request and sends the reason to the upstream. Does nothing if it was answered.
    pub fn cancel(mut self, reason: impl Into<String>) {
        self.cancel_exchange(Some(reason.into()));
    }

    async fn next_event(&mut self) -> Result<ExchangeEvent> {
        let Some(exchange) = self.exchange.as_mut().filter(|_| !self.is_answered) else {
            return Err(Error::misuse("the relay was answered before"));
        };
        let event = exchange.next_event().await;
        if let ExchangeEvent::Answered(answer) = &event {
            self.is_answered = true;
            self.is_refused = answer.as_ref().is_err_and(cannot_have_run);
        }
        Ok(event)
    }

    fn cancel_exchange(&mut self, reason: Option<String>) {
        let Some(exchange) = self.exchange.take() else {
            return;
        };
        match reason.filter(|_| !self.is_answered) {
            Some(reason) => exchange.cancel(reason),
            None => drop(exchange),
        }
    }

    fn is_subscription(&self) -> bool {
        self.method == SubscriptionsListenRequest::NAME
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let reason = self.cancel_reason.take();
        self.cancel_exchange(reason);
    }
}

/// The front that waits for the answer of a relay.
struct Front<'a> {
    relay: &'a mut Relay,
    cx: &'a Context,
}

impl Front<'_> {
    /// Sends a notification of the upstream to the front, unless it does not concern the front.
    fn notify(&self, notification: Notification) {
        let forwarded = match &*notification.method {
            ProgressNotification::NAME => self.progress(&notification),
            // Names a request of the other connection.
            CancelledNotification::NAME => None,
            LoggingMessageNotification::NAME => self.logs(&notification).then_some(notification),
            _ if self.relay.is_subscription() => Some(rewrite::with_subscription_id(
                notification,
                self.cx.request_id(),
            )),
            _ => Some(notification),
        };
        if let Some(notification) = forwarded {
            self.cx.send(notification);
        }
    }

    /// Returns the notification with the token of the front, if it has the token of the upstream.
    fn progress(&self, notification: &Notification) -> Option<Notification> {
        let (own, front) = (
            self.relay.upstream_token.as_ref()?,
            self.cx.progress_token()?,
        );
        rewrite::with_progress_token(notification, own, front)
    }

    /// Returns whether the front's caller receives this log message.
    fn logs(&self, notification: &Notification) -> bool {
        let caller = self.cx.caller();
        match (caller.least_log_level(), rewrite::log_level(notification)) {
            (Some(least), Some(level)) => level >= least,
            (Some(_), None) => true,
            // A legacy client that sets no level leaves it to the server; a modern one receives no log messages.
            (None, _) => !caller.dialect.is_modern(),
        }
    }

    fn convert(&self, answer: Result<Answer>) -> Result<Answer> {
        match answer {
            Ok(Answer::Complete(result)) if self.relay.is_subscription() => {
                let result = rewrite::set_subscription_id(&result, self.cx.request_id());
                Ok(Answer::Complete(result))
            }
            Err(Error::Rpc(error)) => errors::convert(error, &self.relay.method, self.cx),
            other => other,
        }
    }
}

/// Keeps the reason for which the front was cancelled: the relay may be dropped next.
impl Drop for Front<'_> {
    fn drop(&mut self) {
        self.relay.cancel_reason = self.cx.cancel_reason();
    }
}

/// Returns a progress token that no other relay of this process uses. A text, because a `Client` that shares the
/// connection uses numbers.
fn new_token() -> ProgressToken {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    // Of one length, so that the race hunter, which cuts frames at any byte, repeats a schedule in one process.
    ProgressToken::from(format!("relay-{number:08x}"))
}
