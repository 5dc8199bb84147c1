//! [`LocalExchange`], an exchange that runs inside the caller's future instead of a `Mux`: an HTTP request, or a
//! handler in process.

use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_types::RequestId;

use super::deadline::Deadlines;
use super::notification_queue::{NotificationQueue, OverflowPolicy};
use super::request_ids::IdReservation;
use super::{Answer, CallOptions, ExchangeEvent, PollExchange};
use crate::{Error, Result};

/// The work of one exchange. Its notifications go to the [`NotificationQueue`] of the exchange.
pub(super) trait ExchangeWork: Send + 'static {
    /// Polls for the answer. Not polled again after it is ready.
    fn poll_answer(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Answer>>;

    /// Returns whether the timeouts are paused. If so, wakes `waker` when the pause ends, unless that happens in
    /// `poll_answer`.
    fn is_paused(&self, waker: &Waker) -> bool;

    /// Returns how long the timeouts were paused.
    fn paused(&self) -> Duration;

    /// Stops the work: the caller dropped the exchange, or it timed out.
    fn abandon(self);

    /// Stops the work: the caller cancelled the exchange.
    fn cancel(self, reason: String);
}

/// Runs an [`ExchangeWork`] with its notifications and timeouts.
pub(super) struct LocalExchange<W: ExchangeWork> {
    /// `None` once it is answered or stopped.
    work: Option<W>,
    answer: Option<Result<Answer>>,
    notifications: Arc<NotificationQueue>,
    deadlines: Deadlines,
    reservation: IdReservation,
    /// The pauses of the work, kept for after its end.
    paused: Duration,
    overflow_policy: OverflowPolicy,
}

impl<W: ExchangeWork> LocalExchange<W> {
    pub(super) fn new(
        work: W,
        notifications: Arc<NotificationQueue>,
        reservation: IdReservation,
        overflow_policy: OverflowPolicy,
        options: &CallOptions,
    ) -> Self {
        Self {
            work: Some(work),
            answer: None,
            notifications,
            deadlines: Deadlines::new(options),
            reservation,
            paused: Duration::ZERO,
            overflow_policy,
        }
    }

    /// Polls the timeouts. Returns whether they are paused.
    fn poll_elapsed(&mut self, cx: &mut task::Context<'_>) -> Result<bool> {
        let Some(work) = &self.work else {
            return Ok(false); // An answer that has arrived is not timed out by the notifications before it.
        };
        if work.is_paused(cx.waker()) {
            self.deadlines.restart_idle();
            return Ok(true);
        }
        match self.deadlines.poll_elapsed(|| work.paused(), cx) {
            Some(after) => Err(Error::Timeout { after }),
            None => Ok(false),
        }
    }

    /// Polls the work, and returns the error that ends the exchange early, if there is one.
    fn poll_work(&mut self, cx: &mut task::Context<'_>) -> Result<()> {
        let was_paused = self.poll_elapsed(cx)?;
        // Notifications that are pushed during this poll are popped below and need no wake.
        self.notifications.begin_poll();
        if let Some(work) = &mut self.work
            && let Poll::Ready(answer) = work.poll_answer(cx)
        {
            self.paused = work.paused();
            self.work = None;
            self.answer = Some(answer);
        }
        // A pause that began must register the waker; one that ended must register the timers, or they would not fire.
        let is_paused = self.work.as_ref().map(|work| work.is_paused(cx.waker()));
        if is_paused.is_some_and(|is_paused| is_paused != was_paused) {
            self.poll_elapsed(cx)?;
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.notifications.close();
        if let Some(work) = self.work.take() {
            work.abandon();
        }
    }
}

impl<W: ExchangeWork> PollExchange for LocalExchange<W> {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        // The queue is emptied before the work continues, which bounds the queue.
        if let Some(notification) = self.notifications.next() {
            self.deadlines.on_notification(&notification);
            return Poll::Ready(ExchangeEvent::Notification(notification));
        }
        if let Err(error) = self.poll_work(cx) {
            self.abandon();
            return Poll::Ready(ExchangeEvent::Answered(Err(error)));
        }
        // Notifications come before the answer.
        if let Some(notification) = self.notifications.next_or_register(cx.waker()) {
            self.deadlines.on_notification(&notification);
            return Poll::Ready(ExchangeEvent::Notification(notification));
        }
        if self.overflow_policy == OverflowPolicy::Lag && self.notifications.has_overflowed() {
            self.abandon();
            return Poll::Ready(ExchangeEvent::Answered(Err(Error::Lagged)));
        }
        match self.answer.take() {
            Some(answer) => Poll::Ready(ExchangeEvent::Answered(answer)),
            None => Poll::Pending,
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        Some(self.reservation.id())
    }

    fn paused(&self) -> Duration {
        self.work.as_ref().map_or(self.paused, ExchangeWork::paused)
    }

    fn cancel(mut self: Box<Self>, reason: String) {
        tracing::debug!(id = %self.reservation.id(), reason, "cancelled a call");
        self.notifications.close();
        if let Some(work) = self.work.take() {
            work.cancel(reason);
        }
    }
}

impl<W: ExchangeWork> Drop for LocalExchange<W> {
    fn drop(&mut self) {
        self.abandon();
    }
}
