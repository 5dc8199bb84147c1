//! The sessions of one service: the table of published sessions, eviction at the limits, and the driver tasks.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bowline_core::era::{DuplexAdmission, Request};
use bowline_core::http::admission::HttpRejection;
use bowline_core::{Notification, Outcome};
use tokio::task::AbortHandle;

use super::Legacy;
use super::event_pool::EventPool;
use super::eviction::EvictionCandidates;
use super::session::{Session, SessionWire, session_not_found};
use super::session_state::SessionTimeouts;
use super::streams::{SessionStreams, StreamLayout};
use crate::exchange::{BoxFuture, Context, NotifiedContext, Params, Principal, Responder};
use crate::http::server::{ServiceState, overloaded, unavailable};
use crate::limits::{Gauge, Limit, UsageCounters};
use crate::peer::{Driver, LocalRole, Peer};
use crate::random;
use crate::shutdown::Shutdown;
use crate::sync::Mutex;
use crate::telemetry::{Telemetry, record_session_id};

/// All published sessions, by id. Dropping it ends them.
#[derive(Default)]
pub(super) struct Sessions {
    table: Mutex<SessionTable>,
    pool: Arc<EventPool>,
}

#[derive(Default)]
struct SessionTable {
    by_id: BTreeMap<String, RunningSession>,
    /// The sessions to evict next at `Limits::sessions`.
    candidates: EvictionCandidates,
    /// The sessions of each named principal.
    principals: BTreeMap<String, PrincipalSessions>,
}

#[derive(Default)]
struct PrincipalSessions {
    sessions: BTreeMap<String, Arc<Session>>,
    candidates: EvictionCandidates,
}

/// A session and the task that drives it. Dropping it aborts the task, which ends the session.
pub(super) struct RunningSession {
    pub(super) session: Arc<Session>,
    task: AbortHandle,
    /// The counters that count it, once it is published.
    counted: Option<Arc<UsageCounters>>,
}

