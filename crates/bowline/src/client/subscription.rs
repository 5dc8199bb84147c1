//! [`Subscription`], a stream of change notifications, and [`SubscriptionBuilder`], which opens one.
//!
//! One API for both eras: where the protocol has no `subscriptions/listen`, the channel emulates it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bowline_core::era::Request;
use bowline_types::{
    Json, Method, NotificationMethod, RequestId, SubscriptionFilter,
    SubscriptionsAcknowledgedNotification, SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};
use futures_core::Stream;

use super::deferred::Deferred;
use super::{Change, Client, encode_object};
use crate::exchange::{Answer, BoxFuture, CallOptions, Channel, Deadline, Exchange, ExchangeEvent};
use crate::{Error, Result};

/// A builder for a subscription, and the future of it; awaiting it sends `subscriptions/listen`.
///
/// # Cancel safety
///
/// No message is sent before it is first polled. Dropping it after that ends the subscription.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::client::ChangeFilter;
///
/// let changes = client.subscribe(ChangeFilter::lists()).id("news").await?;
/// println!("the server agreed to {:?}", changes.acknowledged_filter());
/// # Ok(()) }
/// ```
#[must_use = "the request is sent only when this is awaited"]
pub struct SubscriptionBuilder {
    state: Deferred<SubscriptionDraft, BoxFuture<'static, Result<Subscription>>>,
}

struct SubscriptionDraft {
    client: Client,
    filter: SubscriptionFilter,
    options: CallOptions,
}

impl SubscriptionBuilder {
    pub(super) fn new(client: &Client, filter: SubscriptionFilter) -> Self {
        let draft = SubscriptionDraft {
            client: client.clone(),
            filter,
            options: CallOptions::default(),
        };
        Self {
            state: Deferred::Draft(draft),
        }
    }

    /// Uses this request id instead of a generated one.
    pub fn id(mut self, id: impl Into<RequestId>) -> Self {
        self.state.draft().options.id = Some(id.into());
        self
    }
}

impl Future for SubscriptionBuilder {
    type Output = Result<Subscription>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        self.state.poll(cx, |draft| Box::pin(draft.subscribe()))
    }
}

impl std::fmt::Debug for SubscriptionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionBuilder")
            .finish_non_exhaustive()
    }
}

impl SubscriptionDraft {
    async fn subscribe(self) -> Result<Subscription> {
        let filter = self.client.supported_filter(self.filter);
        let params = encode_object(&SubscriptionsListenRequestParams::new(filter))?;
        let losses = self.client.inner.current_connection().losses();
        let mut exchange = self.client.listen(params.clone(), self.options);
        let limit = self.client.inner.config.idle_timeout;
        let first = first_event(&mut exchange, limit).await?;
        let acknowledged = acknowledged_filter(first)?;
        Ok(Subscription {
            exchange: Some(exchange),
            acknowledged,
            ended: None,
            params,
            losses,
            is_renewing: false,
            client: self.client,
        })
    }
}

impl Client {
    fn listen(&self, params: Json, options: CallOptions) -> Exchange {
        let request = Request::new(SubscriptionsListenRequest::NAME, params, self.caller());
        self.inner.current_connection().open(request, options)
    }
}

/// A stream of changes at the server.
///
/// If the client [reconnects](super::ClientBuilder::reconnect), the subscription continues, and yields
/// [`Change::Missed`]. Otherwise a lost subscription is not renewed; use [`Client::watch`] for that.
///
/// # Cancel safety
///
/// Dropping it ends the subscription, also at the server.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::client::{Change, ChangeFilter};
///
/// let mut changes = client.subscribe(ChangeFilter::new().tools()).await?;
/// while let Some(change) = changes.next().await? {
///     if change == Change::Tools {
///         let tools = client.list_tools().await?;
///     }
/// }
/// # Ok(()) }
/// ```
#[must_use = "dropping a subscription ends it"]
#[derive(Debug)]
pub struct Subscription {
    exchange: Option<Exchange>,
    acknowledged: SubscriptionFilter,
    ended: Option<SubscriptionEnd>,
    /// The params of the request.
    params: Json,
    /// How often the connection had been lost when it subscribed last.
    losses: u64,
    /// Whether it has subscribed again, and the acknowledgement is not received yet.
    is_renewing: bool,
    /// Keeps the connection open while the subscription exists.
    client: Client,
}

/// The reason a subscription ended.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::client::{ChangeFilter, SubscriptionEnd};
///
/// let mut changes = client.subscribe(ChangeFilter::new().tools()).await?;
/// while let Ok(Some(change)) = changes.next().await {
///     println!("{change:?}");
/// }
/// if changes.ended() == Some(SubscriptionEnd::Lagged) {
///     println!("too slow: some changes were missed");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriptionEnd {
    /// The server ended it with a result.
    Graceful,
    /// The server cancelled it.
    Cancelled,
    /// The notification queue overflowed; some changes were lost.
    Lagged,
    /// The wire failed or was closed, or the server broke the protocol.
    Lost,
}

