//! [`Patience`]: how long lists and the handshake wait for a server.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long lists wait for a server: up to their limit. Once it has not answered in that time, they wait only a moment
/// until it answers again, and the whole limit once in a while. Otherwise a server that hangs would delay every list.
#[derive(Debug, Default)]
pub(super) struct Patience(Mutex<Option<Instant>>);

impl Patience {
    /// Returns how long to wait for an answer.
    pub(super) fn limit(&self, limit: Duration) -> Duration {
        match *self.late_since() {
            Some(since) if since.elapsed() < LATE_TIME => limit.min(MOMENT),
            _ => limit,
        }
    }

    /// Records that the server did not answer in `waited`, out of `limit`.
    pub(super) fn set_late(&self, waited: Duration, limit: Duration) {
        // After a moment nothing new is known.
        if waited >= limit {
            *self.late_since() = Some(Instant::now());
        }
    }

    /// Records that the server has answered.
    pub(super) fn set_answered(&self) {
        *self.late_since() = None;
    }

    fn late_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long lists do not wait for a server that did not answer.
const LATE_TIME: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_late_is_waited_for_once_in_a_while() {
        let patience = Patience::default();
        assert_eq!(patience.limit(LIMIT), LIMIT);

        patience.set_late(LIMIT, LIMIT);
        assert_eq!(patience.limit(LIMIT), MOMENT);
        tokio::time::advance(LATE_TIME / 2).await;
        patience.set_late(MOMENT, LIMIT);
        tokio::time::advance(LATE_TIME / 2).await;

        assert_eq!(patience.limit(LIMIT), LIMIT, "a moment starts nothing anew");
        patience.set_late(LIMIT, LIMIT);
        patience.set_answered();
        assert_eq!(patience.limit(LIMIT), LIMIT);
    }
}
