//! The sessions of one service: the table of published sessions, eviction at the limits, and the driver tasks.
//!
//! ```text
//! initialize ──▶ live ──evicted, idle──▶ retired ──next message──▶ live …
//!                 └──────DELETE─────────────┴──▶ ended
//! ```
//!
//! Eviction frees memory and ends no session: its id contains what the handshake fixed, and its record what the client
//! has set since.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bowline_core::era::{DuplexAdmission, Era, Request, legacy as era};
use bowline_core::http::admission::HttpRejection;
use bowline_core::{Notification, Outcome};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Legacy;
use super::event_pool::EventPool;
use super::eviction::EvictionCandidates;
use super::live_id::OwnerId;
use super::replicas::without_subscribe;
use super::session::{Session, SessionWire, session_not_found};
use super::session_cluster::SessionCluster;
use super::session_id::HandshakeFacts;
use super::session_record::{RetiredSessions, SessionRecord};
use super::session_state::{Activity, SessionTimeouts};
use super::streams::{SessionStreams, StreamLayout};
use crate::exchange::{
    BoxFuture, ConnectionState, Context, NotifiedContext, Params, Principal, Responder,
};
use crate::http::server::{ServiceState, overloaded, unavailable};
use crate::limits::{ChargeKind, Gauge, Limit, UsageCounters};
use crate::peer::{Driver, ListWatch, LocalRole, Peer};
use crate::random;
use crate::shutdown::Shutdown;
use crate::sync::Mutex;
use crate::telemetry::{Telemetry, record_legacy_id};

/// All published sessions, by id. Dropping it ends them.
#[derive(Default)]
pub(super) struct Sessions {
    table: Mutex<SessionTable>,
    pool: Arc<EventPool>,
    /// The id of this process, generated when it is first needed.
    owner: OnceLock<OwnerId>,
    /// The connection to other replicas, if there are any.
    cluster: OnceLock<Option<Arc<SessionCluster>>>,
}

#[derive(Default)]
struct SessionTable {
    by_id: BTreeMap<Arc<str>, RunningSession>,
    retired: RetiredSessions,
    /// The sessions to evict next at `Limits::sessions`.
    candidates: EvictionCandidates,
    /// The sessions of each named principal.
    principals: BTreeMap<String, PrincipalSessions>,
}

#[derive(Default)]
struct PrincipalSessions {
    sessions: BTreeMap<Arc<str>, Arc<Session>>,
    candidates: EvictionCandidates,
}

/// A session and the task that drives it. Dropping it aborts the task, which ends the session.
pub(super) struct RunningSession {
    pub(super) session: Arc<Session>,
    task: AbortHandle,
    /// What handlers keep for the session. It cannot be restored.
    connection_state: ConnectionState,
    /// The counters that count it, once it is published.
    counted: Option<Arc<UsageCounters>>,
}

impl RunningSession {
    pub(super) fn new(
        session: Arc<Session>,
        task: AbortHandle,
        connection_state: ConnectionState,
    ) -> Self {
        Self {
            session,
            task,
            connection_state,
            counted: None,
        }
    }

    /// Counts it as open, until it is dropped.
    fn counted(mut self, session: &Session) -> Self {
        let counters = session.account.counters();
        let open = counters.gauge(Gauge::Sessions);
        open.fetch_add(1, Ordering::Relaxed);
        self.counted = Some(counters.clone());
        self
    }

