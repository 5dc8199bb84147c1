//! [`BackChannel`], the in-process channel for server-to-client requests.
//!
//! It counts the open ones: while a handler waits for the client's host, the timeouts of the call are paused.

use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_core::era::Request;
use bowline_types::RequestId;
use tokio::time::Instant;

use super::{CallOptions, Channel, Exchange, ExchangeEvent, PausedTime, PollExchange};
use crate::sync::Mutex;

/// A channel whose open exchanges are counted.
pub(super) struct BackChannel {
    channel: Arc<dyn Channel>,
    /// The call whose handler sends the requests.
    call: RequestId,
    open_requests: OpenRequests,
}

/// The number of open server-to-client requests of one call.
#[derive(Clone, Default)]
pub(super) struct OpenRequests(Arc<Mutex<OpenCount>>);

#[derive(Default)]
struct OpenCount {
    count: usize,
    /// How long the count was not zero.
    paused: PausedTime,
    /// Woken when the count reaches zero.
    waiter: Option<Waker>,
}

impl OpenRequests {
    /// Returns whether a server-to-client request is open. If so, `waiter` is woken when the last one ends: the request
    /// may belong to a task that the handler spawned, and its answer then does not wake the caller.
    pub(super) fn has_open(&self, waiter: &Waker) -> bool {
        if self.0.lock().count == 0 {
            return false;
        }
        // Cloned outside of the lock: a waker's `clone` and `drop` are foreign code.
        let waiter = waiter.clone();
        let mut open = self.0.lock();
        let has_open = open.count > 0;
        let old = open.waiter.replace(waiter);
        drop(open);
        drop(old);
        has_open
    }

    /// Returns how long a server-to-client request was open.
    pub(super) fn paused(&self) -> Duration {
        let open = self.0.lock();
        match open.paused.is_zero() {
            true => Duration::ZERO,
            false => open.paused.total(Instant::now()),
        }
    }

    fn add(&self) {
        let mut open = self.0.lock();
        open.count += 1;
        open.paused.begin(Instant::now());
    }

    fn remove(&self) {
        let mut open = self.0.lock();
        open.count -= 1;
        let is_last = open.count == 0;
        if is_last {
            open.paused.end(Instant::now());
        }
        let waiter = open.waiter.take_if(|_| is_last);
        drop(open);
        waiter.into_iter().for_each(Waker::wake);
    }
}

impl BackChannel {
    pub(super) fn new(channel: Arc<dyn Channel>, call: RequestId) -> Self {
        Self {
            channel,
            call,
            open_requests: OpenRequests::default(),
        }
    }

    /// Returns the number of open requests, which changes with them.
    pub(super) fn open_requests(&self) -> OpenRequests {
        self.open_requests.clone()
    }
}

impl Channel for BackChannel {
    fn open(&self, request: Request, mut options: CallOptions) -> Exchange {
        options.within = Some(self.call.clone());
        let exchange = self.channel.open(request, options);
        self.open_requests.add();
        Exchange::new(CountedExchange {
            exchange: Some(exchange),
            open_requests: self.open_requests.clone(),
        })
    }
}

struct CountedExchange {
    /// `None` after `cancel`.
    exchange: Option<Exchange>,
    open_requests: OpenRequests,
}

impl PollExchange for CountedExchange {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        match &mut self.exchange {
            Some(exchange) => exchange.poll_event(cx),
            None => Poll::Pending,
        }
    }

    fn request_id(&self) -> Option<&RequestId> {
        self.exchange.as_ref().and_then(Exchange::request_id)
    }

    fn paused(&self) -> Duration {
        self.exchange
            .as_ref()
            .map_or(Duration::ZERO, Exchange::paused)
    }

    fn cancel(mut self: Box<Self>, reason: String) {
        if let Some(exchange) = self.exchange.take() {
            exchange.cancel(reason);
        }
    }
}

impl Drop for CountedExchange {
    fn drop(&mut self) {
        self.open_requests.remove();
    }
}
