//! The sessions of one service: who is there, and the tasks that drive them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_core::Outcome;
use bowline_core::era::{Door, Request};
use bowline_core::http::admission::Rejection;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::Legacy;
use super::session::{Patience, Session, SessionWire, gone};
use super::streams::{Layout, Streams};
use crate::exchange::{BoxFuture, Context, Principal, Responder};
use crate::http::server::{Site, unavailable};
use crate::peer::{Closing, Driver, Peer, Role};
use crate::random;
use crate::shutdown::Shutdown;

/// Every session that a client can name. Dropping it ends them all.
pub(super) struct Sessions {
    table: Mutex<BTreeMap<String, Driven>>,
    room: Arc<Semaphore>,
}

/// A session and the task that drives it. Dropping it ends the session.
pub(super) struct Driven {
    pub(super) session: Arc<Session>,
    task: AbortHandle,
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sessions {
    pub(super) fn new(most: usize) -> Self {
        Self {
            table: Mutex::new(BTreeMap::new()),
            room: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Starts a session that nobody can name yet. It ends when dropped.
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
        let room = self.room.clone().try_acquire_owned();
        let room = room.map_err(|_| unavailable("too many sessions are open"))?;
        if principal.name().is_some() && self.of(&principal) >= legacy.most_each {
            return Err(unavailable("too many sessions of yours are open"));
        }
        let account = site.account.principal(principal.name()).peer();
        let streams = Streams::new(layout, legacy.store());
        let session = Arc::new(Session::new(mint_id()?, principal, streams, room));
        let role = Role::Server {
            door: Door::new(site.served.clone(), site.offers),
            responder: Arc::new(OnBehalf {
                session: session.clone(),
                responder: site.responder.clone(),
            }),
            identity: site.identity.clone(),
        };
        let wire = Box::new(SessionWire(session.clone()));
        let (peer, driver) = Peer::new(wire, role, account);
        let conduct = conduct(
            session.clone(),
            peer,
            driver,
            site.shutdown.clone(),
            legacy.patience(),
        );
        let (id, table) = (session.id.clone(), Arc::downgrade(self));
        let task = tokio::spawn(async move {
            conduct.await;
            if let Some(table) = table.upgrade() {
                drop(table.remove(&id));
            }
        });
        Ok(Driven {
            session,
            task: task.abort_handle(),
        })
    }

    /// Lets clients name a session.
    pub(super) fn publish(&self, driven: Driven) {
        let id = driven.session.id.clone();
        self.lock().insert(id, driven);
    }

    /// The session that a client names. One that belongs to somebody else does not exist.
    pub(super) fn find(&self, id: &str, principal: &Principal) -> Result<Arc<Session>, Rejection> {
        let found = self.lock().get(id).map(|driven| driven.session.clone());
        found
            .filter(|session| session.principal == *principal)
            .ok_or_else(gone)
    }

    /// Ends a session, if there is one: by dropping what this returns.
    pub(super) fn remove(&self, id: &str) -> Option<Driven> {
        self.lock().remove(id)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many sessions a principal has.
    fn of(&self, principal: &Principal) -> usize {
        let table = self.lock();
        let own = table
            .values()
            .filter(|driven| driven.session.principal == *principal);
        own.count()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Driven>> {
        // No code that could panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drives a session until it is at its end: nobody is there any more, or a shutdown is over.
async fn conduct(
    session: Arc<Session>,
    peer: Peer,
    mut driver: Driver,
    shutdown: Shutdown,
    patience: Patience,
) {
    let grace = tokio::select! {
        biased;
        () = &mut driver => return,
        () = session.until_forsaken(patience) => return,
        grace = shutdown.asked() => grace,
    };
    peer.close(Closing::Drain(grace));
    driver.await;
}

/// A responder whose every request is made on behalf of whoever posted it.
struct OnBehalf {
    session: Arc<Session>,
    responder: Arc<dyn Responder>,
}

impl Responder for OnBehalf {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        let head = self.session.take_head(cx.request_id());
        let principal = head.as_ref().map(super::principal);
        let principal =
            principal.unwrap_or_else(|| self.session.principal.clone().without_scopes());
        let mut cx = cx.with_principal(principal);
        if let Some(head) = head {
            cx.extensions_mut().insert(head);
        }
        self.responder.respond(request, cx)
    }
}

/// An id that nobody can guess.
fn mint_id() -> Result<String, Rejection> {
    let bytes: [u8; 16] = random::bytes().map_err(|why| {
        tracing::error!("{why}");
        unavailable("no session can be opened")
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
