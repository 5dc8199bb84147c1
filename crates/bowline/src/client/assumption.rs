//! A version that was remembered, and not asked for: it may be wrong by now.
//!
//! ```text
//! assumed ──an answer──▶ confirmed
//!    └──an error──▶ ask the server what it speaks ──▶ confirmed, or corrected
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

/// Asks a server what it speaks, after it was thought to be known.
pub(super) trait Asker: Send + Sync {
    /// Asks over `link`, or in a way of its own.
    fn ask<'a>(&'a self, link: &'a Link, caller: Caller) -> BoxFuture<'a, Result<Reached>>;

    /// What was assumed is true.
    fn confirm(&self, caller: &Caller);
}

/// What a client takes for granted until the server has answered something.
pub(super) struct Assumption {
    asker: Box<dyn Asker>,
    is_settled: AtomicBool,
    /// What is spoken instead, if the server speaks something else.
    corrected: OnceCell<Option<Current>>,
}

impl Assumption {
    pub(super) fn new(asker: Box<dyn Asker>) -> Self {
        Self {
            asker,
            is_settled: AtomicBool::new(false),
            corrected: OnceCell::new(),
        }
    }

    pub(super) fn corrected(&self) -> Option<&Current> {
        self.corrected.get()?.as_ref()
    }
}

impl Client {
    /// The server has answered a request in what was assumed.
    pub(super) fn confirm_version(&self) {
        if let Some(assumption) = &self.inner.assumption
            && !assumption.is_settled.swap(true, Ordering::AcqRel)
        {
            assumption.asker.confirm(&self.caller());
        }
    }

    /// Whether a request in `dialect` may have failed because the server speaks something else by now.
    pub(super) fn may_be_outdated(&self, dialect: &Dialect, error: &Error) -> bool {
        let Some(assumption) = &self.inner.assumption else {
            return false;
        };
        let is_open = !assumption.is_settled.load(Ordering::Acquire);
        let is_of_the_server = matches!(error, Error::Peer(_)) || status_of(error).is_some();
        // Somebody else may have corrected it while this request was on its way.
        is_of_the_server && (is_open || dialect != self.dialect())
    }

    /// Asks the server what it speaks, once for all who wait. Whether that is something else than was assumed.
    ///
    /// # Cancel safety
    ///
    /// Safe: whoever else waits goes on, and the next one asks.
    pub(super) async fn correct_version(self) -> bool {
        let Some(assumption) = &self.inner.assumption else {
            return false;
        };
        let mut is_news = false;
        let asked = assumption.corrected.get_or_try_init(async || {
            let first = &self.inner.first;
            let caller = Caller::clone(&self.caller());
            let reached = assumption.asker.ask(&first.link, caller).await?;
            assumption.is_settled.store(true, Ordering::Release);
            is_news = reached.caller.dialect != first.dialect;
            Ok::<_, Error>(is_news.then(|| Current::new(reached)))
        });
        let is_corrected = match asked.await {
            Ok(corrected) => corrected.is_some(),
            Err(error) => {
                tracing::debug!(%error, "the server does not say what it speaks");
                false
            }
        };
        if is_news {
            tracing::info!(
                version = self.dialect().version,
                "the server speaks another version than was remembered"
            );
            self.ask_for_logs().await;
        }
        is_corrected
    }
}

/// Whether a server that answers like this cannot have done what it was asked.
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
