//! [`DrainState`]: the phases in which a server goes away without losing calls, and which requests it takes in each.
//!
//! ```text
//! Serving ── begin ──▶ Draining ── delay ──▶ Refusing ── grace ──▶ Closed
//! ```
//!
//! While it is draining a server still takes new work, because load balancers need time to notice that it is not ready.
//! While it is refusing, it takes only what [continues](continues_work) work that it has.

use std::time::{Duration, Instant};

use bowline_types::{ErrorCode, Json, Method, PingRequest, RpcError};
use serde::{Deserialize, Serialize};

use crate::json::Params;

/// How far a server has gone towards its end. Later phases are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DrainPhase {
    /// It takes requests, and is ready for more.
    #[default]
    Serving,
    /// It takes requests, and is not ready: load balancers should choose another server.
    Draining,
    /// It refuses new requests. Running ones may finish.
    Refusing,
    /// The grace period is over. What still ran was cancelled.
    Closed,
}

/// The drain of a server, without a clock. Its times only ever move earlier.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use bowline_core::drain::{DrainPhase, DrainState};
///
/// let (now, second) = (Instant::now(), Duration::from_secs(1));
/// let mut drain = DrainState::default();
/// drain.begin(now, 5 * second, 20 * second);
/// assert_eq!(drain.phase(now), DrainPhase::Draining);
/// assert_eq!(drain.phase(now + 5 * second), DrainPhase::Refusing);
/// assert_eq!(drain.phase(now + 25 * second), DrainPhase::Closed);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainState {
    times: Option<DrainTimes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DrainTimes {
    begun_at: Instant,
    refuse_at: Instant,
    /// Not before `refuse_at`.
    close_at: Instant,
}

impl DrainState {
    /// Begins the drain: new requests are refused after `delay`, and running ones cancelled after another `grace`.
    ///
    /// A drain that has begun can only be shortened: the earlier time counts. Returns whether anything has changed.
    pub fn begin(&mut self, now: Instant, delay: Duration, grace: Duration) -> bool {
        let refuse_at = later(now, delay);
        let new = DrainTimes {
            begun_at: now,
            refuse_at,
            close_at: later(refuse_at, grace),
        };
        let times = match self.times {
            None => new,
            Some(old) => DrainTimes {
                begun_at: old.begun_at,
                refuse_at: old.refuse_at.min(new.refuse_at),
                close_at: old.close_at.min(new.close_at),
            },
        };
        self.times.replace(times) != Some(times)
    }

    /// Returns the phase at a time.
    #[must_use]
    pub fn phase(&self, now: Instant) -> DrainPhase {
        match self.times {
            None => DrainPhase::Serving,
            Some(times) if now >= times.close_at => DrainPhase::Closed,
            Some(times) if now >= times.refuse_at => DrainPhase::Refusing,
            Some(_) => DrainPhase::Draining,
        }
    }

    /// Returns when a phase begins or has begun; `None` if no drain has begun.
    #[must_use]
    pub fn start_of(&self, phase: DrainPhase) -> Option<Instant> {
        let times = self.times?;
        Some(match phase {
            DrainPhase::Serving | DrainPhase::Draining => times.begun_at,
            DrainPhase::Refusing => times.refuse_at,
            DrainPhase::Closed => times.close_at,
        })
    }
}

/// Returns whether a server that refuses new work takes a request, because it belongs to work that the server has:
/// `tasks/*`, and the retry of a call with the answers to its questions (`requestState`). `ping` is no work.
///
/// Notifications, such as cancels, and responses are never refused.
#[must_use]
pub fn continues_work(method: &str, params: Option<&Params>) -> bool {
    if method == PingRequest::NAME || method.starts_with("tasks/") {
        return true;
    }
    let state = params.and_then(|params| params.member("requestState").ok().flatten());
    state.is_some_and(|state| !state.is_null())
}

/// Returns the error of a request that was refused because the server drains. Its `data` is
/// `{"retryable": true, "retryAfter": 1}`: it was not executed, and can be sent again after a second.
#[must_use]
pub fn refusal() -> RpcError {
    let data = RefusalData {
        retryable: true,
        retry_after: RETRY_AFTER.as_secs(),
    };
    let mut error = RpcError::new(ErrorCode::INTERNAL_ERROR, "shutting down");
    error.data = Json::encode(&data).ok();
    error
}

