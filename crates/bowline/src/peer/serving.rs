//! Requests of the other side, on their way to a responder and back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bowline_core::era::{
    Admitted, Caller, Dialect, Door, Era, Heard, Rejection, Request, Seal, ServerAsksBy,
    admit_from_server, seal, tell,
};
use bowline_core::mux::{CallOptions, InFlightId};
use bowline_core::{Notification, Outcome, RawRequest};
use bowline_types::{CancelledNotification, CancelledNotificationParams, Json, Notice};
use tokio::task::JoinHandle;

use super::{LISTEN, Peer, legacy};
use crate::exchange::{CancelMode, Channel, Context, Exchange, Outlet, Params, Responder, run};
use crate::limits::Limit;

/// Which side of the protocol this end of the wire is.
pub(crate) enum Role {
    /// Requests come from clients.
    Server {
        door: Door,
        responder: Arc<dyn Responder>,
        /// The server's `Implementation`, encoded.
        identity: Json,
    },
    /// Requests come from a server, in the legacy era only.
    Client {
        /// Who it is, once that is known.
        server: Arc<OnceLock<Arc<Caller>>>,
        host: Arc<dyn Responder>,
    },
}

/// The requests of the other side that are being answered.
pub(super) struct Serving {
    peer: Peer,
    role: Role,
    /// All that are not at their end, those included that were cancelled and run on.
    handlers: BTreeMap<InFlightId, Handler>,
    /// How many of them somebody waits for, and how many of these are subscriptions.
    heard: usize,
    subscriptions: usize,
    /// Kept between turns for its room.
    finished: Vec<InFlightId>,
    /// Whether the host of this client is deciding something that the server waits for.
    host_decides: bool,
    watches: legacy::Watches,
}

struct Handler {
    task: JoinHandle<()>,
    cx: Context,
    is_subscription: bool,
    is_cancelled: bool,
}

impl Serving {
    pub(super) fn new(peer: Peer, role: Role) -> Self {
        Self {
            peer,
            role,
            handlers: BTreeMap::new(),
            heard: 0,
            subscriptions: 0,
            finished: Vec::new(),
            host_decides: false,
            watches: legacy::Watches::default(),
        }
    }

    /// Lets a request in and starts its handler, or answers it at the door.
    pub(super) fn begin(
        &mut self,
        id: InFlightId,
        method: Cow<'static, str>,
        params: Option<Params>,
    ) {
        let raw = RawRequest {
            id: id.request_id().clone(),
            method,
            params,
        };
        match self.role.admit(raw) {
            Ok(Admitted::Request { request, seal }) => self.start(id, request, seal),
            Ok(Admitted::Answer(result)) => self.peer.respond(&id, Ok(result)),
            Ok(Admitted::Watch(uri)) => {
                let max = self.peer.shared.account.limits().peer_subscriptions;
                if !self.watches.has_room_for(&uri, max) {
                    return self.refuse(&id, Limit::PeerSubscriptions, max);
                }
                if let Some((caller, responder)) = self.role.legacy_caller() {
                    self.watches.watch(&self.peer, caller, responder, uri);
                }
                self.peer.respond(&id, Ok(Json::empty_object()));
            }
            Ok(Admitted::Unwatch(uri)) => {
                self.watches.unwatch(&uri);
                self.peer.respond(&id, Ok(Json::empty_object()));
            }
            Err(rejection) => self.peer.respond(&id, Err(rejection.into())),
        }
    }

    /// Sets the log level again that the other side has forgotten.
    pub(super) fn restore_log_level(&mut self) {
        self.watches.restore_log_level(&self.peer);
    }

    /// A cancel for each request that is being answered, as if the other side had sent it.
    pub(super) fn cancels(&self) -> Vec<Notification> {
        let unanswered = self.handlers.iter().filter(|(_, own)| !own.is_cancelled);
        let why = "the server has forgotten its requests";
        unanswered.map(|(id, _)| cancelled(id, why)).collect()
    }

