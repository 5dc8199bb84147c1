//! The way back in process, which tells whether the caller waits for its own host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{self, Poll};

use bowline_core::era::Request;
use bowline_core::mux::CallOptions;
use bowline_types::RequestId;

use super::{Channel, Exchange, Ongoing, Step};

/// A channel whose open exchanges are counted.
pub(super) struct WayBack {
    channel: Arc<dyn Channel>,
    questions: Questions,
}

/// How many questions wait for the caller's host.
#[derive(Clone, Default)]
pub(super) struct Questions(Arc<AtomicUsize>);

impl Questions {
    /// Whether the handler may be silent because it waits for an answer.
    pub(super) fn are_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
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
        self.questions.0.fetch_add(1, Ordering::Relaxed);
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

    fn cancel(mut self: Box<Self>, reason: String) {
        if let Some(exchange) = self.exchange.take() {
            exchange.cancel(reason);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.questions.0.fetch_sub(1, Ordering::Relaxed);
    }
}
