//! [`Client::request_detached`], which sends a request that no caller waits for.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::Request;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Client, Connection, encode_object};
use crate::exchange::{CANCEL_TIME, CallOptions, Channel, Exchange};
use crate::signal::Signal;
use crate::sync::Mutex;
use crate::{Error, Result};

impl Client {
    /// Sends a request whose result is discarded, in a task of its own. For the `Drop` of a value, which cannot wait: for
    /// example, to cancel work at the server when a call of a [`ClientExtension`](super::ClientExtension) is dropped.
    ///
    /// The task runs in the runtime that the client was connected in. 64 of these requests are in flight at a time, and
    /// the others wait for their turn. Each ends with its response, or `timeout` after it was sent, which is never paused.
    ///
    /// [`Client::close`] waits for all of them, and dropping the last clone of the client keeps the connection open for
    /// them, both for at most four seconds. What is not sent by then is lost, and so is what waits when the process exits
    /// without `close`. An error of the request is logged.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] if the client is closed. [`Error::Misuse`] if `params` do not serialize to a JSON object, or if
    /// there is no runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::Client;
    ///
    /// struct Ticket {
    ///     client: Client,
    ///     id: String,
    /// }
    ///
    /// impl Drop for Ticket {
    ///     fn drop(&mut self) {
    ///         let params = serde_json::json!({"ticket": self.id});
    ///         let sent = self.client.request_detached("tickets/return", params, Duration::from_secs(5));
    ///         if let Err(error) = sent {
    ///             eprintln!("the ticket {} was not returned: {error}", self.id);
    ///         }
    ///     }
    /// }
    /// ```
    pub fn request_detached(
        &self,
        method: impl Into<String>,
        params: impl Serialize,
        timeout: Duration,
    ) -> Result<()> {
        let (method, params) = (method.into(), encode_object(&params)?);
        let detached = &self.inner.detached;
        let runtime = detached
            .runtime
            .clone()
            .or_else(|| Handle::try_current().ok());
        let Some(runtime) = runtime else {
            return Err(Error::misuse(format!(
                "`{method}` was not sent: there is no tokio runtime"
            )));
        };
        let request = DetachedRequest {
            request: Request::new(method, params, self.caller()),
            connection: self.inner.current_connection().clone(),
            timeout,
        };
        if let Some((slot, request)) = detached.queue.admit(request)? {
            let _entered = runtime.enter();
            // Opened here: on a wire it is queued before what the caller does next.
            let exchange = request.open();
            // Bounded by the timeouts of the requests and the life of the client.
            runtime.spawn(slot.run(request, exchange));
        }
        Ok(())
    }

    /// Returns the number of requests of [`request_detached`](Self::request_detached) that are in flight, or wait to be
    /// sent.
    #[must_use]
    pub fn detached_requests(&self) -> usize {
        self.inner.detached.queue.state.lock().count()
    }
}

/// The detached requests of a client.
pub(super) struct DetachedRequests {
    /// The runtime of the client: a `Drop` may run outside of it.
    runtime: Option<Handle>,
    queue: Arc<DetachedQueue>,
}

impl DetachedRequests {
    pub(super) fn new() -> Self {
        Self {
            runtime: Handle::try_current().ok(),
            queue: Arc::default(),
        }
    }

    /// Limits how long the requests may take from now on, to [`CANCEL_TIME`].
    pub(super) fn begin_close(&self) {
        let mut state = self.queue.state.lock();
        state.closed_at.get_or_insert_with(Instant::now);
        drop(state);
        self.queue.closing.raise();
    }

    /// Waits until there are none, which takes [`CANCEL_TIME`] at most, and refuses those that come later.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future has no effect but that of [`begin_close`](Self::begin_close).
    pub(super) async fn close(&self) {
        self.begin_close();
        // The calls of aborted tasks are dropped when the runtime has a turn. On a runtime with several threads one turn may
        // be too few, so the documentation tells to await such tasks first.
        yield_now().await;
        loop {
            let mut finished = pin!(self.queue.finished.notified());
            finished.as_mut().enable(); // before the count is read, or a change in between would be missed
            {
                let mut state = self.queue.state.lock();
                if state.count() == 0 {
                    state.is_closed = true;
                    return;
                }
            }
            finished.await;
        }
    }
}

/// What the tasks of detached requests share.
#[derive(Default)]
struct DetachedQueue {
    state: Mutex<QueueState>,
    /// Notified when the last request has ended.
    finished: Notify,
    /// Raised when the client is being closed or was dropped.
    closing: Signal,
}