impl RunningSession {
    pub(super) fn new(session: Arc<Session>, task: AbortHandle) -> Self {
        Self {
            session,
            task,
            counted: None,
        }
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(counters) = &self.counted {
            let open = counters.gauge(Gauge::Sessions);
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Sessions {
    #[cfg(test)]
    pub(super) fn pool(&self) -> &Arc<EventPool> {
        &self.pool
    }

    /// Starts a session that is not published: [`find`](Self::find) does not return it. Dropping the result ends it.
    pub(super) fn start(
        self: &Arc<Self>,
        state: &ServiceState,
        legacy: &Legacy,
        layout: StreamLayout,
        principal: Principal,
    ) -> Result<RunningSession, HttpRejection> {
        if state.shutdown.is_refusing() {
            return Err(state.refusal());
        }
        let account = state.account.principal(principal.name()).peer();
        let streams = SessionStreams::new(layout, legacy.store(&account), account.clone());
        let id = new_session_id()?;
        let session = Session::new(id, principal, layout, streams, account.clone(), &self.pool);
        let served = match layout {
            StreamLayout::StreamableHttp => state.served.clone(),
            // No modern version has this transport. A client that probes for one gets the served versions.
            StreamLayout::HttpSse => state.served.without_modern(),
        };
        let role = LocalRole::Server {
            admission: DuplexAdmission::new(served),
            responder: Arc::new(PrincipalResponder {
                session: session.clone(),
                responder: state.responder.clone(),
            }),
            identity: state.identity.clone(),
            shutdown: state.shutdown.clone(),
        };
        let wire = Box::new(SessionWire::new(session.clone()));
        let (peer, driver) = Peer::new(wire, role, account);
        let (shutdown, timeouts) = (state.shutdown.clone(), legacy.timeouts());
        let table = Arc::downgrade(self);
        // Boxed, because a future stores its arguments twice (as captured and as used), and there may be thousands.
        let driver = Box::new(driver);
        let drain = SessionDrain {
            shutdown,
            responder: state.responder.clone(),
        };
        let driving = drive_session(session.clone(), peer, driver, drain, timeouts, table);
        let task = tokio::spawn(driving);
        Ok(RunningSession::new(session, task.abort_handle()))
    }

    /// Adds a session to the table. At a limit, ends the longest idle session: one of the same principal if that is at
    /// `Limits::principal_sessions`.
    pub(super) fn publish(&self, mut running: RunningSession) -> Result<(), HttpRejection> {
        let session = running.session.clone();
        let (limits, counters) = (session.account.limits(), session.account.counters());
        let name = session.principal.name();
        for (limit, max) in [
            (Limit::Sessions, limits.sessions),
            (Limit::PrincipalSessions, limits.principal_sessions),
        ] {
            let applies = limit == Limit::Sessions || name.is_some();
            if applies && max == 0 {
                return Err(overloaded(counters.refuse(limit, max)));
            }
        }
        counters
            .gauge(Gauge::Sessions)
            .fetch_add(1, Ordering::Relaxed);
        running.counted = Some(counters.clone());
        let mut table = self.table.lock();
        let mut ended = Vec::new();
        if let Some(name) = name
            && let Some(own) = table.pop_principal_excess(name, limits.principal_sessions)
        {
            counters.refuse(Limit::PrincipalSessions, limits.principal_sessions);
            ended.push(own);
        }
        while table.by_id.len() >= limits.sessions
            && let Some(longest_idle) = table.pop_longest_idle()
        {
            counters.refuse(Limit::Sessions, limits.sessions);
            ended.push(longest_idle);
        }
        table.insert(running);
        drop(table);
        if !ended.is_empty() {
            tracing::debug!("ended the longest idle session to open another");
        }
        Ok(())
    }

    /// Returns the session with this id. The session of another principal counts as not found.
    pub(super) fn find(
        &self,
        id: &str,
        principal: &Principal,
    ) -> Result<Arc<Session>, HttpRejection> {
        let found = self
            .table
            .lock()
            .by_id
            .get(id)
            .map(|running| running.session.clone());
        found
            .filter(|session| session.principal == *principal)
            .ok_or_else(session_not_found)
    }

    /// Removes a session from the table. Dropping the result ends it.
    pub(super) fn remove(&self, id: &str) -> Option<RunningSession> {
        self.table.lock().remove(id)
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().by_id.len()
    }
}

impl SessionTable {
    fn insert(&mut self, running: RunningSession) {
        let session = running.session.clone();
        let id = session.id.clone();
        if let Some(name) = session.principal.name() {
            let own = self.principals.entry(name.to_owned()).or_default();
            let (sessions, candidates) = (&mut own.sessions, &mut own.candidates);
            sessions.insert(id.clone(), session.clone());
            candidates.add(id.clone(), sessions.len(), |id| sessions.get(id));
        }
        self.by_id.insert(id.clone(), running);
        let find = |id: &str| self.by_id.get(id).map(|running| &running.session);
        self.candidates.add(id, self.by_id.len(), find);
    }

    fn remove(&mut self, id: &str) -> Option<RunningSession> {
        let running = self.by_id.remove(id)?;
        if let Some(name) = running.session.principal.name()
            && let Some(own) = self.principals.get_mut(name)
        {
            own.sessions.remove(id);
            if own.sessions.is_empty() {
                self.principals.remove(name);
            }
        }
        Some(running)
    }

    fn pop_longest_idle(&mut self) -> Option<RunningSession> {
        let sessions = || self.by_id.values().map(|running| &running.session);
        let find = |id: &str| self.by_id.get(id).map(|running| &running.session);
        let id = self.candidates.pop(find, sessions)?;
        self.remove(&id)
    }

    /// Removes the longest idle session of a principal that has `max` or more.
    fn pop_principal_excess(&mut self, name: &str, max: usize) -> Option<RunningSession> {
        let own = self.principals.get_mut(name)?;
        if own.sessions.len() < max {
            return None;
        }
        let sessions = &own.sessions;
        let id = own
            .candidates
            .pop(|id| sessions.get(id), || sessions.values())?;
        self.remove(&id)
    }
}

/// What a session needs when the server drains.
struct SessionDrain {
    shutdown: Shutdown,
    responder: Arc<dyn Responder>,
}

/// Drives a session until the driver is done, the client was absent for too long, or the server has shut down. Then
/// removes it from the table.
async fn drive_session(
    session: Arc<Session>,
    peer: Peer,
    mut driver: Box<Driver>,
    drain: SessionDrain,
    timeouts: SessionTimeouts,
    table: Weak<Sessions>,
) {
    let drains = tokio::select! {
        biased;
        () = &mut driver => false,
        () = session.until_expired(timeouts) => false,
        () = drain.shutdown.refusing() => true,
    };
    if drains {
        let (responder, shutdown) = (&*drain.responder, &drain.shutdown);
        // Boxed, because few sessions see a drain, and all of them have space for it.
        Box::pin(peer.drain(&mut driver, responder, shutdown)).await;
    }
    drop((driver, peer));
    if let Some(table) = table.upgrade() {
        drop(table.remove(&session.id));
    }
}

/// Wraps a responder, giving each request the principal and the head of its own POST.
struct PrincipalResponder {
    session: Arc<Session>,
    responder: Arc<dyn Responder>,
}

impl Responder for PrincipalResponder {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        record_session_id(&self.session.id);
        let head = self.session.take_head(cx.request_id());
        let principal = head.as_ref().map(|head| super::principal(&head.parts));
        let principal =
            principal.unwrap_or_else(|| self.session.principal.clone().without_scopes());
        let mut cx = cx.with_principal(principal);
        if let Some(head) = head {
            cx.extensions_mut().insert_shared(head.parts.clone());
            // Holds the charge for as long as the handler can read the head.
            cx.extensions_mut().insert_shared(head);
        }
        self.responder.respond(request, cx)
    }

    fn required_scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
        self.responder.required_scopes(method, params)
    }

    fn check(&self) -> crate::Result<()> {
        self.responder.check()
    }

    fn notified(&self, notification: &Notification, cx: &NotifiedContext) {
        // Queued without its POST, so the scopes that came with that are not known.
        let principal = self.session.principal.clone().without_scopes();
        let cx = cx.clone().with_principal(principal);
        self.responder.notified(notification, &cx);
    }

    fn telemetry(&self) -> Option<&Telemetry> {
        self.responder.telemetry()
    }

    fn open_calls(&self) -> usize {
        self.responder.open_calls()
    }
}

/// Creates an id of 128 random bits, which cannot be guessed.
fn new_session_id() -> Result<String, HttpRejection> {
    let bytes: [u8; 16] = random::bytes().map_err(|why| {
        tracing::error!("{why}");
        unavailable("failed to open a session")
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
