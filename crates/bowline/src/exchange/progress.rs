//! [`Progress`], and [`ProgressReports`], which sends `notifications/progress` with increasing values only.

use bowline_types::{ProgressNotificationParams, ProgressToken};

use crate::sync::Mutex;

/// The progress of a request, for `notifications/progress`.
///
/// # Examples
///
/// ```
/// use bowline::Progress;
///
/// let half = Progress::new(2).total(4).message("second of four files");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "progress is sent by `Context::progress`"]
pub struct Progress {
    at: f64,
    total: Option<f64>,
    message: Option<String>,
}

impl Progress {
    /// Creates a report of `progress`, in any unit. It must increase from one report to the next.
    pub fn new(progress: impl ProgressValue) -> Self {
        Self {
            at: progress.to_f64(),
            total: None,
            message: None,
        }
    }

    /// Sets the `total`.
    pub fn total(mut self, total: impl ProgressValue) -> Self {
        self.total = Some(total.to_f64());
        self
    }

    /// Sets the human-readable `message`.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    pub(crate) fn into_params(self, token: ProgressToken) -> ProgressNotificationParams {
        let mut params = ProgressNotificationParams::new(token, self.at);
        // JSON has no NaN and no infinity.
        params.total = self.total.filter(|total| total.is_finite());
        params.message = self.message;
        params
    }
}

impl<V: ProgressValue> From<V> for Progress {
    fn from(progress: V) -> Self {
        Self::new(progress)
    }
}

/// A number that can be reported as progress: every integer and float. The protocol has doubles.
pub trait ProgressValue {
    /// Returns the number as the protocol sends it.
    fn to_f64(self) -> f64;
}

macro_rules! progress_values {
    ($($number:ty)*) => {$(
        #[allow(clippy::cast_precision_loss, clippy::cast_lossless, reason = "counts above 2^53 may be rounded")]
        impl ProgressValue for $number {
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}

progress_values!(f32 f64 i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize);

/// The progress reports of one request. They may come from several threads.
#[derive(Default)]
pub(super) struct ProgressReports(Mutex<ReportState>);

#[derive(Default)]
struct ReportState {
    highest: Option<f64>,
    is_sending: bool,
    /// The latest report that arrived while another one was being sent.
    next: Option<Progress>,
}

impl ProgressReports {
    /// Sends `progress` if it is greater than all previous reports. If another thread is sending a report, that
    /// thread sends this one afterwards: `send` runs without the lock, so two threads could send out of order.
    pub(super) fn send(&self, progress: Progress, send: impl Fn(Progress)) {
        let at = progress.at;
        let mut next = match self.admit(progress) {
            Ok(now) => now,
            Err(NotIncreasing) => {
                tracing::debug!(
                    at,
                    "dropped a progress report that is not finite or does not increase"
                );
                None
            }
        };
        let reset = ResetOnPanic(self);
        while let Some(progress) = next {
            send(progress);
            next = self.next();
        }
        std::mem::forget(reset);
    }

    /// Records a report. Returns it if the caller must send it.
    fn admit(&self, progress: Progress) -> Result<Option<Progress>, NotIncreasing> {
        let mut state = self.0.lock();
        // A NaN as the first report passes `is_none_or`, so `is_finite` is checked too.
        let increases = state.highest.is_none_or(|highest| progress.at > highest);
        if !(increases && progress.at.is_finite()) {
            return Err(NotIncreasing);
        }
        state.highest = Some(progress.at);
        if state.is_sending {
            state.next = Some(progress);
            return Ok(None);
        }
        state.is_sending = true;
        Ok(Some(progress))
    }

    fn next(&self) -> Option<Progress> {
        let mut state = self.0.lock();
        let next = state.next.take();
        state.is_sending = next.is_some();
        next
    }
}

struct NotIncreasing;

/// Lets the next report be sent after a panic of `send`; without this, every later report would only be queued.
struct ResetOnPanic<'a>(&'a ProgressReports);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.is_sending = false;
        state.next = None; // would be sent after a later, greater report
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_report_during_another_one_is_sent_after_it() {
        let reports = ProgressReports::default();
        let sent = RefCell::new(Vec::new());

        reports.send(Progress::new(1.0), |progress| {
            if progress.at == 1.0 {
                for at in [2.0, 4.0, 3.0] {
                    reports.send(at.into(), |it| sent.borrow_mut().push(it.at));
                }
            }
            sent.borrow_mut().push(progress.at);
        });
        reports.send(Progress::new(5.0), |it| sent.borrow_mut().push(it.at));

        assert_eq!(sent.into_inner(), [1.0, 4.0, 5.0]);
    }

    #[test]
    fn reports_are_sent_after_one_whose_sink_panics() {
        let reports = ProgressReports::default();
        let sent = RefCell::new(Vec::new());

        let panicking = AssertUnwindSafe(|| {
            reports.send(Progress::new(1.0), |_| {
                reports.send(Progress::new(2.0), |_| {});
                panic!("the sink panics")
            });
        });
        assert!(catch_unwind(panicking).is_err());
        for at in [3.0, 4.0] {
            reports.send(at.into(), |it| sent.borrow_mut().push(it.at));
        }

        assert_eq!(sent.into_inner(), [3.0, 4.0]);
    }

    #[test]
    fn a_report_that_does_not_increase_is_not_sent() {
        let reports = ProgressReports::default();
        let sent = RefCell::new(Vec::new());

        for at in [f64::NAN, 1.0, 1.0, 0.5, f64::INFINITY, 2.0, f64::NAN] {
            reports.send(at.into(), |it| sent.borrow_mut().push(it.at));
        }

        assert_eq!(sent.into_inner(), [1.0, 2.0]);
    }

    #[test]
    fn a_total_that_is_not_finite_is_omitted() {
        for (total, expected) in [(4.0, Some(4.0)), (f64::NAN, None), (f64::INFINITY, None)] {
            let params = Progress::new(1.0).total(total).into_params(1.into());

            assert_eq!(params.total, expected);
        }
    }
}
