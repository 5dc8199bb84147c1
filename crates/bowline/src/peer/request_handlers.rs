//! [`RequestHandlers`], which runs the handlers of the peer's requests for a [`Driver`](super::Driver).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bowline_core::drain::continues_work;
use bowline_core::era::{
    Caller, Dialect, DuplexAdmission, Era, InputMechanism, NotificationAction, Rejection, Request,
    RequestAction, Seal, admit_from_server, convert_notification, seal,
};
use bowline_core::mux::{self, InFlightId};
use bowline_core::{Notification, Outcome, RawRequest};
use bowline_types::{
    CancelledNotification, CancelledNotificationParams, Json, NotificationMethod, RequestId,
    RpcError,
};
use tokio::task::JoinHandle;

use super::{LISTEN, Peer, legacy};
use crate::exchange::{
    CONNECTION_ENDED, CallOptions, CancelMode, Channel, ConnectionState, Context, Exchange,
    HandlerControl, NotificationSink, NotifiedContext, Params, Responder, run_handler,
};
use crate::limits::{Charge, ChargeKind, Limit, LimitReached};
use crate::shutdown::Shutdown;
use crate::telemetry::names::error_type;
use crate::telemetry::{Configured, LegacyTimer, TransportKind, deliver_notification};

/// The side of the protocol that this end of the wire has.
pub(crate) enum LocalRole {
    /// A server; requests come from a client.
    Server {
        admission: DuplexAdmission,
        responder: Arc<dyn Responder>,
        /// The server's `Implementation`, encoded.
        identity: Json,
        list_watch: ListWatch,
        shutdown: Shutdown,
    },
    /// A client; requests come from a server, in the legacy era only.
    Client {
        /// The server, once the version is negotiated.
        server: Arc<OnceLock<Arc<Caller>>>,
        host: Arc<dyn Responder>,
    },
}

/// When a server starts to watch its lists for a legacy client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(dead_code, reason = "only legacy clients over HTTP use the second")]
pub(crate) enum ListWatch {
    /// When the client has sent `notifications/initialized`.
    #[default]
    OnInitialized,
    /// At [`WireEvent::ListenerAttached`](crate::wire::WireEvent): the handshake may have been with another process.
    OnAttached,
}

/// The running handlers of the peer's requests.
pub(super) struct RequestHandlers {
    peer: Peer,
    role: LocalRole,
    /// All handlers that have not ended, including cancelled ones that run on (`CancelMode::Signal`).
    handlers: BTreeMap<InFlightId, HandlerTask>,
    /// The number of handlers that are not cancelled.
    active: usize,
    /// How many of these are subscriptions.
    subscriptions: usize,
    /// A buffer that is reused between turns.
    finished: Vec<InFlightId>,
    /// Whether the server waits for the host of this client, so that the timeouts of our calls are paused.
    is_paused: bool,
    legacy_subscriptions: legacy::LegacySubscriptions,
    legacy_timer: LegacyTimer,
    /// The charge of the caller that the last `initialize` described.
    caller: Charge,
}

struct HandlerTask {
    task: JoinHandle<()>,
    cx: Context,
    is_subscription: bool,
    is_cancelled: bool,
}

impl RequestHandlers {
    pub(super) fn new(peer: Peer, role: LocalRole) -> Self {
        Self {
            caller: peer.shared.account.empty_charge(ChargeKind::Kept),
            peer,
            role,
            handlers: BTreeMap::new(),
            active: 0,
            subscriptions: 0,
            finished: Vec::new(),
            is_paused: false,
            legacy_subscriptions: legacy::LegacySubscriptions::default(),
            legacy_timer: LegacyTimer::default(),
        }
    }

