//! Exchanges over a duplex wire: [`Peer`] is the handle, `Driver` the task; both lock the sans-IO `Mux`.
//!
//! ```text
//!   Peer, WireCall ──lock──▶ Mux ◀──lock── Driver ──▶ Wire
//!       └─────────── wakes ────────────────┘
//! ```
//!
//! Handles lock and change the `Mux`, unlock, and wake the driver. There is no command channel, so that an id exists
//! before `open` returns, a dropped call cannot fail to be cancelled, and messages are sent in the order of the calls.
//! Wakers and values of other code are woken and dropped only after unlocking, since they may lock again.

mod call;

mod driver;
pub(crate) use driver::Driver;

mod notification_hub;
pub(crate) use notification_hub::{ListenerEvent, NotificationHub, NotificationListener};

mod request_handlers;
pub(crate) use request_handlers::{ListWatch, LocalRole};

mod unread_queue;

#[cfg_attr(not(feature = "legacy"), path = "legacy_disabled.rs")]
mod legacy;
#[cfg(all(feature = "legacy", feature = "http-server"))]
pub(crate) use legacy::{MAX_SUBSCRIBED_BYTES, subscribed_bytes};

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use bowline_core::era::{Request, Stamper};
pub use bowline_core::mux::TableSizes;
use bowline_core::mux::{self, CallId, CallRefused, InFlightId, Mux, MuxLimits, NotifyError};
use bowline_core::{Notification, Outcome};
use bowline_types::RequestId;
use tokio::sync::watch;

use crate::exchange::{
    CallOptions, Channel, ConnectionState, Exchange, HandlerControl, OverflowPolicy, Responder,
};
use crate::limits::Account;
use crate::shutdown::Shutdown;
use crate::sync::Mutex;
use crate::telemetry::TransportKind;
use crate::wire::{EngineWire, connection_error};
use crate::{Error, Result};
use call::{CallPauses, Mailbox, WireCall};

/// A handle to the peer at the other end of a duplex wire. Cheap to clone.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<PeerShared>,
}

struct PeerShared {
    state: Mutex<PeerState>,
    stamper: Stamper,
    notification_hub: NotificationHub,
    /// The resource account of the peer.
    account: Arc<Account>,
    /// True once the driver has ended.
    ended: watch::Sender<bool>,
    /// Notifications that were dropped because the peer does not read.
    dropped: AtomicU64,
    connection_state: ConnectionState,
    transport: TransportKind,
}

/// The state under the lock.
struct PeerState {
    mux: Mux,
    /// Outcomes and notifications of pending calls.
    mailboxes: BTreeMap<CallId, Mailbox>,
    /// Requests of the peer whose handlers have ended, for `RequestHandlers::reap`; bounded by the number of handlers.
    finished: Vec<InFlightId>,
    /// Queued answers whose handlers must know whether they are sent (`Context::on_discarded`).
    watched_answers: BTreeMap<InFlightId, HandlerControl>,
    driver: Option<Waker>,
    closing: Option<CloseMode>,
    /// Whether a drain waits for calls that have no request in flight, so that the wire stays open.
    is_held_open: bool,
    failure: Option<Arc<io::Error>>,
    legacy: legacy::RestorableState,
}

/// How the wire is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// Sends queued messages, for at most this long.
    Flush(Duration),
    /// Signals the shutdown to running handlers and waits for them.
    Drain,
}

impl PeerState {
    fn with_pauses_of(&mut self, call: Option<CallId>, change: impl FnOnce(&mut CallPauses, &Mux)) {
        if let Some(mailbox) = call.and_then(|call| self.mailboxes.get_mut(&call)) {
            change(&mut mailbox.pauses, &self.mux);
        }
    }
}

