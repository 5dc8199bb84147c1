//! A subscription that does not stay lost.
//!
//! ```text
//! Waiting ──time is up──▶ Subscribing ──acknowledged──▶ Listening
//!    ▲                        │ failed                      │ ended
//!    └────────────────────────┴──────────────────────────────┘   give up after too many in a row
//! ```

use std::collections::hash_map::RandomState;
use std::future::{Future, IntoFuture, poll_fn};
use std::hash::BuildHasher;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::Duration;

use bowline_types::SubscriptionFilter;
use futures_core::Stream;
use tokio::time::{Instant, Sleep};

use super::{Change, Client, Subscription};
use crate::exchange::BoxFuture;
use crate::peer::Peer;
use crate::{Error, Result};

/// Changes, as the server tells them, across subscriptions; a stream.
///
/// When a subscription ends, for whatever reason, another takes its place after a pause that grows with
/// each failure. Then [`Change::Missed`] comes first, for nobody knows what happened in between. It ends
/// with an error if the server cannot be subscribed to time after time, and at once if the wire has come to
/// its end.
///
/// # Cancel safety
///
/// Dropping it ends the subscription.
///
/// # Examples
///
/// ```
/// # async fn example(client: bowline::Client) -> bowline::Result<()> {
/// use bowline::client::{Change, Changes};
///
/// let mut changes = client.watch(Changes::new().tools());
/// while let Some(change) = changes.next().await? {
///     if matches!(change, Change::Tools | Change::Missed) {
///         println!("{} tools", client.list_tools().await?.len());
///     }
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is watched until it is polled"]
pub struct Watch {
    client: Client,
    filter: SubscriptionFilter,
    most_failures: u32,
    /// In a row.
    failures: u32,
    has_listened: bool,
    state: State,
}

enum State {
    Waiting(Pin<Box<Sleep>>),
    Subscribing(BoxFuture<'static, Result<Subscription>>),
    Listening(Box<Subscription>, Instant),
    Done,
}

impl Watch {
    pub(super) fn new(client: &Client, filter: SubscriptionFilter) -> Self {
        let subscribing = client.subscribe(filter.clone()).into_future();
        Self {
            client: client.clone(),
            filter,
            most_failures: MOST_FAILURES,
            failures: 0,
            has_listened: false,
            state: State::Subscribing(subscribing),
        }
    }

    /// Gives up after this many failures in a row. 8 by default.
    pub fn most_failures(mut self, failures: u32) -> Self {
        self.most_failures = failures;
        self
    }

    /// The next change; `None` once an error was returned.
    ///
    /// # Errors
    ///
    /// Once, when it gives up, with what happened last.
    ///
    /// # Cancel safety
    ///
    /// Safe: a change is taken only when it is returned.
    pub async fn next(&mut self) -> Result<Option<Change>> {
        let next = poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await;
        next.transpose()
    }

    /// Begins to wait for the next attempt, or gives up.
    fn retry(&mut self, error: Error) -> Result<State> {
        self.failures += 1;
        // A wire that has come to its end does not come back.
        let has_ended = self.client.peer().is_some_and(Peer::has_ended);
        if self.failures >= self.most_failures || has_ended {
            return Err(error);
        }
        let pause = pause(self.failures);
        tracing::debug!(%error, ?pause, "a subscription ended; it will be renewed");
        Ok(State::Waiting(Box::pin(tokio::time::sleep(pause))))
    }
}

impl Stream for Watch {
    type Item = Result<Change>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            let failure = match &mut this.state {
                State::Done => return Poll::Ready(None),
                State::Waiting(pause) => {
                    ready!(pause.as_mut().poll(cx));
                    let subscribing = this.client.subscribe(this.filter.clone()).into_future();
                    this.state = State::Subscribing(subscribing);
                    continue;
                }
                State::Subscribing(subscribing) => match ready!(subscribing.as_mut().poll(cx)) {
                    Ok(subscription) => {
                        this.state = State::Listening(Box::new(subscription), Instant::now());
                        if std::mem::replace(&mut this.has_listened, true) {
                            this.client.inner.hearing.hear_change(&Change::Missed);
                            return Poll::Ready(Some(Ok(Change::Missed)));
                        }
                        continue;
                    }
                    Err(error) => error,
                },
                State::Listening(subscription, since) => {
                    let next = ready!(Pin::new(&mut **subscription).poll_next(cx));
                    // A server that ends each subscription at once has not earned a new start.
                    if since.elapsed() > LONGEST_PAUSE {
                        this.failures = 0;
                    }
                    match next {
                        Some(Ok(change)) => return Poll::Ready(Some(Ok(change))),
                        Some(Err(error)) => error,
                        None => Error::Cancelled {
                            reason: "the server ended the subscription".into(),
                        },
                    }
                }
            };
            match this.retry(failure) {
                Ok(state) => this.state = state,
                Err(error) => {
                    this.state = State::Done;
                    return Poll::Ready(Some(Err(error)));
                }
            }
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

/// Twice as long after each failure, and never for two clients alike, lest they all come back at once.
fn pause(failures: u32) -> Duration {
    let longest = FIRST_PAUSE * 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    let longest = longest.min(LONGEST_PAUSE);
    let chance = RandomState::new().hash_one(failures) % 1_000;
    longest / 2 + longest / 2 * u32::try_from(chance).unwrap_or(0) / 1_000
}

const MOST_FAILURES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