    /// Admits a request and starts its handler, or answers it directly. `within` is the request of ours that the peer
    /// sent it for.
    pub(super) fn begin(
        &mut self,
        id: InFlightId,
        method: Cow<'static, str>,
        params: Option<Params>,
        within: Option<RequestId>,
    ) {
        if let Some(refusal) = self.role.drain_refusal(&method, params.as_ref()) {
            return self.peer.respond(&id, Err(refusal));
        }
        let raw = RawRequest {
            id: id.request_id().clone(),
            method,
            params,
        };
        let before = self.role.before_initialize(&raw);
        match self.role.admit(raw) {
            Ok(RequestAction::Dispatch { request, seal }) => {
                let Some(before) = before else {
                    self.start(id, request, seal, within);
                    return;
                };
                match self.charge_caller(&request.caller) {
                    Ok(charge) => {
                        let charge_before = std::mem::replace(&mut self.caller, charge);
                        if !self.start(id, request, seal, within) {
                            self.caller = charge_before;
                            self.role.restore(before);
                        }
                    }
                    Err(reached) => {
                        self.role.restore(before);
                        self.peer.respond(&id, Err(reached.into()));
                    }
                }
            }
            Ok(RequestAction::Respond(result)) => self.peer.respond(&id, Ok(result)),
            Ok(RequestAction::SubscribeResource(uri)) => {
                let account = &self.peer.shared.account;
                let caller_bytes = self.caller.bytes();
                let charge = self
                    .legacy_subscriptions
                    .charge(&uri, account, caller_bytes);
                let charge = match charge {
                    Ok(charge) => charge,
                    Err(refusal) => return self.peer.respond(&id, Err(refusal)),
                };
                if let Some((caller, responder)) = self.role.legacy_caller() {
                    let subscriptions = &mut self.legacy_subscriptions;
                    subscriptions.subscribe(&self.peer, caller, responder, uri, id, charge);
                }
            }
            Ok(RequestAction::UnsubscribeResource(uri)) => {
                self.legacy_subscriptions.unsubscribe(&uri);
                self.peer.respond(&id, Ok(Json::empty_object()));
            }
            Err(rejection) => self.peer.respond(&id, Err(rejection.into())),
        }
    }

    /// Charges the caller that an `initialize` describes.
    fn charge_caller(&self, caller: &Caller) -> Result<Charge, LimitReached> {
        let bytes = caller.estimated_memory().saturating_sub(FREE_CALLER_BYTES);
        self.peer.shared.account.charge_kept(bytes)
    }

    /// Sends `logging/setLevel` again after the server was reset.
    pub(super) fn restore_log_level(&mut self) {
        self.legacy_subscriptions.restore_log_level(&self.peer);
    }

    /// Returns a `notifications/cancelled` for each running request, as if the peer had sent it.
    pub(super) fn cancel_notifications(&self) -> Vec<Notification> {
        let unanswered = self.handlers.iter().filter(|(_, own)| !own.is_cancelled);
        let why = "the server was reset";
        unanswered.map(|(id, _)| cancelled(id, why)).collect()
    }

