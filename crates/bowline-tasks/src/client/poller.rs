//! `Poller`, which requests the status of a task: by its poll interval, more slowly while notifications are received,
//! and with back-off while the server is away.

use std::sync::Arc;
use std::time::Duration;

use bowline::{Call, Error, Result};
use bowline_types::ErrorCode;
use tokio::time::{Instant, sleep_until};

use super::backoff::{delay, is_transient};
use super::info::{MIN_POLL_INTERVAL, TaskInfo};
use super::task::Task;

pub(super) struct Poller {
    task: Arc<Task>,
    /// What the server suggests.
    interval: Duration,
    /// Of one request.
    timeout: Duration,
    is_listening: bool,
    /// When the next request is sent; `None` is immediately.
    due: Option<Instant>,
    last_sent: Option<Instant>,
    in_flight: Option<Box<Call>>,
    /// In a row.
    failures: u32,
    internal_errors: u32,
}

#[derive(Debug)]
pub(super) enum PollerEvent {
    /// A request was sent.
    Sent,
    Task(Box<TaskInfo>),
    /// The request failed and will be repeated.
    Failed,
}

impl Poller {
    /// Creates a poller that sends its first request immediately.
    pub(super) fn new(task: Arc<Task>, timeout: Duration) -> Self {
        Self {
            task,
            interval: MIN_POLL_INTERVAL,
            timeout,
            is_listening: false,
            due: None,
            last_sent: None,
            in_flight: None,
            failures: 0,
            internal_errors: 0,
        }
    }

    /// Returns whether the last request failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns whether the server has a request to answer.
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Waits for the next event.
    ///
    /// # Errors
    ///
    /// The error of a request that is not worth repeating.
    ///
    /// # Cancel safety
    ///
    /// Safe: the state is kept.
    pub(super) async fn next(&mut self) -> Result<PollerEvent> {
        let Some(call) = &mut self.in_flight else {
            // A timer waits for its next tick, up to 1 ms, even if its time has come.
            if let Some(due) = self.due.filter(|due| *due > Instant::now()) {
                sleep_until(due).await;
            }
            self.last_sent = Some(Instant::now());
            let request = self.task.get().idle_timeout(self.timeout);
            self.in_flight = Some(Box::new(request.start()));
            return Ok(PollerEvent::Sent);
        };
        let answer = call.await;
        self.in_flight = None;
        match answer {
            Ok(reply) => {
                let info = TaskInfo::decode_result(reply.json(), &self.task.id)?;
                (self.failures, self.internal_errors) = (0, 0);
                Ok(PollerEvent::Task(Box::new(info)))
            }
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: Error) -> Result<PollerEvent> {
        if let Error::Rpc(error) = error {
            if error.code == ErrorCode::INVALID_PARAMS {
                return Err(Error::Rpc(self.task.unknown(error)));
            }
            self.internal_errors += 1;
            if error.code != ErrorCode::INTERNAL_ERROR
                || self.internal_errors >= MAX_INTERNAL_ERRORS
            {
                return Err(Error::Rpc(error));
            }
        } else if !is_transient(&error) {
            return Err(error);
        } else {
            self.internal_errors = 0;
            tracing::debug!(%error, "failed to request the status of a task; trying again");
        }
        self.failures = self.failures.saturating_add(1);
        self.due = Some(Instant::now() + delay(self.failures));
        Ok(PollerEvent::Failed)
    }

    /// Sets when the next request is due, after a state was received.
    pub(super) fn received(&mut self, interval: Duration) {
        self.interval = interval;
        self.due = Some(Instant::now() + self.current_interval());
    }

    /// Sets whether notifications are received.
    pub(super) fn set_listening(&mut self, is_listening: bool) {
        self.is_listening = is_listening;
        match is_listening {
            // What happened before the subscription is not sent by every server.
            true => self.due = self.due.min(Some(Instant::now() + CATCH_UP_DELAY)),
            false => self.hasten(),
        }
    }

    /// Sends the next request as soon as that is not too often.
    pub(super) fn hasten(&mut self) {
        if self.failures == 0 {
            // `None` is the least, and an instant in the past the same as now.
            let earliest = self.last_sent.map(|sent| sent + MIN_POLL_INTERVAL);
            self.due = self.due.min(earliest);
        }
    }

    fn current_interval(&self) -> Duration {
        match self.is_listening {
            true => self.interval.max(SLOW_INTERVAL),
            false => self.interval,
        }
    }
}

/// While notifications are received, which may be lost.
const SLOW_INTERVAL: Duration = Duration::from_secs(15);
/// How long the first notification may take after the subscription was acknowledged, before the status is requested.
const CATCH_UP_DELAY: Duration = Duration::from_millis(50);
const MAX_INTERNAL_ERRORS: u32 = 5;
