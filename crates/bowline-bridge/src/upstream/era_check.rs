//! [`EraCheck`]: whether a server behind a URL has been replaced by one of the other era.
//!
//! A connection over HTTP does not end with the server. Without this check, every call would fail after an upgrade or a
//! rollback of the server, as long as there is one call within the idle timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::client::Connection;
use bowline::exchange::{CallOptions, Caller, Channel, Request};
use bowline::types::{DiscoverRequest, Method, PingRequest};
use bowline::{Error, Json, RpcError};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{ConnectionLease, Upstream};
use crate::owned_task::OwnedTask;

/// Whether a server is a modern one, for clients of each era.
#[derive(Default)]
pub(super) struct ModernByEra {
    modern_clients: AtomicBool,
    legacy_clients: AtomicBool,
}

impl ModernByEra {
    fn of(&self, client: &Caller) -> &AtomicBool {
        match client.dialect.is_modern() {
            true => &self.modern_clients,
            false => &self.legacy_clients,
        }
    }

    pub(super) fn get(&self, client: &Caller) -> bool {
        self.of(client).load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, client: &Caller, is_modern: bool) {
        self.of(client).store(is_modern, Ordering::Relaxed);
    }

    /// Forgets what is known.
    fn clear(&self) {
        self.modern_clients.store(false, Ordering::Relaxed);
        self.legacy_clients.store(false, Ordering::Relaxed);
    }
}

/// What is known about the version of the server of one connection.
#[derive(Clone, Default)]
pub(crate) struct EraCheck(Arc<EraState>);

#[derive(Default)]
struct EraState {
    /// When the server was last checked. Locked while it is: other requests that failed wait for the result.
    checked_at: Mutex<Option<Instant>>,
    is_outdated: AtomicBool,
}

impl EraCheck {
    /// Returns whether the server has another version than the connection, which must not be used any more.
    pub(crate) fn is_outdated(&self) -> bool {
        self.0.is_outdated.load(Ordering::Relaxed)
    }

    /// Returns whether the server was checked a moment ago.
    fn is_recent(&self) -> bool {
        let checked_at = self.0.checked_at.try_lock();
        checked_at.is_ok_and(|checked_at| is_recent(*checked_at))
    }

    /// Checks the server, or waits for the result of another request.
    async fn run(self, connection: Connection) -> Result<(), RpcError> {
        let mut checked_at = self.0.checked_at.lock().await;
        if !is_recent(*checked_at) {
            let is_outdated = is_refused(&connection).await;
            self.0.is_outdated.store(is_outdated, Ordering::Relaxed);
            *checked_at = Some(Instant::now());
        }
        Ok(())
    }
}

fn is_recent(checked_at: Option<Instant>) -> bool {
    checked_at.is_some_and(|at| at.elapsed() < CHECK_INTERVAL)
}

impl Upstream {
    /// Returns whether a request failed because the server is of the other era now. Its connection is not used again then,
    /// and the next request opens another one.
    ///
    /// # Cancel safety
    ///
    /// Safe: if the future is dropped, another request checks the server.
    pub(crate) async fn has_changed_era(&self, lease: &ConnectionLease, error: &Error) -> bool {
        // A process has one version from its start to its end.
        if self.target.is_stateful() || !may_be_of_version(error) {
            return false;
        }
        let Some(connection) = lease.get() else {
            return false;
        };
        let check = connection.era_check();
        if !check.is_outdated() && !check.is_recent() {
            let checking = check.clone().run(connection.channel().clone());
            // An error means that the runtime is shutting down.
            let _ = OwnedTask::spawn(checking).join().await;
            if check.is_outdated() {
                tracing::info!(
                    upstream = self.name(),
                    "the server does not accept the protocol version of its connection any more"
                );
                self.is_modern.clear();
            }
        }
        check.is_outdated()
    }
}

/// Sends a request that every server of the version of the connection answers, and returns whether this one refuses it.
async fn is_refused(connection: &Connection) -> bool {
    let method = match connection.dialect().is_modern() {
        true => DiscoverRequest::NAME,
        false => PingRequest::NAME,
    };
    let probe = Request::new(method, Json::empty_object(), connection.caller());
    let mut options = CallOptions::default();
    options.timeout = Some(PROBE_TIMEOUT);
    let answer = connection.open(probe, options).answer().await;
    answer.is_err_and(|error| may_be_of_version(&error))
}

/// Returns whether a server may answer a request of the other era with this error: with any of its own, with a result of
/// another form, or with a status that does not come from an outage or a missing authorization.
fn may_be_of_version(error: &Error) -> bool {
    match error {
        Error::Rpc(_) | Error::Protocol { .. } => true,
        error => error
            .http_status()
            .is_some_and(|status| matches!(status, 400 | 404..=407 | 409..=428 | 430..=499)),
    }
}

/// How often a server that answers with errors is probed. They are mostly errors of its tools.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