    fn start(&mut self, id: InFlightId, request: Request, form: Seal) {
        let is_subscription = form.method == LISTEN;
        let max = self.peer.shared.account.limits().peer_subscriptions;
        if is_subscription && self.subscriptions >= max {
            return self.refuse(&id, Limit::PeerSubscriptions, max);
        }
        let size = PER_REQUEST + request.params.as_bytes().len();
        let charge = match self.peer.shared.account.request(size) {
            Ok(charge) => charge,
            Err(reached) => return self.peer.respond(&id, Err(reached.into())),
        };
        let (responder, identity) = self.role.responder();
        let outlet = Arc::new(ToPeer {
            peer: self.peer.clone(),
            id: id.clone(),
            dialect: request.caller.dialect,
        });
        let cx = Context::new(id.request_id().clone(), &request, outlet);
        let running = run(responder, request, cx.clone());
        let place = Place {
            peer: self.peer.clone(),
            id: id.clone(),
            has_left: false,
        };
        let task = tokio::spawn(async move {
            let outcome = running.await;
            drop(charge);
            let last_words =
                (is_subscription && outcome.is_ok()).then(|| subscription_ended(&place.id));
            place.leave(seal(&form, &identity, outcome), last_words);
        });
        let is_cancelled = false;
        let handler = Handler {
            task,
            cx,
            is_subscription,
            is_cancelled,
        };
        self.handlers.insert(id, handler);
        self.heard += 1;
        self.subscriptions += usize::from(is_subscription);
        self.watch_host();
    }

    fn refuse(&self, id: &InFlightId, limit: Limit, max: usize) {
        let reached = self.peer.shared.account.meters().refuse(limit, max);
        self.peer.respond(id, Err(reached.into()));
    }

    /// The caller gave up.
    pub(super) fn cancel(&mut self, id: &InFlightId) {
        let Some(handler) = self.handlers.get_mut(id) else {
            return;
        };
        handler.is_cancelled = true;
        self.heard -= 1;
        self.subscriptions -= usize::from(handler.is_subscription);
        handler.cx.cancel();
        if handler.cx.cancel_mode() == CancelMode::Drop {
            handler.task.abort();
        }
        self.watch_host();
    }

    /// A server that waits for the host is silent, and not to blame for it.
    fn watch_host(&mut self) {
        let decides = matches!(self.role, Role::Client { .. }) && self.heard > 0;
        if decides == self.host_decides {
            return;
        }
        self.host_decides = decides;
        let now = tokio::time::Instant::now().into_std();
        self.peer.with(|state| {
            if decides {
                state.mux.pause_idle();
            } else {
                state.mux.resume_idle(now);
            }
        });
    }

    /// Forgets handlers that are at their end.
    pub(super) fn reap(&mut self) {
        let mut finished = std::mem::take(&mut self.finished);
        std::mem::swap(&mut finished, &mut self.peer.shared.lock().finished);
        let any = !finished.is_empty();
        for id in finished.drain(..) {
            let handler = self.handlers.remove(&id);
            if let Some(handler) = handler.filter(|handler| !handler.is_cancelled) {
                self.heard -= 1;
                self.subscriptions -= usize::from(handler.is_subscription);
            }
        }
        self.finished = finished;
        if any {
            self.watch_host();
        }
    }

    pub(super) fn hear(&mut self, notification: &Notification) {
        let Role::Server { door, .. } = &mut self.role else {
            return;
        };
        let heard = door.hear(notification);
        let Some((caller, responder)) = self.role.legacy_caller() else {
            return;
        };
        match heard {
            Heard::Initialized => self.watches.watch_lists(&self.peer, caller, responder),
            Heard::RootsListChanged => responder.roots_changed(&caller),
            Heard::Nothing | Heard::Other => {}
        }
    }

    pub(super) fn is_server(&self) -> bool {
        matches!(self.role, Role::Server { .. })
    }

    pub(super) fn accepts_batches(&self) -> bool {
        match &self.role {
            Role::Server { door, .. } => match door.era() {
                Era::Legacy(opened) => opened.caller().dialect.batches,
                Era::Modern => false,
            },
            Role::Client { server, .. } => {
                server.get().is_some_and(|server| server.dialect.batches)
            }
        }
    }

    /// Returns whether this is a client of a revision without server requests.
    pub(super) fn answers_nothing(&self) -> bool {
        match &self.role {
            Role::Server { .. } => false,
            Role::Client { server, .. } => {
                let server = server.get();
                server.is_some_and(|server| server.dialect.server_asks_by != ServerAsksBy::Request)
            }
        }
    }

    /// Nothing new will come: what would go on for ever ends by itself.
    pub(super) fn shut_down(&mut self) {
        self.watches.clear();
        self.handlers
            .values()
            .for_each(|handler| handler.cx.shut_down());
    }

    /// Drops every handler, and tells those that cannot be dropped.
    pub(super) fn stop(&mut self) {
        self.watches.clear();
        (self.heard, self.subscriptions) = (0, 0);
        for handler in std::mem::take(&mut self.handlers).into_values() {
            handler.cx.cancel();
            handler.task.abort();
        }
    }
}