impl Peer {
    /// Creates a handle and its driver, which must be spawned.
    pub(crate) fn new(
        wire: Box<dyn EngineWire>,
        role: LocalRole,
        account: Arc<Account>,
    ) -> (Self, Driver) {
        let limits = account.limits();
        let limits = MuxLimits {
            in_flight: limits.peer_requests,
            queued: limits.output_messages,
            queued_bytes: limits.output_bytes,
        };
        let shared = Arc::new(PeerShared {
            state: Mutex::new(PeerState {
                mux: Mux::new(limits),
                mailboxes: BTreeMap::new(),
                finished: Vec::new(),
                watched_answers: BTreeMap::new(),
                driver: None,
                closing: None,
                is_held_open: false,
                failure: None,
                legacy: legacy::RestorableState::default(),
            }),
            stamper: Stamper::default(),
            notification_hub: NotificationHub::new(account.clone()),
            account,
            ended: watch::Sender::new(false),
            dropped: AtomicU64::new(0),
            connection_state: ConnectionState::default(),
            transport: wire.transport(),
        });
        let peer = Self { shared };
        let driver = Driver::new(wire, peer.clone(), role);
        (peer, driver)
    }

    /// Sends a notification that belongs to no request.
    pub fn notify(&self, notification: Notification) {
        let result = self.with(|state| state.mux.notify(notification));
        if let Err(NotifyError::Full) = result {
            self.log_dropped();
        }
    }

    /// Logs that a notification was dropped: the first, the second, the fourth and so on, since a handler may send
    /// thousands to a peer that does not read.
    fn log_dropped(&self) {
        let dropped = self.shared.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if dropped.is_power_of_two() {
            tracing::warn!(dropped, "output queue full; dropped notifications");
        }
    }

    /// Returns the sizes of the tables and queues; all zero when idle.
    #[must_use]
    pub fn sizes(&self) -> TableSizes {
        self.shared.state.lock().mux.sizes()
    }

