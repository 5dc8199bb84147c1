//! An exchange that is carried on by a future of its own, inside its caller's.

use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use bowline_core::mux::CallOptions;
use bowline_types::RequestId;

use super::deadline::Deadline;
use super::ids::Reservation;
use super::{Answer, BoxFuture, Ongoing, Pause, Said, Step};
use crate::{Error, Result};

/// An exchange whose steps a future takes: it ends with the answer, and what is said before that goes through
/// [`Said`]. Dropping it drops the future.
pub(crate) struct Driven {
    future: Option<BoxFuture<'static, Result<Answer>>>,
    has_started: bool,
    answer: Option<Result<Answer>>,
    said: Arc<Said>,
    reservation: Reservation,
    idle: Option<Deadline>,
    total: Option<Deadline>,
    pause: Arc<Pause>,
    /// How long it goes on unheard if its caller lets go, where that is not to be a cancel.
    outlives: Option<Duration>,
}

impl Driven {
    pub(crate) fn new(
        future: BoxFuture<'static, Result<Answer>>,
        said: Arc<Said>,
        pause: Arc<Pause>,
        reservation: Reservation,
        options: &CallOptions,
    ) -> Self {
        Self {
            future: Some(future),
            has_started: false,
            answer: None,
            said,
            reservation,
            idle: options.idle_timeout.map(Deadline::from),
            total: options.total_timeout.map(Deadline::from),
            pause,
            outlives: (!options.cancel_on_abandon).then(|| {
                let limit = options.total_timeout.or(options.idle_timeout);
                limit.unwrap_or(LONGEST_UNHEARD)
            }),
        }
    }

    fn poll_overdue(&mut self, cx: &mut task::Context<'_>) -> Option<Duration> {
        if self.pause.is_on() {
            self.total.iter_mut().for_each(Deadline::pause);
            self.idle.iter_mut().for_each(Deadline::restart);
            return None;
        }
        // The total deadline is asked first: it is the one that nothing moves.
        let deadlines = [&mut self.total, &mut self.idle];
        deadlines
            .into_iter()
            .flatten()
            .find_map(|deadline| deadline.poll_overdue(cx))
    }
}

impl Ongoing for Driven {
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        // What is waiting is handed out before more is taken from the wire, which bounds the queue.
        if let Some(notification) = self.said.next() {
            self.idle
                .iter_mut()
                .for_each(|idle| idle.hear(&notification));
            return Poll::Ready(Step::Notification(notification));
        }
        if let Some(after) = self.poll_overdue(cx) {
            self.let_go();
            return Poll::Ready(Step::Answered(Err(Error::Timeout { after })));
        }
        self.has_started = true;
        let was_paused = self.pause.is_on();
        // What is said now is seen below, and need not wake this task.
        self.said.attend();
        if let Some(future) = &mut self.future
            && let Poll::Ready(answer) = future.as_mut().poll(cx)
        {
            self.future = None;
            self.answer = Some(answer);
        }
        if was_paused != self.pause.is_on()
            && let Some(after) = self.poll_overdue(cx)
        {
            self.let_go();
            return Poll::Ready(Step::Answered(Err(Error::Timeout { after })));
        }
        if let Some(notification) = self.said.next_or_wake(cx.waker()) {
            self.idle
                .iter_mut()
                .for_each(|idle| idle.hear(&notification));
            return Poll::Ready(Step::Notification(notification));
        }
        match self.answer.take() {
            Some(answer) => Poll::Ready(Step::Answered(answer)),
            None => Poll::Pending,
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        Some(self.reservation.id())
    }

    fn paused(&self) -> Duration {
        self.pause.total()
    }

    fn cancel(mut self: Box<Self>, reason: String) {
        tracing::debug!(id = %self.reservation.id(), reason, "a call was cancelled");
        self.future = None;
    }
}

impl Driven {
    /// Dropping the future is the cancel, so where none is wanted it runs on by itself for a while.
    fn let_go(&mut self) {
        if let (Some(future), Some(limit)) = (self.future.take(), self.outlives)
            && self.has_started
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            self.said.close();
            runtime.spawn(tokio::time::timeout(limit, future));
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.let_go();
    }
}

const LONGEST_UNHEARD: Duration = Duration::from_secs(60);
