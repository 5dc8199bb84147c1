//! The faults that a [`Mock`](super::Mock) injects: delays, errors, lost connections. The same seed injects the same.

use std::hash::{Hash as _, Hasher};
use std::time::Duration;

use bowline_types::RpcError;

/// How long a [`Mock`](super::Mock) takes to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Latency {
    /// No longer than necessary.
    #[default]
    None,
    /// As long as the recorded server took, for each notification, question and answer.
    Recorded,
    /// This time for each answer.
    Fixed(Duration),
}

/// An error that a [`Mock`](super::Mock) answers with, in place of the recorded answer.
///
/// # Examples
///
/// ```
/// use bowline::RpcError;
/// use bowline_recording::InjectedFailure;
///
/// // One in ten requests of any kind.
/// let any = InjectedFailure::rate(0.1);
/// // Every call of a tool.
/// let calls = InjectedFailure::always().method("tools/call").error(RpcError::internal("out of order"));
/// ```
#[derive(Clone, Debug)]
pub struct InjectedFailure {
    method: Option<String>,
    rate: f64,
    error: RpcError,
}

impl InjectedFailure {
    /// Creates a failure of each request with this probability, from 0 to 1.
    #[must_use]
    pub fn rate(rate: f64) -> Self {
        Self {
            method: None,
            rate,
            error: RpcError::internal("injected by the mock"),
        }
    }

    /// Creates a failure of every request.
    #[must_use]
    pub fn always() -> Self {
        Self::rate(1.0)
    }

    /// Restricts the failure to one method.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Sets the error. Defaults to -32603.
    #[must_use]
    pub fn error(mut self, error: RpcError) -> Self {
        self.error = error;
        self
    }

    /// Without a method it concerns all requests but those that a client connects with.
    fn concerns(&self, method: &str) -> bool {
        match &self.method {
            Some(own) => own == method,
            None => method != "server/discover",
        }
    }
}

/// When a [`Mock`](super::Mock) closes a connection without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropAfter {
    /// In place of the answer after this many.
    Answers(u64),
    /// After this many bytes, perhaps in the middle of a message.
    Bytes(u64),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) latency: Latency,
    pub(super) failures: Vec<InjectedFailure>,
    pub(super) drop_after: Option<DropAfter>,
    pub(super) seed: u64,
}

impl Faults {
    /// Returns the error of a request, if it is to fail: the `nth` one that is equal to `request`.
    ///
    /// The decision does not depend on other requests, so that concurrent ones fail in the same way each time.
    pub(super) fn failure(&self, method: &str, request: &str, nth: usize) -> Option<RpcError> {
        let concerned = self.failures.iter().enumerate();
        let concerned = concerned.filter(|(_, failure)| failure.concerns(method));
        let mut failing = concerned.filter(|(index, failure)| {
            let mut hash = Fnv::new(self.seed);
            (method, request, nth, index).hash(&mut hash);
            unit_interval(hash.finish()) < failure.rate
        });
        failing.next().map(|(_, failure)| failure.error.clone())
    }

    /// Returns how long to wait before something that the recorded server did after `recorded`.
    pub(super) fn delay(&self, recorded: Duration) -> Duration {
        match self.latency {
            Latency::None | Latency::Fixed(_) => Duration::ZERO,
            Latency::Recorded => recorded,
        }
    }

    /// Returns how long to wait before an answer.
    pub(super) fn answer_delay(&self, recorded: Duration) -> Duration {
        match self.latency {
            Latency::Fixed(delay) => delay,
            Latency::None | Latency::Recorded => self.delay(recorded),
        }
    }
}

/// FNV-1a with a final mix: the hashers of the standard library may change, and with them what a seed means.
struct Fnv(u64);

impl Fnv {
    fn new(seed: u64) -> Self {
        let mut hash = Self(0xCBF2_9CE4_8422_2325);
        hash.write(&seed.to_le_bytes());
        hash
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Maps a hash to a number from 0 to 1, without 1.
#[allow(
    clippy::cast_precision_loss,
    reason = "53 bits are represented exactly"
)]
fn unit_interval(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(seed: u64, rate: f64) -> Vec<usize> {
        let faults = Faults {
            failures: vec![InjectedFailure::rate(rate).method("tools/call")],
            seed,
            ..Faults::default()
        };
        let fails = |nth: &usize| faults.failure("tools/call", "{}", *nth).is_some();
        (0..1000).filter(fails).collect()
    }

    #[test]
    fn a_seed_decides_which_requests_fail() {
        let (first, again, other) = (failed(1, 0.1), failed(1, 0.1), failed(2, 0.1));

        assert_eq!(first, again);
        assert_ne!(first, other);
        assert!((50..200).contains(&first.len()), "{}", first.len());
        assert_eq!(failed(1, 0.0).len(), 0);
        assert_eq!(failed(1, 1.0).len(), 1000);
    }

    #[test]
    fn a_failure_concerns_its_method_or_all_but_connecting() {
        let faults = |failure| Faults {
            failures: vec![failure],
            ..Faults::default()
        };
        let fails = |failure, method| faults(failure).failure(method, "{}", 0).is_some();

        assert!(fails(InjectedFailure::always(), "tools/list"));
        assert!(!fails(InjectedFailure::always(), "server/discover"));
        assert!(fails(
            InjectedFailure::always().method("server/discover"),
            "server/discover"
        ));
        assert!(!fails(
            InjectedFailure::always().method("tools/call"),
            "tools/list"
        ));
    }

    #[test]
    fn a_fixed_latency_is_that_of_answers_only() {
        let second = Duration::from_secs(1);
        let faults = |latency| Faults {
            latency,
            ..Faults::default()
        };

        let fixed = faults(Latency::Fixed(second));
        assert_eq!(
            (fixed.delay(2 * second), fixed.answer_delay(2 * second)),
            (Duration::ZERO, second)
        );
        assert_eq!(faults(Latency::Recorded).delay(2 * second), 2 * second);
        assert_eq!(
            faults(Latency::None).answer_delay(2 * second),
            Duration::ZERO
        );
    }
}