impl Subscription {
    /// Returns the filter that the server acknowledged, which may be smaller than the requested one.
    #[must_use]
    pub fn acknowledged_filter(&self) -> &SubscriptionFilter {
        &self.acknowledged
    }

    /// Returns the next change; `None` after the server has ended the subscription gracefully.
    ///
    /// # Errors
    ///
    /// Once, if the subscription ended otherwise; [`Subscription::ended`] returns why.
    ///
    /// # Cancel safety
    ///
    /// Safe: a change is removed only when it is returned.
    pub async fn next(&mut self) -> Result<Option<Change>> {
        poll_fn(|cx| self.poll_change(cx)).await
    }

    /// Returns why the subscription ended; `None` while it is open.
    #[must_use]
    pub fn ended(&self) -> Option<SubscriptionEnd> {
        self.ended
    }

    fn poll_change(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Option<Change>>> {
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(Ok(None));
        };
        let (ended, result) = match ready!(exchange.poll_event(cx)) {
            first @ ExchangeEvent::Notification(_) if self.is_renewing => {
                match acknowledged_filter(first) {
                    Ok(acknowledged) => {
                        self.is_renewing = false;
                        self.acknowledged = acknowledged;
                        return Poll::Ready(Ok(Some(Change::Missed)));
                    }
                    Err(error) => (SubscriptionEnd::Lost, Err(error)),
                }
            }
            ExchangeEvent::Answered(Err(error)) if self.renew(&error) => {
                return self.poll_change(cx);
            }
            ExchangeEvent::Notification(notification) => {
                self.client.deliver_from_exchange(&notification);
                return Poll::Ready(Ok(Some(Change::from(notification))));
            }
            ExchangeEvent::Answered(Ok(Answer::Complete(_))) => {
                (SubscriptionEnd::Graceful, Ok(None))
            }
            ExchangeEvent::Answered(Ok(Answer::InputRequired(_) | Answer::Extension { .. })) => {
                let error = Error::protocol("expected a complete result of `subscriptions/listen`");
                (SubscriptionEnd::Lost, Err(error))
            }
            ExchangeEvent::Answered(Err(error)) => (SubscriptionEnd::of(&error), Err(error)),
        };
        if ended == SubscriptionEnd::Lagged {
            self.client
                .inner
                .notifications
                .apply_change(&Change::Missed);
        }
        self.exchange = None;
        self.ended = Some(ended);
        Poll::Ready(result)
    }
}

impl Subscription {
    /// Subscribes again if the connection was lost and is opened again; the request waits for that. Returns whether it
    /// did.
    fn renew(&mut self, error: &Error) -> bool {
        let losses = self.client.inner.current_connection().losses();
        // Once per loss: a server that fails each request must not be asked in a loop.
        if !error.is_disconnected() || losses == self.losses {
            return false;
        }
        self.losses = losses;
        self.is_renewing = true;
        self.exchange = Some(
            self.client
                .listen(self.params.clone(), CallOptions::default()),
        );
        true
    }
}

impl Stream for Subscription {
    type Item = Result<Change>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_change(cx).map(Result::transpose)
    }
}

impl SubscriptionEnd {
    fn of(error: &Error) -> Self {
        match error {
            Error::Cancelled { .. } => Self::Cancelled,
            Error::Lagged => Self::Lagged,
            _ => Self::Lost,
        }
    }
}

/// Waits for the first event. The time in which the exchange is paused does not count.
async fn first_event(exchange: &mut Exchange, limit: Duration) -> Result<ExchangeEvent> {
    let mut deadline = Deadline::from(limit);
    poll_fn(|cx| {
        if let Poll::Ready(event) = exchange.poll_event(cx) {
            return Poll::Ready(Ok(event));
        }
        match deadline.poll_elapsed(|| exchange.paused(), cx) {
            Some(after) => Poll::Ready(Err(Error::Timeout { after })),
            None => Poll::Pending,
        }
    })
    .await
}

/// Reads the acknowledgement, which is the first message of a subscription.
fn acknowledged_filter(first: ExchangeEvent) -> Result<SubscriptionFilter> {
    let first = match first {
        ExchangeEvent::Notification(first) => first,
        ExchangeEvent::Answered(Err(error)) => return Err(error),
        ExchangeEvent::Answered(Ok(_)) => {
            return Err(Error::protocol("subscription ended before acknowledgement"));
        }
    };
    if first.method != SubscriptionsAcknowledgedNotification::NAME {
        return Err(Error::protocol(
            "expected an acknowledgement as the first message of the subscription",
        ));
    }
    let params = first
        .params
        .ok_or_else(|| Error::protocol("the acknowledgement has no params"))?;
    let params: SubscriptionsAcknowledgedNotificationParams = params
        .decode()
        .map_err(|error| Error::undecodable("failed to decode the acknowledgement", error))?;
    Ok(params.notifications)
}