    /// Starts the handler of a request; returns `false` if it was refused for lack of room.
    fn start(
        &mut self,
        id: InFlightId,
        request: Request,
        form: Seal,
        within: Option<RequestId>,
    ) -> bool {
        let is_subscription = form.method == LISTEN;
        let max = self.peer.shared.account.limits().peer_subscriptions;
        if is_subscription && self.subscriptions >= max {
            self.refuse(&id, Limit::PeerSubscriptions, max);
            return false;
        }
        // A later `initialize` may replace the caller while the request runs.
        let size = PER_REQUEST + request.params.as_bytes().len() + self.caller.bytes();
        let charge = match self.peer.shared.account.charge_request(size) {
            Ok(charge) => charge,
            Err(reached) => {
                self.peer.respond(&id, Err(reached.into()));
                return false;
            }
        };
        let (responder, identity) = self.role.responder();
        if self.is_server() {
            self.legacy_timer.start_server(
                || Configured::of(&*responder),
                request.caller.dialect,
                self.peer.shared.transport,
            );
        }
        let sink = Arc::new(WireSink {
            peer: self.peer.clone(),
            id: id.clone(),
            dialect: request.caller.dialect,
            // A client's request is not caused by one of the server.
            within: within.filter(|_| !self.is_server()),
        });
        let cx = Context::new(id.request_id().clone(), &request, sink);
        let mut running = run_handler(responder, request, cx.clone());
        let guard = FinishGuard {
            peer: self.peer.clone(),
            id: id.clone(),
            is_finished: false,
        };
        let task = tokio::spawn(async move {
            let outcome = (&mut running).await;
            drop(charge);
            let notification =
                (is_subscription && outcome.is_ok()).then(|| subscription_ended(&guard.id));
            let was_ok = outcome.is_ok();
            let sealed = seal(&form, &identity, outcome);
            let control = running.control();
            // Sealing replaces a result that the revision does not allow with an error.
            let is_kept = sealed.is_ok() == was_ok;
            if !(guard.finish(sealed, notification, control) && is_kept) {
                control.answer_discarded();
            }
        });
        let is_cancelled = false;
        let handler = HandlerTask {
            task,
            cx,
            is_subscription,
            is_cancelled,
        };
        self.handlers.insert(id, handler);
        self.active += 1;
        self.subscriptions += usize::from(is_subscription);
        self.update_pause();
        true
    }

    fn refuse(&self, id: &InFlightId, limit: Limit, max: usize) {
        let reached = self.peer.shared.account.counters().refuse(limit, max);
        self.peer.respond(id, Err(reached.into()));
    }

    /// Cancels the handler of a request, or discards its answer, which was withdrawn.
    pub(super) fn cancel(&mut self, id: &InFlightId, reason: Option<String>) {
        let watched = self.peer.shared.state.lock().watched_answers.remove(id);
        watched.iter().for_each(HandlerControl::answer_discarded);
        let Some(handler) = self.handlers.get_mut(id) else {
            return;
        };
        handler.is_cancelled = true;
        self.active -= 1;
        self.subscriptions -= usize::from(handler.is_subscription);
        handler.cx.set_cancel_reason(reason);
        // Cancels before it reads the mode; see `Context::set_cancel_mode`.
        handler.cx.cancel();
        if handler.cx.cancel_mode() == CancelMode::Drop {
            handler.task.abort();
        }
        self.update_pause();
    }

    /// Pauses the timeouts of our calls while the server waits for our host, which the user may have to answer.
    fn update_pause(&mut self) {
        let pauses = matches!(self.role, LocalRole::Client { .. }) && self.active > 0;
        if pauses == self.is_paused {
            return;
        }
        self.is_paused = pauses;
        let now = tokio::time::Instant::now().into_std();
        self.peer.with(|state| {
            if pauses {
                state.mux.pause_all_deadlines(now);
            } else {
                state.mux.resume_all_deadlines(now);
            }
        });
    }

    /// Removes handlers that have ended.
    pub(super) fn reap(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        std::mem::swap(&mut finished, &mut self.peer.shared.state.lock().finished);
        let any = !finished.is_empty();
        for id in finished.drain(..) {
            let handler = self.handlers.remove(&id);
            if let Some(handler) = handler.filter(|handler| !handler.is_cancelled) {
                self.active -= 1;
                self.subscriptions -= usize::from(handler.is_subscription);
            }
        }
        self.finished = finished;
        if any {
            self.update_pause();
        }
    }

    pub(super) fn handle_notification(&mut self, notification: &Notification) {
        let LocalRole::Server {
            admission,
            responder,
            list_watch,
            ..
        } = &mut self.role
        else {
            return;
        };
        match admission.handle_notification(notification) {
            NotificationAction::Initialized if *list_watch == ListWatch::OnInitialized => {
                self.watch_lists(false);
            }
            NotificationAction::Initialized => {}
            NotificationAction::Dispatch(caller) => {
                let state = self.peer.shared.connection_state.clone();
                let cx = NotifiedContext::new(caller).with_connection_state(state);
                let transport = self.peer.shared.transport;
                deliver_notification(&**responder, notification, &cx, transport);
            }
            NotificationAction::Ignore => {}
        }
    }

