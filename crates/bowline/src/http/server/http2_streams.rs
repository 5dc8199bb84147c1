//! `Http2Streams`, the account of an HTTP/2 connection and the executor of its streams.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use hyper::rt::Executor;

use super::body;
use super::connections::Connection;
use super::serve::MAX_STREAMS;
use crate::limits::{Account, Charge, ChargeKind, Limit, LimitReached};
use crate::sync::Mutex;

/// What the streams of one HTTP/2 connection share. Clones share it.
///
/// As an executor it runs each stream in a task, so that the handlers of one connection run in parallel. It runs those that
/// were refused in the task of the connection: that one may read hundreds of requests before their tasks begin, and what
/// these would hold until then is what was refused.
#[derive(Clone, Debug)]
pub(super) struct Http2Streams {
    account: Arc<Account>,
    connection: Arc<Connection>,
    /// Whether the stream that is executed next was refused.
    is_refused: Arc<AtomicBool>,
    /// Not in the account of the connection, whose bytes are what its client has left unread.
    refused: Arc<Mutex<Charge>>,
}

impl Http2Streams {
    pub(super) fn new(total: &Arc<Account>, connection: &Arc<Connection>) -> Self {
        let account = total.peer();
        connection.set_account(&account);
        let refused = total.empty_charge(ChargeKind::Unread);
        Self {
            account,
            connection: connection.clone(),
            is_refused: Arc::default(),
            refused: Arc::new(Mutex::new(refused)),
        }
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Charges the stream that is executed next.
    pub(super) fn charge(&self) -> Result<Charge, LimitReached> {
        let charged = body::charge_unread(&self.account);
        if let Err(reached) = &charged {
            // hyper executes a stream right after it has called the service, in the same task.
            self.is_refused.store(true, Ordering::Relaxed);
            self.charge_refused();
            if reached.limit == Limit::TotalBytes {
                self.connection.free_memory();
            }
        }
        charged
    }

    /// Charges what a refused stream has taken already, even beyond the limits. A connection keeps the memory of as many
    /// streams as it once had at the same time, until it ends.
    fn charge_refused(&self) {
        let mut charge = self.refused.lock();
        let bytes = charge.bytes() + PER_REFUSED;
        charge.set(bytes.min(MAX_STREAMS as usize * PER_REFUSED));
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

/// Estimated memory that HTTP/2 keeps for a stream that was refused.
const PER_REFUSED: usize = 1536;