    /// Returns what a later live state of the session restores.
    fn record(&self) -> SessionRecord {
        match self.connection_state.is_empty() {
            true => self.session.record(),
            // The client must open another session: handlers would not find what they have kept for this one.
            false => SessionRecord::ended(),
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

    /// Returns the connection to other replicas, which starts when it is first needed.
    pub(super) fn cluster(&self, state: &Arc<ServiceState>) -> Option<&Arc<SessionCluster>> {
        let start = || {
            let cluster = state.cluster.as_ref();
            cluster.map(|cluster| SessionCluster::start(state, cluster))
        };
        self.cluster.get_or_init(start).as_ref()
    }

    /// Returns the id of this process.
    pub(super) fn owner(&self, state: &ServiceState) -> Result<OwnerId, HttpRejection> {
        if let Some(cluster) = &state.cluster {
            return Ok(OwnerId(*cluster.replica().as_bytes()));
        }
        if let Some(owner) = self.owner.get() {
            return Ok(*owner);
        }
        let owner = OwnerId(random::bytes().map_err(no_randomness)?);
        // Concurrent first calls all return the one that the cell keeps.
        Ok(*self.owner.get_or_init(|| owner))
    }

    /// Starts a session that is not published: [`find`](Self::find) does not return it. Dropping the result ends it.
    pub(super) fn start(
        self: &Arc<Self>,
        state: &ServiceState,
        legacy: &Legacy,
        layout: StreamLayout,
        principal: Principal,
        origin: SessionOrigin,
    ) -> Result<RunningSession, HttpRejection> {
        if state.shutdown.is_refusing() {
            return Err(state.refusal());
        }
        let account = state.account.principal(principal.name()).peer();
        let streams = SessionStreams::new(layout, legacy.store(&account), account.clone());
        let is_revived = matches!(origin, SessionOrigin::Revived(_));
        let may_have_others =
            layout == StreamLayout::StreamableHttp && (is_revived || state.has_replicas());
        let owner = may_have_others.then(|| self.owner(state)).transpose()?;
        let pool = &self.pool;
        let session = Session::new(principal, layout, streams, account.clone(), pool, owner);
        let list_watch = match may_have_others {
            true => ListWatch::OnAttached,
            false => ListWatch::OnInitialized,
        };
        let served = match layout {
            StreamLayout::StreamableHttp => state.served.clone(),
            // No modern version has this transport. A client that probes for one gets the served versions.
            StreamLayout::HttpSse => state.served.without_modern(),
        };
        let (admission, opened_at) = match origin {
            SessionOrigin::Handshake => (DuplexAdmission::new(served), Instant::now()),
            SessionOrigin::Revived(facts) => {
                session.set_dialect(facts.caller.dialect);
                let opened_at = facts.opened_at();
                let opened = era::Session::after_handshake(facts.caller, facts.features);
                let era = Era::Legacy(opened);
                (DuplexAdmission::with_era(served, era), opened_at)
            }
        };
        if list_watch == ListWatch::OnAttached {
            session.watch_on_attach(opened_at);
        }
        let role = LocalRole::Server {
            admission,
            responder: Arc::new(PrincipalResponder {
                session: session.clone(),
                responder: state.responder.clone(),
                hides_subscribe: state.hides_subscribe(layout),
            }),
            identity: state.identity.clone(),
            list_watch,
            shutdown: state.shutdown.clone(),
        };
        let wire = Box::new(SessionWire::new(session.clone()));
        let (peer, driver) = Peer::new(wire, role, account);
        if let Some(live) = session.live() {
            peer.set_request_id_prefix(&live.to_string());
        }
        let connection_state = peer.connection_state().clone();
        let (shutdown, timeouts) = (state.shutdown.clone(), legacy.timeouts());
        let table = Arc::downgrade(self);
        // Boxed, because a future stores its arguments twice (as captured and as used), and there may be thousands.
        let driver = Box::new(driver);
        let drain = SessionDrain {
            shutdown,
            has_replicas: state.cluster.is_some(),
            responder: state.responder.clone(),
        };
        let driving = drive_session(session.clone(), peer, driver, drain, timeouts, table);
        let task = tokio::spawn(driving);
        let task = task.abort_handle();
        Ok(RunningSession::new(session, task, connection_state))
    }

    /// Adds a session to the table. At a limit, evicts the longest idle session: one of the same principal if that is at
    /// `Limits::principal_sessions`.
    pub(super) fn publish(&self, running: RunningSession) -> Result<(), HttpRejection> {
        let session = running.session.clone();
        check_limits(&session)?;
        let mut table = self.table.lock();
        let evicted = table.make_room(&session);
        table.insert(running.counted(&session));
        drop(table);
        drop(evicted); // not under the lock
        Ok(())
    }

    /// Adds a revived session to the table, with the record that replicas share or the one kept here. Another request may
    /// have revived it meanwhile: returns the one in the table.
    pub(super) fn publish_revived(
        &self,
        running: RunningSession,
        shared: Option<SessionRecord>,
    ) -> Result<Arc<Session>, HttpRejection> {
        let session = running.session.clone();
        check_limits(&session)?;
        let id = session.id();
        let mut table = self.table.lock();
        if let Some(existing) = table.by_id.get(&*id) {
            let existing = existing.session.clone();
            drop(table);
            return Ok(existing);
        }
        let kept = table.retired.take(session_key(&id));
        // Also if there is one that replicas share: that of a session that handlers kept values for stays here.
        let is_ended = kept.as_ref().is_some_and(|record| record.is_ended);
        let record = if is_ended { kept } else { shared.or(kept) };
        match record {
            Some(record) if record.is_ended => {
                drop(table);
                return Err(session_not_found());
            }
            Some(record) => session.restore(record),
            None => {}
        }
        let evicted = table.make_room(&session);
        table.insert(running.counted(&session));
        drop(table);
        drop(evicted);
        Ok(session)
    }

    /// Ends a session, live or not, so that it is not revived. Its id must have been opened, or found.
    pub(super) fn end(&self, id: &str) {
        let mut table = self.table.lock();
        let removed = table.remove(id);
        table.retired.keep(session_key(id), SessionRecord::ended());
        drop(table);
        drop(removed);
    }

    /// Frees the live state of a session that is idle. It can be revived.
    fn retire(&self, id: &str) {
        let mut table = self.table.lock();
        let removed = table.retire(id);
        drop(table);
        drop(removed);
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

    /// Returns the live session whose id has this [key](session_key).
    pub(super) fn find_by_key(&self, key: &str) -> Option<Arc<Session>> {
        let table = self.table.lock();
        let from = (Bound::Included(key), Bound::Unbounded);
        let (id, running) = table.by_id.range::<str, _>(from).next()?;
        (session_key(id) == key).then(|| running.session.clone())
    }

    /// Returns whether a stream of a session has ended that was not read to its end.
    pub(super) fn has_unread(&self) -> bool {
        self.live().iter().any(|session| session.has_unread())
    }

    /// Returns all live sessions.
    pub(super) fn live(&self) -> Vec<Arc<Session>> {
        let table = self.table.lock();
        let sessions = table.by_id.values();
        sessions.map(|running| running.session.clone()).collect()
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
    /// Evicts sessions until one more is within the limits, and returns them.
    fn make_room(&mut self, session: &Session) -> Vec<RunningSession> {
        let (limits, counters) = (session.account.limits(), session.account.counters());
        let mut evicted = Vec::new();
        if let Some(name) = session.principal.name()
            && let Some(own) = self.pop_principal_excess(name, limits.principal_sessions)
        {
            counters.refuse(Limit::PrincipalSessions, limits.principal_sessions);
            evicted.push(own);
        }
        while self.by_id.len() >= limits.sessions
            && let Some(longest_idle) = self.pop_longest_idle()
        {
            counters.refuse(Limit::Sessions, limits.sessions);
            evicted.push(longest_idle);
        }
        // One for each session that is opened: what a session keeps is charged until its task has ended.
        if counters.charged_bytes(ChargeKind::Kept) > session.account.max_kept() / 2
            && let Some(longest_idle) = self.pop_idle()
        {
            evicted.push(longest_idle);
        }
        if !evicted.is_empty() {
            tracing::debug!("freed the longest idle session to open another");
        }
        evicted
    }

    fn insert(&mut self, running: RunningSession) {
        let session = running.session.clone();
        let id = session.id();
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

    /// Removes a session and keeps its record.
    fn retire(&mut self, id: &str) -> Option<RunningSession> {
        let running = self.remove(id)?;
        self.retired.keep(session_key(id), running.record());
        Some(running)
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
        self.retire(&id)
    }

    /// Removes the longest idle session, if there is one without an open response or call.
    fn pop_idle(&mut self) -> Option<RunningSession> {
        let sessions = || self.by_id.values().map(|running| &running.session);
        let find = |id: &str| self.by_id.get(id).map(|running| &running.session);
        let id = self.candidates.pop(find, sessions)?;
        let activity = find(&id)?.eviction_rank().activity;
        matches!(activity, Activity::Unused | Activity::Idle).then_some(())?;
        self.retire(&id)
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
        self.retire(&id)
    }
}

/// Why the live state of a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionEnd {
    Driver,
    Expired,
    Drain,
}

/// What a session needs when the server drains.
struct SessionDrain {
    shutdown: Shutdown,
    /// Whether other replicas may read its streams.
    has_replicas: bool,
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
    let end = tokio::select! {
        biased; // A driver that has ended needs nothing else, and an expired session need not be drained.
        () = &mut driver => SessionEnd::Driver,
        () = session.until_expired(timeouts) => SessionEnd::Expired,
        () = drain.shutdown.refusing() => SessionEnd::Drain,
    };
    if end == SessionEnd::Expired
        && let Some(table) = table.upgrade()
    {
        // Before the engine is dropped, with which the values of its handlers go.
        return table.retire(&session.id());
    }
    if end == SessionEnd::Drain {
        let (responder, shutdown) = (&*drain.responder, &drain.shutdown);
        // Boxed, because few sessions see a drain, and all of them have space for it.
        Box::pin(peer.drain(&mut driver, responder, shutdown)).await;
        if drain.has_replicas {
            Box::pin(until_read(&session, shutdown)).await;
        }
    }
    drop((driver, peer));
    if let Some(table) = table.upgrade() {
        drop(table.remove(&session.id()));
    }
}

/// Waits until other replicas have read the streams that have ended, for at most the grace period: a client that lost its
/// connection resumes there.
async fn until_read(session: &Session, shutdown: &Shutdown) {
    let read = async {
        while session.has_unread() {
            tokio::time::sleep(UNREAD_CHECK).await;
        }
    };
    tokio::select! {
        biased; // the usual end
        () = read => {}
        () = shutdown.closed() => {}
    }
}

/// Returns the part of a session id that identifies it among replicas: it contains the nonce, and does not open the
/// session.
pub(super) fn session_key(id: &str) -> &str {
    id.get(..KEY_CHARS).unwrap_or(id)
}

/// Refuses sessions where none is allowed.
fn check_limits(session: &Session) -> Result<(), HttpRejection> {
    let (limits, counters) = (session.account.limits(), session.account.counters());
    let is_named = session.principal.name().is_some();
    for (limit, max, applies) in [
        (Limit::Sessions, limits.sessions, true),
        (
            Limit::PrincipalSessions,
            limits.principal_sessions,
            is_named,
        ),
    ] {
        if applies && max == 0 {
            return Err(overloaded(counters.refuse(limit, max)));
        }
    }
    Ok(())
}

/// How a session begins.
pub(super) enum SessionOrigin {
    /// With `initialize`.
    Handshake,
    /// From its id, whose handshake another live state has completed.
    Revived(Box<HandshakeFacts>),
}

/// Wraps a responder, giving each request the principal and the head of its own POST.
struct PrincipalResponder {
    session: Arc<Session>,
    responder: Arc<dyn Responder>,
    /// Whether `resources.subscribe` is removed from the result of the handshake.
    hides_subscribe: bool,
}

impl Responder for PrincipalResponder {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        let id = self.session.id();
        if !id.is_empty() {
            record_legacy_id(&id);
        }
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
        if self.hides_subscribe && request.method == DISCOVER {
            let responding = self.responder.respond(request, cx);
            return Box::pin(async { responding.await.map(without_subscribe) });
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

/// Creates an id of 128 random bits, which cannot be guessed, for a session that cannot be revived.
pub(super) fn random_session_id() -> Result<Arc<str>, HttpRejection> {
    let number = u128::from_be_bytes(random::bytes().map_err(no_randomness)?);
    Ok(format!("{number:032x}").into())
}

pub(super) fn no_randomness(why: &'static str) -> HttpRejection {
    tracing::error!("{why}");
    unavailable("failed to open a session")
}

/// How often unread streams are looked for in a drain.
const UNREAD_CHECK: Duration = Duration::from_millis(50);
/// The internal method of the handshake.
const DISCOVER: &str = "server/discover";
/// Base64 of a version byte and of most of a nonce of 24 bytes.
const KEY_CHARS: usize = 33;
