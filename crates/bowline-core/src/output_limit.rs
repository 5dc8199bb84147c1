//! [`OutputLimit`]: limits text that another process prints.

use std::time::Duration;

/// Limits the bytes per second of text that another process prints and that is passed on to a terminal or a log.
///
/// A token bucket, of [`BYTES_PER_SECOND`](Self::BYTES_PER_SECOND) by default. When it is empty, all text is dropped and counted until
/// it is full again: of a flood, this passes consecutive lines on, and not every hundredth line.
///
/// Times are those of any clock that does not go back, such as the time since the start of the process.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use bowline_core::OutputLimit;
///
/// let mut limit = OutputLimit::default();
/// assert_eq!(limit.admit(100_000, Duration::ZERO), 65_536);
/// assert_eq!(limit.admit(100, Duration::from_millis(500)), 0);
/// let later = Duration::from_secs(1);
/// assert_eq!(limit.take_dropped(later), Some(34_564));
/// assert_eq!(limit.admit(100, later), 100);
/// ```
#[derive(Clone, Debug)]
pub struct OutputLimit {
    bytes_per_second: u64,
    /// The bytes that may be passed on at the time `filled_at`.
    room: u64,
    filled_at: Duration,
    drops_until: Option<Duration>,
    /// The bytes that were dropped and not reported.
    dropped: u64,
}

impl OutputLimit {
    /// The default of the bytes that are passed on in a second, and at once.
    pub const BYTES_PER_SECOND: u64 = 64 * 1024;

    /// Creates a limit of so many bytes in a second, and at once.
    #[must_use]
    pub const fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            room: bytes_per_second,
            filled_at: Duration::ZERO,
            drops_until: None,
            dropped: 0,
        }
    }

    /// Returns how many of `bytes` that arrive at `now` may be passed on: the first ones. The others are counted as
    /// dropped.
    pub fn admit(&mut self, bytes: usize, now: Duration) -> usize {
        let bytes = bytes as u64;
        self.fill(now);
        if self.is_dropping(now) {
            self.dropped = self.dropped.saturating_add(bytes);
            return 0;
        }
        let admitted = bytes.min(self.room);
        self.room -= admitted;
        self.drops_until = None;
        if admitted < bytes {
            self.dropped = self.dropped.saturating_add(bytes - admitted);
            self.drops_until = Some(now.saturating_add(FILL_TIME));
        }
        usize::try_from(admitted).unwrap_or(usize::MAX)
    }

    /// Returns the number of dropped bytes that was not reported yet, if there is room again.
    pub fn take_dropped(&mut self, now: Duration) -> Option<u64> {
        match self.is_dropping(now) {
            true => None,
            false => self.take_all_dropped(),
        }
    }

    /// Returns the number of dropped bytes that was not reported yet, at the end of the text.
    pub fn take_all_dropped(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.dropped)).filter(|dropped| *dropped > 0)
    }

    /// Returns when there is room again and [`take_dropped`](Self::take_dropped) returns a number; `None` if no dropped
    /// bytes are to be reported.
    #[must_use]
    pub fn reports_at(&self) -> Option<Duration> {
        let at = self.drops_until.unwrap_or_default();
        Some(at).filter(|_| self.dropped > 0)
    }

    fn is_dropping(&self, now: Duration) -> bool {
        self.drops_until.is_some_and(|until| now < until)
    }

    fn fill(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.filled_at).min(FILL_TIME);
        let added = elapsed.as_nanos() * u128::from(self.bytes_per_second) / FILL_TIME.as_nanos();
        // Otherwise the time of many short steps would be lost to rounding.
        if added > 0 {
            let added = u64::try_from(added).unwrap_or(u64::MAX);
            self.room = self.room.saturating_add(added).min(self.bytes_per_second);
            self.filled_at = now;
        }
    }
}

impl Default for OutputLimit {
    fn default() -> Self {
        Self::new(Self::BYTES_PER_SECOND)
    }
}

/// How long an empty bucket takes to fill.
const FILL_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: usize = 64 * 1024;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn text_below_the_limit_is_never_dropped() {
        let mut limit = OutputLimit::default();

        for step in 0..1000 {
            assert_eq!(limit.admit(SECOND / 100, ms(10 * step)), SECOND / 100);
        }

        assert_eq!(limit.take_all_dropped(), None);
        assert_eq!(limit.reports_at(), None);
    }

    #[test]
    fn a_flood_is_passed_on_once_a_second_and_all_of_it_is_counted() {
        let mut limit = OutputLimit::default();
        let (mut passed, mut reported, mut reports) = (0, 0, 0);
        let lines = 100 * 1000;

        for step in 0..lines {
            let now = ms(step / 10); // a megabyte a second, for ten seconds
            if let Some(dropped) = limit.take_dropped(now) {
                reported += dropped;
                reports += 1;
            }
            passed += limit.admit(100, now) as u64;
        }

        reported += limit.take_all_dropped().unwrap_or_default();
        assert_eq!(passed + reported, 100 * lines);
        assert!(passed <= 11 * SECOND as u64, "{passed}");
        assert!(passed >= 9 * SECOND as u64, "{passed}");
        assert!((8..=10).contains(&reports), "{reports}");
    }

    #[test]
    fn a_text_longer_than_the_limit_is_cut() {
        let mut limit = OutputLimit::default();

        assert_eq!(limit.admit(SECOND + 7, ms(0)), SECOND);

        assert_eq!(limit.take_dropped(ms(999)), None);
        assert_eq!(limit.reports_at(), Some(ms(1000)));
        assert_eq!(limit.take_dropped(ms(1000)), Some(7));
        assert_eq!(limit.take_dropped(ms(1000)), None);
        assert_eq!(limit.admit(SECOND, ms(1000)), SECOND);
    }

    #[test]
    fn without_a_limit_nothing_is_dropped() {
        let mut limit = OutputLimit::new(u64::MAX);

        for step in 0..100 {
            assert_eq!(limit.admit(usize::MAX / 200, ms(step)), usize::MAX / 200);
        }

        assert_eq!(limit.take_all_dropped(), None);
    }

    #[test]
    fn many_short_steps_fill_the_bucket_as_well() {
        let mut limit = OutputLimit::default();
        limit.admit(SECOND, ms(0));

        for micros in 0..1_000_000 {
            limit.fill(Duration::from_micros(micros));
        }

        assert!(limit.room > SECOND as u64 * 9 / 10, "{}", limit.room);
    }

    #[test]
    fn a_clock_that_goes_back_and_huge_counts_do_no_harm() {
        let mut limit = OutputLimit::default();
        limit.admit(usize::MAX, Duration::MAX);
        limit.admit(usize::MAX, ms(0));

        assert_eq!(limit.admit(1, ms(0)), 0);
        assert!(limit.take_all_dropped().is_some());
    }
}
