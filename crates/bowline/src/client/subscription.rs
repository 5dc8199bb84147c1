//! Being told when something changes.
//!
//! One API for both eras: where the wire has no `subscriptions/listen`, the channel makes one up.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::{self, Poll, ready};

use bowline_core::era::Request;
use bowline_core::mux::CallOptions;
use bowline_types::{
    Method, Notice, RequestId, SubscriptionFilter, SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams, SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
};
use futures_core::Stream;

use super::{Change, Client, encode_object};
use crate::exchange::{BoxFuture, Channel, Exchange, Step};
use crate::{Error, Result};

/// A subscription that was not asked for yet; await it.
///
/// # Cancel safety
///
/// Nothing is sent before it is awaited. Dropping the future after that ends the subscription.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::client::Changes;
///
/// let changes = client.subscribe(Changes::lists()).id("news").await?;
/// println!("the server agreed to {:?}", changes.honoured());
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent until it is awaited"]
#[derive(Debug)]
pub struct Subscribe {
    client: Client,
    filter: SubscriptionFilter,
    options: CallOptions,
}

impl Subscribe {
    pub(super) fn new(client: &Client, filter: SubscriptionFilter) -> Self {
        let options = CallOptions {
            is_subscription: true,
            ..CallOptions::default()
        };
        Self {
            client: client.clone(),
            filter,
            options,
        }
    }

    /// Uses this request id instead of a minted one.
    pub fn id(mut self, id: impl Into<RequestId>) -> Self {
        self.options.id = Some(id.into());
        self
    }

    async fn subscribe(self) -> Result<Subscription> {
        let wish = self.client.offered(self.filter);
        let params = encode_object(&SubscriptionsListenRequestParams::new(wish))?;
        let caller = self.client.caller();
        let request = Request::new(SubscriptionsListenRequest::NAME, params, caller);
        let mut exchange = self.client.inner.now().channel.open(request, self.options);
        let honoured = tokio::time::timeout(self.client.inner.timeout, acknowledged(&mut exchange))
            .await
            .map_err(|_| Error::Timeout {
                after: self.client.inner.timeout,
            })??;
        Ok(Subscription {
            exchange: Some(exchange),
            honoured,
            ended: None,
            client: self.client,
        })
    }
}

impl IntoFuture for Subscribe {
    type Output = Result<Subscription>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.subscribe())
    }
}

/// Changes, as the server tells them; a stream.
///
/// A subscription that is lost stays lost; [`Client::watch`] subscribes again.
///
/// # Cancel safety
///
/// Dropping it ends the subscription, and the server forgets it.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::client::{Change, Changes};
///
/// let mut changes = client.subscribe(Changes::new().tools()).await?;
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
    honoured: SubscriptionFilter,
    ended: Option<Ended>,
    /// The connection lives as long as somebody listens.
    client: Client,
}

/// How a subscription came to its end.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::client::{Changes, Ended};
///
/// let mut changes = client.subscribe(Changes::new().tools()).await?;
/// while let Ok(Some(change)) = changes.next().await {
///     println!("{change:?}");
/// }
/// if changes.ended() == Some(Ended::Lagged) {
///     println!("too slow: some changes were missed");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The server ended it in good order.
    Graceful,
    /// The server gave it up without a result.
    Cancelled,
    /// Changes came faster than they were taken in; some were missed.
    Lagged,
    /// The wire failed or was closed, or the server broke the protocol.
    Lost,
}

impl Subscription {
    /// What the server agreed to tell, which may be less than was asked for.
    #[must_use]
    pub fn honoured(&self) -> &SubscriptionFilter {
        &self.honoured
    }

    /// The next change; `None` once the server has ended the subscription in good order.
    ///
    /// # Errors
    ///
    /// Once, if the subscription did not end in good order; [`Subscription::ended`] says how it did.
    ///
    /// # Cancel safety
    ///
    /// Safe: a change is taken only when it is returned.
    pub async fn next(&mut self) -> Result<Option<Change>> {
        poll_fn(|cx| self.poll_change(cx)).await
    }

    /// How the subscription came to its end, if it did.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    fn poll_change(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Option<Change>>> {
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(Ok(None));
        };
        let (ended, result) = match ready!(exchange.poll_step(cx)) {
            Step::Notification(notification) => {
                self.client.hear_within(&notification);
                return Poll::Ready(Ok(Some(Change::from(notification))));
            }
            Step::Answered(Ok(_)) => (Ended::Graceful, Ok(None)),
            Step::Answered(Err(error)) => (Ended::of(&error), Err(error)),
        };
        if ended == Ended::Lagged {
            self.client.inner.hearing.hear_change(&Change::Missed);
        }
        self.exchange = None;
        self.ended = Some(ended);
        Poll::Ready(result)
    }
}

impl Stream for Subscription {
    type Item = Result<Change>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_change(cx).map(Result::transpose)
    }
}

impl Ended {
    fn of(error: &Error) -> Self {
        match error {
            Error::Cancelled { .. } => Self::Cancelled,
            Error::Lagged => Self::Lagged,
            _ => Self::Lost,
        }
    }
}

/// Waits for the server's first word on a subscription.
async fn acknowledged(exchange: &mut Exchange) -> Result<SubscriptionFilter> {
    let first = match exchange.step().await {
        Step::Notification(first) => first,
        Step::Answered(Err(error)) => return Err(error),
        Step::Answered(Ok(_)) => {
            return Err(Error::protocol("the subscription ended before it began"));
        }
    };
    if first.method != SubscriptionsAcknowledgedNotification::NAME {
        return Err(Error::protocol(
            "the subscription was not acknowledged first",
        ));
    }
    let params = first
        .params
        .ok_or_else(|| Error::protocol("the acknowledgement is empty"))?;
    let params: SubscriptionsAcknowledgedNotificationParams = params
        .decode()
        .map_err(|error| Error::undecodable("the acknowledgement has the wrong shape", error))?;
    Ok(params.notifications)
}
