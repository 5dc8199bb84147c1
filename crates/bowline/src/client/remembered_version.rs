//! Verifies a remembered protocol version at the first response, and probes the server again if it was wrong.
//!
//! ```text
//! remembered ──result──▶ confirmed
//!      └──error──▶ probe ──▶ confirmed, or corrected
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use bowline_core::era::{Caller, Dialect};
use bowline_types::ErrorCode;
use tokio::sync::OnceCell;

use super::link::{Link, Reached};
use super::over_http::status_of;
use super::{Client, Current};
use crate::exchange::BoxFuture;
use crate::{Error, Result};

/// Probes a server again whose version was remembered.
pub(super) trait Reprobe: Send + Sync {
    /// Probes over `link`, or over a new one.
    fn probe<'a>(&'a self, link: &'a Link, caller: Caller) -> BoxFuture<'a, Result<Reached>>;

    /// Called once when the remembered version is confirmed.
    fn confirm(&self, caller: &Caller);
}

/// A remembered version that no response has confirmed yet.
pub(super) struct RememberedVersion {
    reprobe: Box<dyn Reprobe>,
    is_settled: AtomicBool,
    /// The connection in the server's actual version; `None` if the remembered one was right.
    corrected: OnceCell<Option<Current>>,
}

impl RememberedVersion {
    pub(super) fn new(reprobe: Box<dyn Reprobe>) -> Self {
        Self {
            reprobe,
            is_settled: AtomicBool::new(false),
            corrected: OnceCell::new(),
        }
    }

    pub(super) fn corrected(&self) -> Option<&Current> {
        self.corrected.get()?.as_ref()
    }
}

impl Client {
    /// Confirms the remembered version: the server has answered a request.
    pub(super) fn confirm_version(&self) {
        if let Some(remembered) = &self.inner.remembered
            && !remembered.is_settled.swap(true, Ordering::AcqRel)
        {
            remembered.reprobe.confirm(&self.caller());
        }
    }

    /// Returns whether a request in `dialect` may have failed because the remembered version is wrong.
    pub(super) fn may_be_outdated(&self, dialect: &Dialect, error: &Error) -> bool {
        let Some(remembered) = &self.inner.remembered else {
            return false;
        };
        let is_open = !remembered.is_settled.load(Ordering::Acquire);
        let is_of_the_server = matches!(error, Error::Peer(_)) || status_of(error).is_some();
        // Another call may have corrected the version while this request was in flight.
        is_of_the_server && (is_open || dialect != self.dialect())
    }

    /// Probes the server, once for all calls that wait, and returns whether it speaks another version.
    ///
    /// # Cancel safety
    ///
    /// Safe: if another call waits for the probe, it sends a new one.
    pub(super) async fn correct_version(self) -> bool {
        let Some(remembered) = &self.inner.remembered else {
            return false;
        };
        let mut is_new = false;
        let asked = remembered.corrected.get_or_try_init(async || {
            let first = &self.inner.first;
            let caller = Caller::clone(&self.caller());
            let reached = remembered.reprobe.probe(&first.link, caller).await?;
            remembered.is_settled.store(true, Ordering::Release);
            is_new = reached.caller.dialect != first.dialect;
            Ok::<_, Error>(is_new.then(|| Current::new(reached)))
        });
        let is_corrected = match asked.await {
            Ok(corrected) => corrected.is_some(),
            Err(error) => {
                tracing::debug!(%error, "failed to probe the server again");
                false
            }
        };
        if is_new {
            tracing::info!(
                version = self.dialect().version,
                "corrected the remembered protocol version"
            );
            self.ask_for_logs().await;
        }
        is_corrected
    }
}

/// Returns whether the error proves that the server did not run the request.
pub(super) fn cannot_have_run(error: &Error) -> bool {
    match error {
        Error::Peer(error) => matches!(
            error.code,
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
                | ErrorCode::METHOD_NOT_FOUND
                | ErrorCode::INVALID_REQUEST
                | ErrorCode::PARSE_ERROR
        ),
        error => {
            status_of(error).is_some_and(|status| matches!(status, 400 | 404 | 405 | 406 | 415))
        }
    }
}
