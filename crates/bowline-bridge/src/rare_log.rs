//! [`RareLog`]: when to log again what happens again and again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Limits a warning to once a minute: clients list and call again and again.
#[derive(Debug, Default)]
pub(crate) struct RareLog(Mutex<Option<Instant>>);

impl RareLog {
    /// Returns whether to log now.
    pub(crate) fn is_due(&self) -> bool {
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
        let log = RareLog::default();

        assert!(log.is_due());
        assert!(!log.is_due());
        tokio::time::advance(PAUSE).await;
        assert!(log.is_due());
    }
}
