//! Exchanges over a duplex wire: a lock, some wakers, a timer and a task around the engine.
//!
//! ```text
//!   Peer, Call ──lock──▶ Mux ◀──lock── Driver ──▶ Wire
//!        └────────── wakes ──────────────┘
//! ```
//!
//! Handles lock, change the engine, unlock, and wake the driver. There is no command channel: an id
//! exists before `open` returns, dropping a call cannot be lost, and the order on the wire is the order
//! of the calls. Nothing is woken, and nothing foreign is dropped, while the lock is held.

mod call;

mod driver;
pub(crate) use driver::Driver;

mod notices;
pub(crate) use notices::Notices;

mod serving;
pub(crate) use serving::Role;

mod unread;

#[cfg_attr(bowline_no_legacy, path = "legacy_stub.rs")]
mod legacy;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bowline_core::era::{Request, Stamper};
use bowline_core::mux::{CallId, CallOptions, InFlightId, Limits, Mux, NotSent, Refused, Sizes};
use bowline_core::{Notification, Outcome};
use bowline_types::RequestId;
use tokio::sync::watch;

use crate::exchange::{Channel, Exchange};
use crate::limits::Account;
use crate::wire::Wire;
use crate::{Error, Result};
use call::{Call, Mailbox};
use unread::WhenFull;

/// A cheap handle to the other end of a duplex wire.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    stamper: Stamper,
    notices: Notices,
    /// What is held for the other end.
    account: Arc<Account>,
    /// Turns true when the driver is done.
    ended: watch::Sender<bool>,
}

/// Everything under the lock.
struct State {
    mux: Mux,
    /// The table entry is the mailbox: no other channel carries an outcome to its call.
    mailboxes: BTreeMap<CallId, Mailbox>,
    /// Requests of the other side whose handlers are at their end; no more than there were handlers.
    finished: Vec<InFlightId>,
    driver: Option<Waker>,
    closing: Option<Closing>,
    failure: Option<Arc<io::Error>>,
    legacy: legacy::Held,
}

/// How much is still done before the wire is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// What is queued is sent, for at most this long.
    Flush(Duration),
    /// New requests are refused, running handlers may finish, for at most this long.
    Drain(Duration),
}

impl Peer {
    /// A handle, and the driver that must run for anything to happen.
    pub(crate) fn new(wire: Box<dyn Wire>, role: Role, account: Arc<Account>) -> (Self, Driver) {
        let limits = account.limits();
        let limits = Limits {
            in_flight: limits.peer_requests,
            queued: limits.output_messages,
            queued_bytes: limits.output_bytes,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                mux: Mux::new(limits),
                mailboxes: BTreeMap::new(),
                finished: Vec::new(),
                driver: None,
                closing: None,
                failure: None,
                legacy: legacy::Held::default(),
            }),
            stamper: Stamper::default(),
            notices: Notices::new(account.clone()),
            account,
            ended: watch::Sender::new(false),
        });
        let peer = Self { shared };
        let driver = Driver::new(wire, peer.clone(), role);
        (peer, driver)
    }

    /// Says something that belongs to no request.
    pub fn notify(&self, notification: Notification) {
        let result = self.with(|state| state.mux.notify(notification));
        if let Err(NotSent::Full) = result {
            tracing::warn!("the other side does not read; a notification was dropped");
        }
    }

    /// How much is going on: all zero when nothing is.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.shared.lock().mux.sizes()
    }

    /// Whether nothing at all is remembered: no call, no request, no mailbox, no listener.
    #[doc(hidden)]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let state = self.shared.lock();
        let tables = state.mux.sizes() == Sizes::default();
        tables
            && state.mailboxes.is_empty()
            && state.legacy.is_empty()
            && !self.shared.notices.has_listeners()
    }

    /// What the other side says that belongs to no call.
    pub(crate) fn notices(&self) -> &Notices {
        &self.shared.notices
    }

    pub(crate) fn close(&self, how: Closing) {
        self.with(|state| {
            state.closing.get_or_insert(how);
            if let Closing::Drain(_) = how {
                state.mux.drain();
            }
        });
    }

    /// Waits until the driver is done.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost by dropping it.
    pub(crate) async fn ended(&self) {
        // The sender lives in `shared`, so this cannot fail before the driver is done.
        let _ = self.shared.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Puts something into the mailbox of a call, if somebody still waits for it.
    fn deliver(&self, call: CallId, put: impl FnOnce(&mut Mailbox) -> Option<Waker>) {
        let waker = self.shared.lock().mailboxes.get_mut(&call).and_then(put);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Whether the driver is done.
    pub(crate) fn has_ended(&self) -> bool {
        *self.shared.ended.borrow()
    }

    fn notify_within(&self, id: &InFlightId, notification: Notification) {
        let result = self.with(|state| state.mux.notify_within(id, notification));
        if let Err(NotSent::Full) = result {
            tracing::warn!("the other side does not read; a notification was dropped");
        }
    }

    fn respond(&self, id: &InFlightId, outcome: Outcome) {
        self.with(|state| state.mux.respond(id, outcome));
    }

    /// Changes the state, then wakes the driver.
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.shared.lock();
        let result = change(&mut state);
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
        result
    }
}

impl Channel for Peer {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        if legacy::must_emulate(&request) {
            return legacy::listen(self, &request);
        }
        legacy::remember(self, &request);
        self.call(&request, options).1
    }
}

impl Peer {
    /// Starts a call, and tells which it is unless it failed at once.
    fn call(&self, request: &Request, options: CallOptions) -> (Option<CallId>, Exchange) {
        let mailbox = Mailbox::new(match options.is_subscription || request.method == LISTEN {
            true => WhenFull::Lag,
            false => WhenFull::DropOldest,
        });
        match self.start(request, options, Some(mailbox)) {
            Ok((call, id)) => {
                let exchange = Exchange::new(Call::new(self.clone(), call, id, request));
                (Some(call), exchange)
            }
            Err(error) => (None, Exchange::failed(error)),
        }
    }

    fn start(
        &self,
        request: &Request,
        mut options: CallOptions,
        mailbox: Option<Mailbox>,
    ) -> Result<(CallId, RequestId)> {
        options.progress_token.clone_from(&request.progress_token);
        options.is_subscription |= request.method == LISTEN;
        let stamped = self.shared.stamper.stamp(request);
        let now = tokio::time::Instant::now().into_std();
        let started = self.with(|state| {
            let call = state
                .mux
                .call(now, stamped.method, stamped.params, options)?;
            state
                .mailboxes
                .extend(mailbox.map(|mailbox| (call, mailbox)));
            let id = state.mux.request_id(call).cloned();
            Ok((call, id.expect("a call that has just begun is pending")))
        });
        started.map_err(|refused| match refused {
            Refused::Ended(_) => self.end_error(),
            refused => Error::misuse(refused.to_string()),
        })
    }

    /// Why nothing goes over this wire any more.
    fn end_error(&self) -> Error {
        match self.shared.lock().failure.clone() {
            Some(failure) => Error::Transport {
                what: failure.to_string(),
                source: Some(Box::new(failure)),
            },
            None => Error::Closed,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The engine does not panic; if it did, its tables would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer")
            .field("sizes", &self.sizes())
            .finish_non_exhaustive()
    }
}

/// The one method that the two eras do not share a spelling of.
const LISTEN: &str = "subscriptions/listen";
