//! The sessions of one service: those that a client can name, and the tasks that drive them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bowline_core::Outcome;
use bowline_core::era::{Caller, Door, Request};
use bowline_core::http::admission::Rejection;
use bowline_types::ClientCapabilities;
use tokio::task::AbortHandle;

use super::Legacy;
use super::candidates::Candidates;
use super::pool::EventPool;
use super::session::{Session, SessionWire, gone};
use super::state::Patience;
use super::streams::{Layout, Streams};
use crate::exchange::{BoxFuture, Context, Params, Principal, Responder};
use crate::http::server::{Site, overloaded, unavailable};
use crate::limits::{Gauge, Limit, Meters};
use crate::peer::{Closing, Driver, Peer, Role};
use crate::random;
use crate::shutdown::Shutdown;

/// Every session that a client can name. Dropping it ends them all.
#[derive(Default)]
pub(super) struct Sessions {
    table: Mutex<Table>,
    pool: Arc<EventPool>,
}

#[derive(Default)]
struct Table {
    by_id: BTreeMap<String, Driven>,
    /// Which of them are ended next to make room.
    candidates: Candidates,
    /// The sessions of each principal that has a name.
    principals: BTreeMap<String, OfPrincipal>,
}

#[derive(Default)]
struct OfPrincipal {
    sessions: BTreeMap<String, Arc<Session>>,
    candidates: Candidates,
}

/// A session and the task that drives it. Dropping it ends the session.
pub(super) struct Driven {
    pub(super) session: Arc<Session>,
    task: AbortHandle,
    /// Where it is counted, once a client can name it.
    counted: Option<Arc<Meters>>,
}