    /// Starts to send a legacy client notifications when a list changes. After a gap, sends all of them once.
    pub(super) fn watch_lists(&mut self, is_after_gap: bool) {
        if let Some((caller, responder)) = self.role.legacy_caller() {
            self.legacy_subscriptions
                .subscribe_lists(&self.peer, caller, responder, is_after_gap);
        }
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(self.role, LocalRole::Server { .. })
    }

    pub(super) fn accepts_batches(&self) -> bool {
        match &self.role {
            LocalRole::Server { admission, .. } => match admission.era() {
                Era::Legacy(opened) => opened.caller().dialect.batches,
                Era::Modern => false,
            },
            LocalRole::Client { server, .. } => {
                server.get().is_some_and(|server| server.dialect.batches)
            }
        }
    }

    /// Returns whether this is a client of a revision without server requests.
    pub(super) fn ignores_requests(&self) -> bool {
        match &self.role {
            LocalRole::Server { .. } => false,
            LocalRole::Client { server, .. } => {
                let server = server.get();
                server
                    .is_some_and(|server| server.dialect.input_mechanism != InputMechanism::Request)
            }
        }
    }

    /// Signals the shutdown to all handlers, so that subscriptions end.
    pub(super) fn shut_down(&mut self) {
        self.legacy_subscriptions.clear();
        self.handlers
            .values()
            .for_each(|handler| handler.cx.shut_down());
    }

    /// Drops every handler and cancels its context, for synchronous handlers, which cannot be dropped.
    pub(super) fn stop(&mut self) {
        if self.peer.shared.state.lock().failure.is_some() {
            self.legacy_timer.set_error(error_type::TRANSPORT);
        }
        self.legacy_timer = LegacyTimer::default();
        self.legacy_subscriptions.clear();
        (self.active, self.subscriptions) = (0, 0);
        for handler in std::mem::take(&mut self.handlers).into_values() {
            handler
                .cx
                .set_cancel_reason(Some(CONNECTION_ENDED.to_owned()));
            handler.cx.cancel();
            handler.task.abort();
        }
        let unsent = std::mem::take(&mut self.peer.shared.state.lock().watched_answers);
        unsent.values().for_each(HandlerControl::answer_discarded);
    }
}

impl LocalRole {
    /// Returns the error of a request that is refused because this server drains.
    fn drain_refusal(&self, method: &str, params: Option<&Params>) -> Option<RpcError> {
        match self {
            Self::Server { shutdown, .. } if shutdown.is_refusing() => {
                (!continues_work(method, params)).then(|| shutdown.refuse())
            }
            Self::Server { .. } | Self::Client { .. } => None,
        }
    }

    fn admit(&mut self, raw: RawRequest) -> Result<RequestAction, Rejection> {
        match self {
            Self::Server { admission, .. } => admission.admit(raw),
            Self::Client { server, .. } => {
                let unknown = || Arc::new(Caller::new(Dialect::LATEST_LEGACY));
                admit_from_server(&server.get().cloned().unwrap_or_else(unknown), raw)
            }
        }
    }

    /// Returns the state to return to if the caller of this `initialize` cannot be kept.
    fn before_initialize(&self, raw: &RawRequest) -> Option<DuplexAdmission> {
        match self {
            Self::Server { admission, .. } if raw.method == INITIALIZE => Some(admission.clone()),
            Self::Server { .. } | Self::Client { .. } => None,
        }
    }

    fn restore(&mut self, before: DuplexAdmission) {
        if let Self::Server { admission, .. } = self {
            *admission = before;
        }
    }