impl Role {
    fn admit(&mut self, raw: RawRequest) -> Result<Admitted, Rejection> {
        match self {
            Self::Server { door, .. } => door.admit(raw),
            Self::Client { server, .. } => {
                let unknown = || Arc::new(Caller::new(Dialect::LATEST_LEGACY));
                admit_from_server(&server.get().cloned().unwrap_or_else(unknown), raw)
            }
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

    /// Who is there in the legacy era, if `initialize` was heard.
    fn legacy_caller(&self) -> Option<(Arc<Caller>, Arc<dyn Responder>)> {
        match self {
            Self::Server {
                door, responder, ..
            } => match door.era() {
                Era::Legacy(opened) => Some((opened.caller().clone(), responder.clone())),
                Era::Modern => None,
            },
            Self::Client { .. } => None,
        }
    }
}

/// Where a handler is at work, until it leaves: with an answer, or because its task is dropped.
struct Place {
    peer: Peer,
    id: InFlightId,
    has_left: bool,
}

impl Place {
    fn leave(mut self, outcome: Outcome, last_words: Option<Notification>) {
        self.has_left = true;
        self.peer.with(|state| {
            state.mux.respond(&self.id, outcome);
            state.finished.push(self.id.clone());
        });
        last_words
            .into_iter()
            .for_each(|words| self.peer.notify(words));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.has_left {
            self.peer.with(|state| state.finished.push(self.id.clone()));
        }
    }
}

/// Onto the wire that the request came over.
struct ToPeer {
    peer: Peer,
    id: InFlightId,
    dialect: &'static Dialect,
}

impl Outlet for ToPeer {
    fn notify(&self, notification: Notification) {
        if let Some(notification) = tell(self.dialect, notification) {
            self.peer.notify_within(&self.id, notification);
        }
    }

    fn way_back(&self) -> Option<Arc<dyn Channel>> {
        let within = || Within {
            peer: self.peer.clone(),
            id: self.id.clone(),
        };
        (self.dialect.server_asks_by == ServerAsksBy::Request).then(|| Arc::new(within()) as _)
    }
}

/// The way back to the caller of one request.
struct Within {
    peer: Peer,
    id: InFlightId,
}

impl Channel for Within {
    fn open(&self, request: Request, mut options: CallOptions) -> Exchange {
        options.within = Some(self.id.clone());
        self.peer.open(request, options)
    }
}

/// A server that ends a subscription on a shared wire sends the result, then this.
fn subscription_ended(id: &InFlightId) -> Notification {
    cancelled(id, "the subscription ended")
}

fn cancelled(id: &InFlightId, reason: &str) -> Notification {
    let params = CancelledNotificationParams::new(id.request_id().clone()).with_reason(reason);
    let params = Json::encode(&params).ok();
    Notification::new(CancelledNotification::NAME, params)
}

/// What the state of a request takes up: its task, its context, its places in tables.
const PER_REQUEST: usize = 2048;

#[cfg(test)]
mod tests {
    use bowline_core::Message;
    use bowline_core::era::{Dialects, Offers, stamp};
    use bowline_core::mux::Event;

    use super::*;
    use crate::exchange::BoxFuture;
    use crate::limits::{Account, Limits};

    struct Quick;

    impl Responder for Quick {
        fn respond<'a>(&'a self, _: Request, _: Context) -> BoxFuture<'a, Outcome> {
            Box::pin(async { Ok(Json::empty_object()) })
        }

        fn roots_changed(&self, _: &Caller) {}
    }

    fn role() -> Role {
        Role::Server {
            door: Door::new(Dialects::all(), Offers::default()),
            responder: Arc::new(Quick),
            identity: Json::empty_object(),
        }
    }

    #[tokio::test]
    async fn a_handler_that_is_done_is_forgotten() {
        let account = Account::total(Limits::default()).peer();
        let (peer, _driver) = Peer::new(Box::new(crate::wire::memory().0), role(), account);
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
        let Some(Event::Request { id, method, params }) = arrived else {
            panic!("expected a request, saw {arrived:?}");
        };
        let mut serving = Serving::new(peer, role());
        serving.begin(id, method, params);
        assert_eq!((serving.handlers.len(), serving.heard), (1, 1));

        while serving.peer.sizes().in_flight > 0 {
            tokio::task::yield_now().await;
        }
        serving.reap();

        assert!(serving.handlers.is_empty());
        assert_eq!(serving.heard, 0);
    }
}