/// Returns after how long a request can be sent again, if its error says that it was refused and not executed.
#[must_use]
pub fn retry_after(error: &RpcError) -> Option<Duration> {
    let data: RefusalData = error.data.as_ref()?.decode().ok()?;
    data.retryable
        .then(|| Duration::from_secs(data.retry_after))
}

/// When a refused request should be sent again. By then, a load balancer has chosen another server.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RefusalData {
    retryable: bool,
    /// In seconds, as the HTTP header.
    retry_after: u64,
}

/// Returns `start + delay`; `start + Duration::MAX` would panic.
fn later(start: Instant, delay: Duration) -> Instant {
    start + delay.min(FAR_FUTURE)
}

/// 30 years.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn phases(drain: &DrainState, start: Instant, seconds: &[u32]) -> Vec<DrainPhase> {
        let times = seconds.iter().map(|at| start + *at * SECOND);
        times.map(|now| drain.phase(now)).collect()
    }

    #[test]
    fn a_drain_passes_through_all_phases() {
        use DrainPhase::{Closed, Draining, Refusing, Serving};
        let (start, mut drain) = (Instant::now(), DrainState::default());

        assert_eq!(drain.phase(start), Serving);
        assert!(drain.begin(start, 5 * SECOND, 20 * SECOND));

        assert_eq!(
            phases(&drain, start, &[0, 4, 5, 24, 25, 99]),
            [Draining, Draining, Refusing, Refusing, Closed, Closed]
        );
        assert_eq!(drain.start_of(Refusing), Some(start + 5 * SECOND));
        assert_eq!(drain.start_of(Closed), Some(start + 25 * SECOND));
    }

    #[test]
    fn without_a_delay_new_work_is_refused_at_once() {
        let (start, mut drain) = (Instant::now(), DrainState::default());

        drain.begin(start, Duration::ZERO, SECOND);

        assert_eq!(drain.phase(start), DrainPhase::Refusing);
    }

    #[test]
    fn a_second_drain_can_only_shorten_the_first() {
        let (start, mut drain) = (Instant::now(), DrainState::default());
        drain.begin(start, 5 * SECOND, 20 * SECOND);

        assert!(!drain.begin(start + SECOND, 60 * SECOND, 60 * SECOND));
        assert_eq!(
            drain.start_of(DrainPhase::Refusing),
            Some(start + 5 * SECOND)
        );

        assert!(drain.begin(start + 2 * SECOND, Duration::ZERO, 60 * SECOND));
        assert_eq!(
            drain.start_of(DrainPhase::Refusing),
            Some(start + 2 * SECOND)
        );
        assert_eq!(
            drain.start_of(DrainPhase::Closed),
            Some(start + 25 * SECOND)
        );

        assert!(drain.begin(start + 3 * SECOND, Duration::ZERO, Duration::ZERO));
        assert_eq!(drain.phase(start + 3 * SECOND), DrainPhase::Closed);
    }

    #[test]
    fn a_grace_period_without_an_end_does_not_overflow() {
        let (start, mut drain) = (Instant::now(), DrainState::default());

        drain.begin(start, Duration::MAX, Duration::MAX);

        assert_eq!(
            drain.phase(start + 1_000_000 * SECOND),
            DrainPhase::Draining
        );
    }

    #[test]
    fn only_requests_that_continue_work_are_taken_while_refusing() {
        let continues = |method: &str, params: serde_json::Value| {
            let params = Params::from(Json::encode(&params).unwrap());
            continues_work(method, Some(&params))
        };

        assert!(continues("tasks/get", json!({"taskId": "1"})));
        assert!(continues("ping", json!({})));
        assert!(continues(
            "tools/call",
            json!({"name": "book", "requestState": "sealed"})
        ));
        for (method, params) in [
            ("tools/call", json!({"name": "book"})),
            ("tools/call", json!({"name": "book", "requestState": null})),
            ("tools/call", json!({"name": "tasks/get"})),
            ("initialize", json!({})),
            ("server/discover", json!({})),
            ("subscriptions/listen", json!({})),
        ] {
            assert!(!continues(method, params), "{method}");
        }
        assert!(!continues_work("tools/list", None));
    }

    #[test]
    fn a_refusal_says_when_to_send_the_request_again() {
        let other = RpcError::new(ErrorCode::INTERNAL_ERROR, "shutting down");

        assert_eq!(retry_after(&refusal()), Some(SECOND));
        assert_eq!(retry_after(&other), None);
        assert_eq!(
            refusal().data.unwrap().as_str(),
            r#"{"retryable":true,"retryAfter":1}"#
        );
    }
}