    fn responder(&self) -> (Arc<dyn Responder>, Json) {
        match self {
            Self::Server {
                responder,
                identity,
                ..
            } => (responder.clone(), identity.clone()),
            Self::Client { host, .. } => (host.clone(), Json::empty_object()),
        }
    }

    /// Returns the client of the legacy era, if `initialize` was received.
    fn legacy_caller(&self) -> Option<(Arc<Caller>, Arc<dyn Responder>)> {
        match self {
            Self::Server {
                admission,
                responder,
                ..
            } => match admission.era() {
                Era::Legacy(opened) => Some((opened.caller().clone(), responder.clone())),
                Era::Modern => None,
            },
            Self::Client { .. } => None,
        }
    }
}

/// A guard in a handler's task that adds its request to `PeerState::finished`, also if the task is dropped.
struct FinishGuard {
    peer: Peer,
    id: InFlightId,
    is_finished: bool,
}

impl FinishGuard {
    /// Queues the answer, and a notification after it. Returns whether the answer was queued.
    fn finish(
        mut self,
        outcome: Outcome,
        notification: Option<Notification>,
        control: &HandlerControl,
    ) -> bool {
        self.is_finished = true;
        let is_queued = self.peer.with(|state| {
            state.finished.push(self.id.clone());
            let is_queued = state.mux.respond(&self.id, outcome);
            // In the same lock: the driver may send the answer, or withdraw it, as soon as the lock is released.
            if is_queued && control.watches_answer() {
                state
                    .watched_answers
                    .insert(self.id.clone(), control.clone());
            }
            is_queued
        });
        notification
            .into_iter()
            .for_each(|notification| self.peer.notify(notification));
        is_queued
    }
}

impl Drop for FinishGuard {
    fn drop(&mut self) {
        if !self.is_finished {
            self.peer.with(|state| state.finished.push(self.id.clone()));
        }
    }
}

/// The [`NotificationSink`] of a handler: the wire on which the request was received.
struct WireSink {
    peer: Peer,
    id: InFlightId,
    dialect: &'static Dialect,
    within: Option<RequestId>,
}

impl NotificationSink for WireSink {
    fn notify(&self, notification: Notification) {
        if let Some(notification) = convert_notification(self.dialect, notification) {
            self.peer.notify_within(&self.id, notification);
        }
    }

    fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        let channel = || RequestChannel {
            peer: self.peer.clone(),
            id: self.id.clone(),
        };
        (self.dialect.input_mechanism == InputMechanism::Request).then(|| Arc::new(channel()) as _)
    }

    fn connection_state(&self) -> Option<&ConnectionState> {
        Some(&self.peer.shared.connection_state)
    }

    fn within(&self) -> Option<&RequestId> {
        self.within.as_ref()
    }

    fn transport(&self) -> TransportKind {
        self.peer.shared.transport
    }
}

/// The channel for server-to-client requests of one handler. They are associated with its request, because Streamable
/// HTTP sends them on the stream of that request.
struct RequestChannel {
    peer: Peer,
    id: InFlightId,
}

impl Channel for RequestChannel {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        let options = mux::CallOptions {
            within: Some(self.id.clone()),
            ..options.into()
        };
        self.peer.call(&request, options).1
    }
}

/// Returns the `notifications/cancelled` that a server sends after the result of a subscription that it ended.
fn subscription_ended(id: &InFlightId) -> Notification {
    cancelled(id, "subscription ended")
}

fn cancelled(id: &InFlightId, reason: &str) -> Notification {
    let params = CancelledNotificationParams::new(id.request_id().clone()).with_reason(reason);
    let params = Json::encode(&params).ok();
    Notification::new(CancelledNotification::NAME, params)
}

