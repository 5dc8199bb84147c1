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

use super::config::ClientConfig;
use super::http::status_of;
use super::opener::Opener;
use super::{Client, Connection};
use crate::Error;

/// A remembered version that no response has confirmed yet.
pub(super) struct RememberedVersion {
    is_settled: AtomicBool,
    /// The connection in the server's actual version; `None` if the remembered one was right.
    corrected: OnceCell<Option<Connection>>,
}

impl RememberedVersion {
    /// Returns `None` if the version of `connection` needs no confirmation: it was negotiated.
    pub(super) fn of(config: &ClientConfig, connection: &Connection) -> Option<Self> {
        if config.known_server.is_none() || !connection.dialect().is_modern() {
            connection.confirm();
            return None;
        }
        Some(Self {
            is_settled: AtomicBool::new(false),
            corrected: OnceCell::new(),
        })
    }

    pub(super) fn corrected(&self) -> Option<&Connection> {
        self.corrected.get()?.as_ref()
    }
}

impl Client {
    /// Confirms the remembered version: the server has answered a request.
    pub(super) fn confirm_version(&self) {
        if let Some(remembered) = &self.inner.remembered
            && !remembered.is_settled.swap(true, Ordering::AcqRel)
        {
            self.inner.first.confirm();
        }
    }

    /// Returns whether a request in `dialect` may have failed because the remembered version is wrong.
    pub(super) fn may_be_outdated(&self, dialect: &Dialect, error: &Error) -> bool {
        let Some(remembered) = &self.inner.remembered else {
            return false;
        };
        let is_open = !remembered.is_settled.load(Ordering::Acquire);
        let is_of_the_server = matches!(error, Error::Rpc(_)) || status_of(error).is_some();
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
            let opener = Opener {
                config: &self.inner.config,
                notifications: &self.inner.notifications,
            };
            let probed = opener
                .probe_again(first.transport().clone(), caller)
                .await?;
            probed.confirm();
            probed.arm_reconnect();
            remembered.is_settled.store(true, Ordering::Release);
            is_new = probed.dialect() != first.dialect();
            Ok::<_, Error>(is_new.then_some(probed))
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
            self.send_log_level().await;
        }
        is_corrected
    }
}

/// Returns whether the error proves that the server did not run the request.
pub(crate) fn cannot_have_run(error: &Error) -> bool {
    match error {
        Error::Rpc(error) => matches!(
            error.code,
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
                | ErrorCode::HEADER_MISMATCH
                | ErrorCode::METHOD_NOT_FOUND
                | ErrorCode::INVALID_REQUEST
                | ErrorCode::PARSE_ERROR
        ),
        error => {
            status_of(error).is_some_and(|status| matches!(status, 400 | 404 | 405 | 406 | 415))
        }
    }
}