#[derive(Default)]
struct QueueState {
    /// Not limited in number: each is small, and stands for a larger value that the application has dropped.
    waiting: VecDeque<DetachedRequest>,
    /// At most [`MAX_IN_FLIGHT`].
    in_flight: usize,
    /// When the client was closed or dropped.
    closed_at: Option<Instant>,
    /// Whether no more requests are accepted.
    is_closed: bool,
}

impl QueueState {
    fn count(&self) -> usize {
        self.waiting.len() + self.in_flight
    }
}

/// A request, and what it is sent with. Keeps the connection open.
struct DetachedRequest {
    request: Request,
    connection: Connection,
    timeout: Duration,
}

impl DetachedRequest {
    fn open(&self) -> Exchange {
        let request = self.request.clone();
        self.connection.open(request, CallOptions::default())
    }

    fn log(&self, error: &Error) {
        let method = &*self.request.method;
        match error {
            // The server has received it: what is to be cancelled may have ended, for example.
            Error::Rpc(_) => tracing::debug!(method, %error, "a detached request failed"),
            _ => tracing::warn!(method, %error, "a detached request failed"),
        }
    }
}

impl DetachedQueue {
    /// Returns the request with a slot to send it in, or queues it if all slots are taken.
    fn admit(
        self: &Arc<Self>,
        request: DetachedRequest,
    ) -> Result<Option<(Slot, DetachedRequest)>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Error::Closed);
        }
        if state.in_flight == MAX_IN_FLIGHT {
            state.waiting.push_back(request);
            return Ok(None);
        }
        state.in_flight += 1;
        let slot = Slot {
            queue: self.clone(),
            is_free: false,
        };
        Ok(Some((slot, request)))
    }

    /// Waits until the client was closed [`CANCEL_TIME`] ago.
    async fn out_of_time(&self) {
        self.closing.wait().await;
        let closed_at = self.state.lock().closed_at;
        sleep_until(closed_at.unwrap_or_else(Instant::now) + CANCEL_TIME).await;
    }
}

/// One of [`MAX_IN_FLIGHT`] tasks that send detached requests.
struct Slot {
    queue: Arc<DetachedQueue>,
    is_free: bool,
}

impl Slot {
    /// Sends a request, then those that wait.
    async fn run(mut self, first: DetachedRequest, exchange: Exchange) {
        let queue = self.queue.clone();
        let mut out_of_time = pin!(queue.out_of_time());
        let mut next = Some((first, exchange));
        while let Some((request, exchange)) = next {
            let after = request.timeout;
            let ended = tokio::select! {
                // A response that arrived in time counts.
                biased;
                answer = timeout(after, exchange.answer()) => match answer {
                    Ok(answer) => answer.map(drop),
                    Err(_) => Err(Error::Timeout { after }),
                },
                () = &mut out_of_time => {
                    request.log(&Error::Closed);
                    return;
                }
            };
            if let Err(error) = ended {
                request.log(&error);
            }
            next = self.next().map(|request| {
                let exchange = request.open();
                (request, exchange)
            });
        }
    }

    /// Returns the next request that waits. If there is none the slot is free: in one step, because a request that is
    /// queued in between would never be sent.
    fn next(&mut self) -> Option<DetachedRequest> {
        let mut state = self.queue.state.lock();
        if let Some(request) = state.waiting.pop_front() {
            return Some(request);
        }
        self.is_free = true;
        state.in_flight -= 1;
        let is_last = state.in_flight == 0;
        drop(state);
        if is_last {
            self.queue.finished.notify_waiters();
        }
        None
    }
}

impl Drop for Slot {
    /// Drops the requests that wait if the task ends before them: at the end of the client's time or of the runtime.
    fn drop(&mut self) {
        if self.is_free {
            return;
        }
        let mut state = self.queue.state.lock();
        state.in_flight -= 1;
        let lost = std::mem::take(&mut state.waiting);
        let is_last = state.in_flight == 0;
        drop(state);
        if !lost.is_empty() {
            let count = lost.len();
            tracing::warn!(count, "detached requests were not sent in time");
        }
        drop(lost); // not under the lock: that may close the connection
        if is_last {
            self.queue.finished.notify_waiters();
        }
    }
}

/// How many are in flight at a time: a server has limits, and over HTTP/1.1 each takes a connection.
const MAX_IN_FLIGHT: usize = 64;
