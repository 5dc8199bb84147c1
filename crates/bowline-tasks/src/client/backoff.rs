//! Which errors are retried, and after which delay.

use std::time::Duration;

use bowline::Error;
use bowline_types::ErrorCode;

/// Returns whether a request of a task may succeed later, because the connection was lost or the server is starting.
///
/// Requests of a task can be repeated: they have the same effect as once.
pub(super) fn is_transient(error: &Error) -> bool {
    match error {
        Error::Timeout { .. } | Error::Closed | Error::Lagged => true,
        Error::Transport { .. } => match error.http_status() {
            Some(status) => matches!(status, 408 | 425 | 429 | 500..),
            None => true,
        },
        // Such as a store that is not available for a moment.
        Error::Rpc(error) => error.code == ErrorCode::INTERNAL_ERROR,
        _ => false,
    }
}

/// Returns the delay after this number of failures in a row: doubled with each, and random between half of that and all
/// of it, so that the clients of a server that restarts do not return at the same moment.
pub(super) fn delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full = (MIN_DELAY * 2_u32.pow(doublings)).min(MAX_DELAY);
    let mut random = [0; 4];
    // Without randomness the delay is just not spread.
    let random = match getrandom::fill(&mut random) {
        Ok(()) => f64::from(u32::from_ne_bytes(random)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    };
    full.mul_f64(0.5 + random / 2.0)
}

const MIN_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_maximum() {
        for (failures, full) in [
            (0, 200),
            (1, 200),
            (2, 400),
            (5, 3200),
            (7, 10_000),
            (u32::MAX, 10_000),
        ] {
            let (delay, full) = (delay(failures), Duration::from_millis(full));
            assert!(delay >= full / 2 && delay <= full, "{failures}: {delay:?}");
        }
    }
}
