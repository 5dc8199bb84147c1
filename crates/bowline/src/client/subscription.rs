//! Being told when something changes.
//!
//! One API for both eras: where the wire has no `subscriptions/listen`, the channel makes one up.

use std::future::{IntoFuture, poll_fn};
use std::task::{self, Poll, ready};

use bowline_core::Notification;
use bowline_core::era::Request;
use bowline_core::mux::CallOptions;
use bowline_types::{
    Method, Notice, PromptListChangedNotification, RequestId, ResourceListChangedNotification,
    ResourceUpdatedNotification, ResourceUpdatedNotificationParams, SubscriptionFilter,
    SubscriptionsAcknowledgedNotification, SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams, ToolListChangedNotification,
};

use super::{Client, encode_object};
use crate::exchange::{BoxFuture, Exchange, Step};
use crate::{Error, Result};

/// A subscription that was not asked for yet; await it.
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
        let params = encode_object(&SubscriptionsListenRequestParams::new(self.filter))?;
        let caller = self.client.inner.caller.clone();
        let request = Request::new(SubscriptionsListenRequest::NAME, params, caller);
        let mut exchange = self.client.inner.channel.open(request, self.options);
        let honoured = tokio::time::timeout(self.client.inner.timeout, acknowledged(&mut exchange))
            .await
            .map_err(|_| Error::Timeout {
                after: self.client.inner.timeout,
            })??;
        Ok(Subscription {
            exchange: Some(exchange),
            honoured,
            _client: self.client,
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

/// Changes, as the server tells them.
///
/// # Cancel safety
///
/// Dropping it ends the subscription, and the server forgets it.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::{client::Change, types::SubscriptionFilter};
///
/// let mut filter = SubscriptionFilter::default();
/// filter.tools_list_changed = Some(true);
/// let mut changes = client.subscribe(filter).await?;
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
    /// The connection lives as long as somebody listens.
    _client: Client,
}

/// Something that changed at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// What one resource holds.
    Resource(String),
    /// Something that an extension tells of.
    Other(Notification),
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
    /// If the subscription was lost: the wire failed, or the server ended it without a word.
    ///
    /// # Cancel safety
    ///
    /// Safe: a change is taken only when it is returned.
    pub async fn next(&mut self) -> Result<Option<Change>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next change.
    ///
    /// # Errors
    ///
    /// As [`Subscription::next`].
    pub fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Option<Change>>> {
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(Ok(None));
        };
        let ended = match ready!(exchange.poll_step(cx)) {
            Step::Notification(notification) => {
                return Poll::Ready(Ok(Some(Change::from(notification))));
            }
            Step::Answered(Ok(_)) => Ok(None),
            Step::Answered(Err(error)) => Err(error),
        };
        self.exchange = None;
        Poll::Ready(ended)
    }
}

impl From<Notification> for Change {
    fn from(notification: Notification) -> Self {
        match &*notification.method {
            ToolListChangedNotification::NAME => Self::Tools,
            PromptListChangedNotification::NAME => Self::Prompts,
            ResourceListChangedNotification::NAME => Self::Resources,
            ResourceUpdatedNotification::NAME => {
                let params = notification.params.as_ref();
                let params: Option<ResourceUpdatedNotificationParams> =
                    params.and_then(|params| params.decode().ok());
                match params {
                    Some(params) => Self::Resource(params.uri),
                    None => Self::Other(notification),
                }
            }
            _ => Self::Other(notification),
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