/// The estimated memory of a running request besides its params: task, context, table entries.
const PER_REQUEST: usize = 2048;
/// The estimated memory of a caller that is not charged. What real clients send is less, and each connection needs
/// more than that.
const FREE_CALLER_BYTES: usize = 4096;
const INITIALIZE: &str = "initialize";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bowline_core::Message;
    use bowline_core::era::{Dialects, stamp};
    use bowline_core::mux::MuxEvent;

    use super::*;
    use crate::limits::{Account, Limits};
    use crate::peer::Driver;

    async fn respond_empty(_: Request, _: Context) -> Outcome {
        Ok(Json::empty_object())
    }

    fn role() -> LocalRole {
        LocalRole::Server {
            admission: DuplexAdmission::new(Dialects::all()),
            responder: Arc::new(respond_empty),
            identity: Json::empty_object(),
            list_watch: ListWatch::default(),
            shutdown: Shutdown::default(),
        }
    }

    /// Starts the handler of a request. The driver is never polled, so its answer stays queued.
    fn begin(role: impl Fn() -> LocalRole) -> (RequestHandlers, Driver) {
        let account = Account::total(Limits::default()).peer();
        let (peer, driver) = Peer::new(Box::new(crate::wire::memory().0), role(), account);
        let request = Request::new(
            "quick",
            Json::empty_object(),
            Arc::new(Caller::new(Dialect::LATEST)),
        );
        let message = Message::from(stamp(&request).with_id(1));
        let arrived = peer.with(|state| {
            state.mux.handle_message(std::time::Instant::now(), message);
            state.mux.poll_event()
        });
        let Some(MuxEvent::Request {
            id, method, params, ..
        }) = arrived
        else {
            panic!("expected a request, saw {arrived:?}");
        };
        let mut handlers = RequestHandlers::new(peer, role());
        handlers.begin(id, method, params, None);
        assert_eq!((handlers.handlers.len(), handlers.active), (1, 1));
        (handlers, driver)
    }

    async fn answered(handlers: &RequestHandlers) {
        while handlers.peer.sizes().in_flight > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_finished_handler_is_removed() {
        let (mut handlers, _driver) = begin(role);

        answered(&handlers).await;
        handlers.reap();

        assert!(handlers.handlers.is_empty());
        assert_eq!(handlers.active, 0);
    }

    /// A role whose handler counts its discarded answers.
    fn counting_role(discarded: &Arc<AtomicUsize>) -> LocalRole {
        let discarded = discarded.clone();
        let respond = move |_: Request, cx: Context| {
            let discarded = discarded.clone();
            cx.on_discarded(move || {
                discarded.fetch_add(1, Ordering::SeqCst);
            });
            async { Outcome::Ok(Json::empty_object()) }
        };
        LocalRole::Server {
            admission: DuplexAdmission::new(Dialects::all()),
            responder: Arc::new(respond),
            identity: Json::empty_object(),
            list_watch: ListWatch::default(),
            shutdown: Shutdown::default(),
        }
    }

    #[tokio::test]
    async fn an_answer_that_a_cancel_withdraws_from_the_queue_is_discarded() {
        let discarded = Arc::new(AtomicUsize::new(0));
        let (mut handlers, _driver) = begin(|| counting_role(&discarded));
        answered(&handlers).await;
        assert_eq!(discarded.load(Ordering::SeqCst), 0);

        let cancel = Notification::new(
            CancelledNotification::NAME,
            Json::encode(&CancelledNotificationParams::new(RequestId::from(1))).ok(),
        );
        let event = handlers.peer.with(|state| {
            state
                .mux
                .handle_message(std::time::Instant::now(), Message::from(cancel));
            state.mux.poll_event()
        });
        let Some(MuxEvent::Cancelled { id, .. }) = event else {
            panic!("expected a cancel, saw {event:?}");
        };
        handlers.cancel(&id, None);

        assert_eq!(discarded.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn an_answer_that_is_queued_when_the_wire_ends_is_discarded() {
        let discarded = Arc::new(AtomicUsize::new(0));
        let (mut handlers, _driver) = begin(|| counting_role(&discarded));
        answered(&handlers).await;

        handlers.stop();

        assert_eq!(discarded.load(Ordering::SeqCst), 1);
    }
}
