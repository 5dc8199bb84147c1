//! `Http2Streams`, the account of an HTTP/2 connection and the executor of its streams.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use hyper::rt::Executor;

use super::body;
use crate::limits::{Account, Charge, LimitReached};

/// What the streams of one HTTP/2 connection share. Clones share it.
///
/// As an executor it runs each stream in a task, so that the handlers of one connection run in parallel. It runs those that
/// were refused in the task of the connection: that one may read hundreds of requests before their tasks begin, and what
/// these would hold until then is what was refused.
#[derive(Clone, Debug)]
pub(super) struct Http2Streams {
    account: Arc<Account>,
    /// Whether the stream that is executed next was refused.
    is_refused: Arc<AtomicBool>,
}

impl Http2Streams {
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self {
            account,
            is_refused: Arc::default(),
        }
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Charges the stream that is executed next.
    pub(super) fn charge(&self) -> Result<Charge, LimitReached> {
        let charged = body::charge_unread(&self.account);
        if charged.is_err() {
            // hyper executes a stream right after it has called the service, in the same task.
            self.is_refused.store(true, Ordering::Relaxed);
        }
        charged
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Http2Streams {
    fn execute(&self, stream: F) {
        if !self.is_refused.swap(false, Ordering::Relaxed) {
            tokio::spawn(stream);
            return;
        }
        let mut stream = Box::pin(stream);
        // A refusal is ready. If it is not, the task polls it again.
        let mut cx = Context::from_waker(Waker::noop());
        if stream.as_mut().poll(&mut cx).is_pending() {
            tokio::spawn(stream);
        }
    }
}
