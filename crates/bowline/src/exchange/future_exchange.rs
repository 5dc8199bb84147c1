//! [`FutureWork`], the work of an exchange whose answer is the output of a future; used by the HTTP client.

use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use super::local_exchange::{ExchangeWork, LocalExchange};
use super::request_ids::IdReservation;
use super::{
    Answer, BoxFuture, CallOptions, Exchange, NotificationQueue, OverflowPolicy, TimeoutPause,
};
use crate::Result;

impl Exchange {
    /// Creates an exchange that polls `future` inside the caller's. Dropping it drops the future.
    ///
    /// The future pushes notifications to `notifications`, and pauses the timeouts through `pause`.
    pub(crate) fn from_future(
        future: BoxFuture<'static, Result<Answer>>,
        notifications: Arc<NotificationQueue>,
        pause: Arc<TimeoutPause>,
        reservation: IdReservation,
        overflow_policy: OverflowPolicy,
        options: &CallOptions,
    ) -> Self {
        let work = FutureWork {
            future,
            has_started: false,
            pause,
            detach_timeout: (!options.cancel_on_drop).then(|| {
                let limit = options.timeout.or(options.idle_timeout);
                limit.unwrap_or(MAX_DETACHED)
            }),
        };
        Self::new(LocalExchange::new(
            work,
            notifications,
            reservation,
            overflow_policy,
            options,
        ))
    }
}

struct FutureWork {
    future: BoxFuture<'static, Result<Answer>>,
    has_started: bool,
    pause: Arc<TimeoutPause>,
    /// How long the future runs on in a task after it was abandoned; `None` to cancel the request.
    detach_timeout: Option<Duration>,
}

impl ExchangeWork for FutureWork {
    fn poll_answer(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Answer>> {
        self.has_started = true;
        self.future.as_mut().poll(cx)
    }

    fn is_paused(&self, _: &Waker) -> bool {
        self.pause.is_paused()
    }

    fn paused(&self) -> Duration {
        self.pause.total()
    }

    /// Drops the future, which cancels the request; with `detach_timeout`, spawns it instead.
    fn abandon(self) {
        if let Some(limit) = self.detach_timeout
            && self.has_started
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(tokio::time::timeout(limit, self.future));
        }
    }

    fn cancel(self, _: String) {
        drop(self.future);
    }
}

const MAX_DETACHED: Duration = Duration::from_secs(60);