impl Driven {
    pub(super) fn new(session: Arc<Session>, task: AbortHandle) -> Self {
        Self {
            session,
            task,
            counted: None,
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(meters) = &self.counted {
            let open = meters.gauge(Gauge::Sessions);
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Sessions {
    #[cfg(test)]
    pub(super) fn pool(&self) -> &Arc<EventPool> {
        &self.pool
    }

    /// Starts a session that no client can name yet. It ends when dropped.
    pub(super) fn start(
        self: &Arc<Self>,
        site: &Site,
        legacy: &Legacy,
        layout: Layout,
        principal: Principal,
    ) -> Result<Driven, Rejection> {
        if site.shutdown.is_asked() {
            return Err(unavailable("shutting down"));
        }
        let account = site.account.principal(principal.name()).peer();
        let streams = Streams::new(layout, legacy.store(&account), account.clone());
        let id = mint_id()?;
        let session = Session::new(id, principal, layout, streams, account.clone(), &self.pool);
        let served = match layout {
            Layout::PerPost => site.served.clone(),
            // No modern version has this transport. A client that probes for one is told which versions there are.
            Layout::One => site.served.without_modern(),
        };
        let role = Role::Server {
            door: Door::new(served, site.offers),
            responder: Arc::new(OnBehalf {
                session: session.clone(),
                responder: site.responder.clone(),
            }),
            identity: site.identity.clone(),
        };
        let wire = Box::new(SessionWire::new(session.clone()));
        let (peer, driver) = Peer::new(wire, role, account);
        let (shutdown, patience) = (site.shutdown.clone(), legacy.patience());
        let table = Arc::downgrade(self);
        // There are thousands of them, and whatever a future is given it keeps twice: once as an argument.
        let driver = Box::new(driver);
        let conduct = conduct(session.clone(), peer, driver, shutdown, patience, table);
        let task = tokio::spawn(conduct);
        Ok(Driven::new(session, task.abort_handle()))
    }

    /// Lets clients name a session. If there are as many as the limits allow, the one that was idle for longest is ended:
    /// of the same principal, if that has as many as it may.
    pub(super) fn publish(&self, mut driven: Driven) -> Result<(), Rejection> {
        let session = driven.session.clone();
        let (limits, meters) = (session.account.limits(), session.account.meters());
        let name = session.principal.name();
        for (limit, max) in [
            (Limit::Sessions, limits.sessions),
            (Limit::PrincipalSessions, limits.principal_sessions),
        ] {
            let applies = limit == Limit::Sessions || name.is_some();
            if applies && max == 0 {
                return Err(overloaded(meters.refuse(limit, max)));
            }
        }
        meters
            .gauge(Gauge::Sessions)
            .fetch_add(1, Ordering::Relaxed);
        driven.counted = Some(meters.clone());
        let mut table = self.lock();
        let mut ended = Vec::new();
        if let Some(name) = name
            && let Some(own) = table.of_principal_beyond(name, limits.principal_sessions)
        {
            meters.refuse(Limit::PrincipalSessions, limits.principal_sessions);
            ended.push(own);
        }
        while table.by_id.len() >= limits.sessions
            && let Some(idlest) = table.pop_idlest()
        {
            meters.refuse(Limit::Sessions, limits.sessions);
            ended.push(idlest);
        }
        table.insert(driven);
        drop(table);
        if !ended.is_empty() {
            tracing::debug!("ended the session that was idle for longest to open another");
        }
        Ok(())
    }

    /// The session that a client names. One that belongs to another principal does not exist.
    pub(super) fn find(&self, id: &str, principal: &Principal) -> Result<Arc<Session>, Rejection> {
        let found = self
            .lock()
            .by_id
            .get(id)
            .map(|driven| driven.session.clone());
        found
            .filter(|session| session.principal == *principal)
            .ok_or_else(gone)
    }

    /// Ends a session, if there is one: by dropping what this returns.
    pub(super) fn remove(&self, id: &str) -> Option<Driven> {
        self.lock().remove(id)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code that could panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, driven: Driven) {
        let session = driven.session.clone();
        let id = session.id.clone();
        if let Some(name) = session.principal.name() {
            let own = self.principals.entry(name.to_owned()).or_default();
            let (sessions, candidates) = (&mut own.sessions, &mut own.candidates);
            sessions.insert(id.clone(), session.clone());
            candidates.add(id.clone(), sessions.len(), |id| sessions.get(id));
        }
        self.by_id.insert(id.clone(), driven);
        let find = |id: &str| self.by_id.get(id).map(|driven| &driven.session);
        self.candidates.add(id, self.by_id.len(), find);
    }

    fn remove(&mut self, id: &str) -> Option<Driven> {
        let driven = self.by_id.remove(id)?;
        if let Some(name) = driven.session.principal.name()
            && let Some(own) = self.principals.get_mut(name)
        {
            own.sessions.remove(id);
            if own.sessions.is_empty() {
                self.principals.remove(name);
            }
        }
        Some(driven)
    }

    fn pop_idlest(&mut self) -> Option<Driven> {
        let sessions = || self.by_id.values().map(|driven| &driven.session);
        let find = |id: &str| self.by_id.get(id).map(|driven| &driven.session);
        let id = self.candidates.pop(find, sessions)?;
        self.remove(&id)
    }

    /// The idlest session of a principal that has as many as it may.
    fn of_principal_beyond(&mut self, name: &str, max: usize) -> Option<Driven> {
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

/// Drives a session until it is at its end: its client has been away for too long, or a shutdown is over. Then takes it out
/// of its table.
async fn conduct(
    session: Arc<Session>,
    peer: Peer,
    mut driver: Box<Driver>,
    shutdown: Shutdown,
    patience: Patience,
    table: Weak<Sessions>,
) {
    let grace = tokio::select! {
        biased;
        () = &mut driver => None,
        () = session.until_forsaken(patience) => None,
        grace = shutdown.asked() => Some(grace),
    };
    if let Some(grace) = grace {
        peer.close(Closing::Drain(grace));
        (&mut driver).await;
    }
    drop((driver, peer));
    if let Some(table) = table.upgrade() {
        drop(table.remove(&session.id));
    }
}

/// A responder whose every request is made on behalf of whoever posted it.
struct OnBehalf {
    session: Arc<Session>,
    responder: Arc<dyn Responder>,
}

impl Responder for OnBehalf {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        let head = self.session.take_head(cx.request_id());
        let principal = head.as_ref().map(|head| super::principal(&head.parts));
        let principal =
            principal.unwrap_or_else(|| self.session.principal.clone().without_scopes());
        let mut cx = cx.with_principal(principal);
        if let Some(head) = head {
            cx.extensions_mut().insert_shared(head.parts.clone());
            // It is charged as long as the handler can look at it.
            cx.extensions_mut().insert_shared(head);
        }
        self.responder.respond(request, cx)
    }

    fn scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
        self.responder.scopes(method, params)
    }

    fn check(&self) -> crate::Result<()> {
        self.responder.check()
    }

    fn roots_changed(&self, caller: &Caller) {
        self.responder.roots_changed(caller);
    }

    fn answers(&self) -> ClientCapabilities {
        self.responder.answers()
    }
}

/// An id that cannot be guessed.
fn mint_id() -> Result<String, Rejection> {
    let bytes: [u8; 16] = random::bytes().map_err(|why| {
        tracing::error!("{why}");
        unavailable("no session can be opened")
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