    /// Returns whether all tables are empty: calls, requests, mailboxes, listeners.
    #[doc(hidden)]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let state = self.shared.state.lock();
        let tables = state.mux.sizes() == TableSizes::default();
        tables
            && state.mailboxes.is_empty()
            && state.legacy.is_empty()
            && !self.shared.notification_hub.has_listeners()
    }

    /// Sends subscriptions to a legacy server even if it did not declare the capability for them.
    pub(crate) fn skip_capability_check(&self) {
        self.with(|state| state.legacy.skip_capability_check());
    }

    /// Puts a prefix before the number of each request id, for a peer that other engines send requests to as well.
    #[allow(
        dead_code,
        reason = "only legacy clients over HTTP have several engines"
    )]
    pub(crate) fn set_request_id_prefix(&self, prefix: &str) {
        self.with(|state| state.mux.set_request_id_prefix(prefix));
    }

    /// Returns the state of the connection, which handlers share.
    #[allow(
        dead_code,
        reason = "only legacy clients over HTTP are resumed without it"
    )]
    pub(crate) fn connection_state(&self) -> &ConnectionState {
        &self.shared.connection_state
    }

    /// Returns the dispatcher of notifications that belong to no call.
    pub(crate) fn notification_hub(&self) -> &NotificationHub {
        &self.shared.notification_hub
    }

    pub(crate) fn close(&self, how: CloseMode) {
        self.with(|state| {
            state.closing.get_or_insert(how);
        });
    }

    /// Lets running handlers finish, and calls of the responder that wait for their next request. Returns when the driver
    /// has ended, or when the grace period is over: then the rest is counted, and the driver should be dropped. Returns
    /// how many requests the grace period was too short for; `None` if it was long enough.
    ///
    /// # Cancel safety
    ///
    /// Safe: it can be called again.
    pub(crate) async fn drain(
        &self,
        driver: &mut Driver,
        responder: &dyn Responder,
        shutdown: &Shutdown,
    ) -> Option<usize> {
        self.with(|state| state.is_held_open = responder.open_calls() > 0);
        self.close(CloseMode::Drain);
        let release = async {
            while responder.open_calls() > 0 {
                tokio::time::sleep(OPEN_CALLS_CHECK).await;
            }
            self.with(|state| state.is_held_open = false);
            std::future::pending().await
        };
        tokio::select! {
            biased; // an end in time counts
            () = driver => None,
            () = shutdown.closed() => {
                let unfinished = self.sizes().in_flight;
                shutdown.count_cancelled(unfinished);
                Some(unfinished)
            }
            never = release => never,
        }
    }

    /// Waits until the driver has ended.
    ///
    /// # Cancel safety
    ///
    /// Safe: the state is not consumed.
    pub(crate) async fn ended(&self) {
        // Cannot fail: the sender is in `shared`, which `self` keeps alive.
        let _ = self.shared.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Puts something into the mailbox of a call, unless it was abandoned, and wakes the call.
    fn deliver(&self, call: CallId, put: impl FnOnce(&mut Mailbox) -> Option<Waker>) {
        let waker = self
            .shared
            .state
            .lock()
            .mailboxes
            .get_mut(&call)
            .and_then(put);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Returns whether the driver has ended.
    pub(crate) fn has_ended(&self) -> bool {
        *self.shared.ended.borrow()
    }

    fn notify_within(&self, id: &InFlightId, notification: Notification) {
        let result = self.with(|state| state.mux.notify_within(id, notification));
        if let Err(NotifyError::Full) = result {
            self.log_dropped();
        }
    }

    fn respond(&self, id: &InFlightId, outcome: Outcome) {
        self.with(|state| state.mux.respond(id, outcome));
    }

    /// Changes the state, then wakes the driver.
    fn with<T>(&self, change: impl FnOnce(&mut PeerState) -> T) -> T {
        let mut state = self.shared.state.lock();
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
        legacy::remember_log_level(self, &request);
        self.call(&request, options.into()).1
    }
}

impl Peer {
    /// Starts a call. Returns no id if it could not be started.
    fn call(&self, request: &Request, options: mux::CallOptions) -> (Option<CallId>, Exchange) {
        let mailbox = Mailbox::new(OverflowPolicy::of(&request.method));
        match self.start(request, options, Some(mailbox)) {
            Ok((call, id)) => {
                let exchange = Exchange::new(WireCall::new(self.clone(), call, id, request));
                (Some(call), exchange)
            }
            Err(error) => (None, Exchange::failed(error)),
        }
    }

    fn start(
        &self,
        request: &Request,
        mut options: mux::CallOptions,
        mailbox: Option<Mailbox>,
    ) -> Result<(CallId, RequestId)> {
        options.progress_token.clone_from(&request.progress_token);
        let stamped = self.shared.stamper.stamp(request);
        let now = tokio::time::Instant::now();
        let started = self.with(|state| {
            let now_std = now.into_std();
            let call = state
                .mux
                .call(now_std, stamped.method, stamped.params, options)?;
            if let Some(mut mailbox) = mailbox {
                mailbox.pauses = CallPauses::start(now, &state.mux);
                state.mailboxes.insert(call, mailbox);
            }
            let id = state.mux.request_id(call).cloned();
            Ok((call, id.expect("a call that has just begun is pending")))
        });
        started.map_err(|refused| match refused {
            CallRefused::Ended(_) => self.end_error(),
            refused => Error::misuse(refused.to_string()),
        })
    }

    /// Returns the error of calls after the driver has ended.
    pub(crate) fn end_error(&self) -> Error {
        let failure = self.shared.state.lock().failure.clone();
        failure.map_or(Error::Closed, connection_error)
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer")
            .field("sizes", &self.sizes())
            .finish_non_exhaustive()
    }
}

/// The modern method for subscriptions; `legacy` emulates it.
const LISTEN: &str = "subscriptions/listen";
/// How often a wire that drains looks whether calls wait for their next request.
const OPEN_CALLS_CHECK: Duration = Duration::from_millis(10);
