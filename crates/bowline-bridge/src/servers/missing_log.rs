//! [`MissingLog`]: logs that a server is missing in an answer, and not for every answer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline::RpcError;
use tokio::time::Instant;

/// Logs that a server is missing in an answer, at most once a minute: clients list again and again.
#[derive(Debug, Default)]
pub(super) struct MissingLog(Mutex<Option<Instant>>);

impl MissingLog {
    /// Logs a warning, or a debug message if there was a warning not long ago.
    pub(super) fn log(&self, server: &str, answer: &str, error: &RpcError) {
        match self.is_due() {
            true => tracing::warn!(server, %error, "a server is missing in a {answer}"),
            false => tracing::debug!(server, %error, "a server is missing in a {answer}"),
        }
    }

    fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= PAUSE);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

const PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_warning_is_due_once_a_minute() {
        let log = MissingLog::default();

        assert!(log.is_due());
        assert!(!log.is_due());
        tokio::time::advance(PAUSE).await;
        assert!(log.is_due());
    }
}
