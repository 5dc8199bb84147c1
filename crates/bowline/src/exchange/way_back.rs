//! The way back in process, which tells whether the caller waits for its own host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use bowline_core::era::Request;
use bowline_core::mux::CallOptions;
use bowline_types::RequestId;

use super::{Channel, Exchange, Ongoing, Step};

/// A channel whose open exchanges are counted.
pub(super) struct WayBack {
    channel: Arc<dyn Channel>,
    questions: Questions,
}

/// The questions that wait for the caller's host.
#[derive(Clone, Default)]
pub(super) struct Questions(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    count: usize,
    /// Who waits for the last of them to be answered.
    waiter: Option<Waker>,
}

impl Questions {
    /// Whether the handler may be silent because it waits for an answer. If so, `waiter` is woken once it does not
    /// any more: the question may be one of a task that the handler spawned.
    pub(super) fn are_open(&self, waiter: &Waker) -> bool {
        if self.lock().count == 0 {
            return false;
        }
        let waiter = waiter.clone();
        let mut open = self.lock();
        let are_open = open.count > 0;
        let old = open.waiter.replace(waiter);
        drop(open);
        drop(old);
        are_open
    }

    fn ask(&self) {
        self.lock().count += 1;
    }

    fn settle(&self) {
        let mut open = self.lock();
        open.count -= 1;
        let is_last = open.count == 0;
        let waiter = open.waiter.take_if(|_| is_last);
        drop(open);
        waiter.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // No code that could panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WayBack {
    pub(super) fn new(channel: Arc<dyn Channel>, questions: Questions) -> Self {
        Self { channel, questions }
    }
}

impl Channel for WayBack {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        let exchange = self.channel.open(request, options);
        self.questions.ask();
        Exchange::new(Counted {
            exchange: Some(exchange),
            questions: self.questions.clone(),
        })
    }
}

struct Counted {
    /// `None` once it is cancelled.
    exchange: Option<Exchange>,
    questions: Questions,
}

impl Ongoing for Counted {
    fn poll_step(&mut self, cx: &mut task::Context<'_>) -> Poll<Step> {
        match &mut self.exchange {
            Some(exchange) => exchange.poll_step(cx),
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

impl Drop for Counted {
    fn drop(&mut self) {
        self.questions.settle();
    }
}
