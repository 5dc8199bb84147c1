//! [`Watch`], a stream of changes that subscribes again whenever its subscription ends.
//!
//! ```text
//! Waiting ──pause over──▶ Subscribing ──acknowledged──▶ Listening
//!    ▲                        │ failed                      │ ended
//!    └────────────────────────┴─────────────────────────────┘   Done after `max_failures` in a row
//! ```

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bowline_types::SubscriptionFilter;
use futures_core::Stream;
use tokio::time::{Instant, Sleep};

use super::{Change, Client, Subscription, SubscriptionBuilder};
use crate::backoff::Backoff;
use crate::peer::Peer;
use crate::{Error, Result};

/// A stream of changes at the server, across subscriptions.
///
/// When a subscription ends, for any reason, it subscribes again after a pause that grows with each failure. The next
/// item is then [`Change::Missed`], because changes in between were not received. It ends with an error after
/// [several failures in a row](Self::max_failures), and immediately if the wire has ended: a client survives that only with
/// [`ClientBuilder::reconnect`](super::ClientBuilder::reconnect).
///
/// # Cancel safety
///
/// Dropping it ends the subscription.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::client::{Change, ChangeFilter};
///
/// let mut changes = client.watch(ChangeFilter::new().tools());
/// while let Some(change) = changes.next().await? {
///     if matches!(change, Change::Tools | Change::Missed) {
///         println!("{} tools", client.list_tools().await?.len());
///     }
/// }
/// # Ok(()) }
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct Watch {
    client: Client,
    filter: SubscriptionFilter,
    max_failures: u32,
    /// In a row.
    failures: u32,
    was_subscribed: bool,
    /// Whether the next item is [`Change::Missed`].
    has_missed: bool,
    state: WatchState,
}

enum WatchState {
    Waiting(Pin<Box<Sleep>>),
    Subscribing(SubscriptionBuilder),
    Listening(Box<Subscription>, Instant),
    Done,
}

impl Watch {
    pub(super) fn new(client: &Client, filter: SubscriptionFilter) -> Self {
        let subscribing = client.subscribe(filter.clone());
        Self {
            client: client.clone(),
            filter,
            max_failures: MAX_FAILURES,
            failures: 0,
            was_subscribed: false,
            has_missed: false,
            state: WatchState::Subscribing(subscribing),
        }
    }

    /// Sets the number of failures in a row after which it ends with an error. 8 by default.
    pub fn max_failures(mut self, failures: u32) -> Self {
        self.max_failures = failures;
        self
    }

    /// Returns the next change; `None` after an error was returned.
    ///
    /// # Errors
    ///
    /// Once, when it gives up: the error of the last attempt.
    ///
    /// # Cancel safety
    ///
    /// Safe: a change is removed only when it is returned.
    pub async fn next(&mut self) -> Result<Option<Change>> {
        let next = poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await;
        next.transpose()
    }

    /// Waits until the server has acknowledged the subscription, as far as its protocol version has acknowledgements.
    /// Changes from then on are received. Calling it is optional: [`next`](Self::next) subscribes too.
    ///
    /// # Errors
    ///
    /// When it gives up: the error of the last attempt. [`Error::Closed`] after that.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next call continues.
    pub async fn subscribed(&mut self) -> Result<()> {
        poll_fn(|cx| self.poll_subscribed(cx)).await
    }

    fn poll_subscribed(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<()>> {
        loop {
            let failure = match &mut self.state {
                WatchState::Done => return Poll::Ready(Err(Error::Closed)),
                WatchState::Listening(..) => return Poll::Ready(Ok(())),
                WatchState::Waiting(pause) => {
                    ready!(pause.as_mut().poll(cx));
                    let subscribing = self.client.subscribe(self.filter.clone());
                    self.state = WatchState::Subscribing(subscribing);
                    continue;
                }
                WatchState::Subscribing(subscribing) => {
                    match ready!(Pin::new(subscribing).poll(cx)) {
                        Ok(subscription) => {
                            self.state =
                                WatchState::Listening(Box::new(subscription), Instant::now());
                            self.has_missed |= std::mem::replace(&mut self.was_subscribed, true);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            if let Err(error) = self.retry(failure) {
                return Poll::Ready(Err(error));
            }
        }
    }

    /// Starts the pause before the next attempt, or gives up with the error.
    fn retry(&mut self, error: Error) -> Result<()> {
        self.failures += 1;
        // A wire that has ended cannot be reopened.
        let has_ended = self.client.peer().is_some_and(Peer::has_ended);
        if self.failures >= self.max_failures || has_ended {
            self.state = WatchState::Done;
            return Err(error);
        }
        let pause = BACKOFF.delay(self.failures);
        tracing::debug!(%error, ?pause, "subscription ended; subscribing again after a pause");
        self.state = WatchState::Waiting(Box::pin(tokio::time::sleep(pause)));
        Ok(())
    }
}

impl Stream for Watch {
    type Item = Result<Change>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if matches!(this.state, WatchState::Done) {
                return Poll::Ready(None);
            }
            ready!(this.poll_subscribed(cx))?;
            if std::mem::take(&mut this.has_missed) {
                let notifications = &this.client.inner.notifications;
                notifications.apply_change(&Change::Missed);
                return Poll::Ready(Some(Ok(Change::Missed)));
            }
            let WatchState::Listening(subscription, since) = &mut this.state else {
                continue;
            };
            let next = ready!(Pin::new(&mut **subscription).poll_next(cx));
            // Reset only after a while: a server that ends each subscription immediately must not be
            // retried for ever.
            if since.elapsed() > BACKOFF.max {
                this.failures = 0;
            }
            let failure = match next {
                Some(Ok(change)) => return Poll::Ready(Some(Ok(change))),
                Some(Err(error)) => error,
                None => Error::Cancelled {
                    reason: "the server ended the subscription".into(),
                },
            };
            this.retry(failure)?;
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("filter", &self.filter)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

const MAX_FAILURES: u32 = 8;
const BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(200),
    max: Duration::from_secs(30),
};
