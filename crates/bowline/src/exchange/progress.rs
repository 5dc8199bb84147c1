//! [`Progress`], and [`ProgressReports`], which sends `notifications/progress` with increasing values only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_core::json::pick;
use bowline_core::{CorrelationKey, Notification};
use bowline_types::{ProgressNotificationParams, ProgressToken, meta_key};
use tokio::time::Instant;

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

/// A progress report that is to be sent.
pub(super) enum Report {
    Typed(Progress),
    /// A notification that is sent as it is.
    Raw {
        notification: Notification,
        at: f64,
        total: Option<f64>,
    },
}

impl Report {
    /// Reads a progress notification. Returns it as the error if it has another token or no valid value: then it has no
    /// order among the reports.
    pub(super) fn from_raw(
        notification: Notification,
        token: Option<&ProgressToken>,
    ) -> Result<Self, Notification> {
        match read_progress(&notification, token) {
            Some((at, total)) => Ok(Self::Raw {
                notification,
                at,
                total,
            }),
            None => Err(notification),
        }
    }

    fn at(&self) -> f64 {
        match self {
            Self::Typed(progress) => progress.at,
            Self::Raw { at, .. } => *at,
        }
    }

    fn total(&self) -> Option<f64> {
        match self {
            Self::Typed(progress) => progress.total,
            Self::Raw { total, .. } => *total,
        }
    }
}

/// Returns the `progress` and the `total` of a progress notification with this token.
fn read_progress(
    notification: &Notification,
    token: Option<&ProgressToken>,
) -> Option<(f64, Option<f64>)> {
    let names = [meta_key::PROGRESS_TOKEN, "progress", "total"];
    let [own_token, at, total] = pick(notification.params.as_ref()?, names).ok()?;
    let own_token: ProgressToken = own_token?.decode().ok()?;
    if CorrelationKey::from(&own_token) != CorrelationKey::from(token?) {
        return None;
    }
    let total = total.and_then(|total| total.decode().ok());
    Some((at?.decode().ok()?, total))
}

/// The progress reports of one request. They may come from several threads.
#[derive(Default)]
pub(super) struct ProgressReports {
    state: Mutex<ReportState>,
    /// Whether raw notifications count as reports too. Set once `ReportState::watch` is.
    is_watched: AtomicBool,
}

#[derive(Default)]
struct ReportState {
    highest: Option<f64>,
    is_sending: bool,
    /// The latest report that arrived while another one was being sent.
    next: Option<Report>,
    watch: Option<Watch>,
}

/// What heartbeats have to know of the reports.
struct Watch {
    /// When a report was sent last, heartbeats included.
    sent_at: Instant,
    /// When the handler reported last, even if the report was not sent.
    reported_at: Instant,
    /// The total of the last report.
    total: Option<f64>,
}

impl ProgressReports {
    /// Sends `report` if it is greater than all previous reports. If another thread is sending a report, that
    /// thread sends this one afterwards: `send` runs without the lock, so two threads could send out of order.
    pub(super) fn send(&self, report: Report, send: impl Fn(Report)) {
        let at = report.at();
        match self.admit(report) {
            Ok(now) => self.send_admitted(now, send),
            Err(NotIncreasing) => {
                tracing::debug!(
                    at,
                    "dropped a progress report that is not finite or does not increase"
                );
            }
        }
    }

    /// Sends a report that is above the last one by the smallest step. Does nothing if a report is being sent, or if no
    /// number is above the last one.
    pub(super) fn send_heartbeat(&self, send: impl Fn(Report)) {
        self.send_admitted(self.admit_heartbeat(), send);
    }

    fn send_admitted(&self, mut next: Option<Report>, send: impl Fn(Report)) {
        let reset = ResetOnPanic(self);
        while let Some(report) = next {
            send(report);
            next = self.next();
        }
        std::mem::forget(reset);
    }

    /// Records a report. Returns it if the caller must send it.
    fn admit(&self, report: Report) -> Result<Option<Report>, NotIncreasing> {
        let mut state = self.state.lock();
        let at = report.at();
        // A NaN as the first report passes `is_none_or`, so `is_finite` is checked too.
        let increases = state.highest.is_none_or(|highest| at > highest) && at.is_finite();
        if let Some(watch) = &mut state.watch {
            watch.reported(report.total(), increases);
        }
        if !increases {
            return Err(NotIncreasing);
        }
        state.highest = Some(at);
        if state.is_sending {
            state.next = Some(report);
            return Ok(None);
        }
        state.is_sending = true;
        Ok(Some(report))
    }

    fn admit_heartbeat(&self) -> Option<Report> {
        let mut state = self.state.lock();
        if state.is_sending {
            return None;
        }
        let at = step_above(state.highest)?;
        let watch = state.watch.as_mut()?;
        watch.sent_at = Instant::now();
        // More than the total would look like an error of the handler.
        let total = watch.total.filter(|total| at <= *total);
        state.highest = Some(at);
        state.is_sending = true;
        Some(Report::Typed(Progress {
            at,
            total,
            message: None,
        }))
    }

    fn next(&self) -> Option<Report> {
        let mut state = self.state.lock();
        let next = state.next.take();
        state.is_sending = next.is_some();
        next
    }

    /// Starts to watch, as of now; does nothing if it has started.
    pub(super) fn watch(&self) {
        let mut state = self.state.lock();
        if state.watch.is_none() {
            let now = Instant::now();
            state.watch = Some(Watch {
                sent_at: now,
                reported_at: now,
                total: None,
            });
            self.is_watched.store(true, Ordering::Release);
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    /// Returns how long nothing was sent, and how long the handler reported nothing; zero if they are not watched.
    pub(super) fn silence(&self) -> (Duration, Duration) {
        let state = self.state.lock();
        let silence = state.watch.as_ref();
        silence.map_or_else(Default::default, |watch| {
            (watch.sent_at.elapsed(), watch.reported_at.elapsed())
        })
    }
}

impl Watch {
    fn reported(&mut self, total: Option<f64>, is_sent: bool) {
        let now = Instant::now();
        self.reported_at = now;
        if is_sent {
            self.sent_at = now;
            self.total = total;
        }
    }
}

/// Returns the smallest number above `last` that is fit for JSON; `None` after the largest one.
fn step_above(last: Option<f64>) -> Option<f64> {
    let Some(last) = last else {
        return Some(SMALLEST_PROGRESS);
    };
    let next = last.next_up();
    // Some JSON parsers refuse subnormal numbers such as 5e-324, which is the one after zero.
    let next = match next.is_subnormal() || next == 0.0 {
        true => SMALLEST_PROGRESS,
        false => next,
    };
    next.is_finite().then_some(next)
}

/// The heartbeat after zero, or before the first report.
const SMALLEST_PROGRESS: f64 = 1e-9;

struct NotIncreasing;

/// Lets the next report be sent after a panic of `send`; without this, every later report would only be queued.
struct ResetOnPanic<'a>(&'a ProgressReports);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_sending = false;
        state.next = None; // would be sent after a later, greater report
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use bowline_types::Json;

    use super::*;

    fn typed(at: f64) -> Report {
        Report::Typed(at.into())
    }

    #[test]
    fn a_report_during_another_one_is_sent_after_it() {
        let reports = ProgressReports::default();
        let sent = RefCell::new(Vec::new());

        reports.send(typed(1.0), |report| {
            if report.at() == 1.0 {
                for at in [2.0, 4.0, 3.0] {
                    reports.send(typed(at), |it| sent.borrow_mut().push(it.at()));
                }
            }
            sent.borrow_mut().push(report.at());
        });
        reports.send(typed(5.0), |it| sent.borrow_mut().push(it.at()));

        assert_eq!(sent.into_inner(), [1.0, 4.0, 5.0]);
    }

    #[test]
    fn reports_are_sent_after_one_whose_sink_panics() {
        let reports = ProgressReports::default();
        let sent = RefCell::new(Vec::new());

        let panicking = AssertUnwindSafe(|| {
            reports.send(typed(1.0), |_| {
                reports.send(typed(2.0), |_| {});
                panic!("the sink panics")
            });
        });
        assert!(catch_unwind(panicking).is_err());
        for at in [3.0, 4.0] {
            reports.send(typed(at), |it| sent.borrow_mut().push(it.at()));
        }

        assert_eq!(sent.into_inner(), [3.0, 4.0]);
    }

    #[test]
    fn a_report_that_does_not_increase_is_not_sent() {
        let reports = ProgressReports::default();
        let sent = RefCell::new(Vec::new());

        for at in [f64::NAN, 1.0, 1.0, 0.5, f64::INFINITY, 2.0, f64::NAN] {
            reports.send(typed(at), |it| sent.borrow_mut().push(it.at()));
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

    #[test]
    fn the_step_is_the_smallest_that_json_parsers_can_read() {
        for (last, expected) in [
            (None, Some(1e-9)),
            (Some(0.0), Some(1e-9)),
            (Some(-0.0), Some(1e-9)),
            (Some(-5e-324), Some(1e-9)),
            (Some(1.0), Some(1.0 + f64::EPSILON)),
            (Some(-1.0), Some(-1.0 + f64::EPSILON / 2.0)),
            (Some(9_007_199_254_740_992.0), Some(9_007_199_254_740_994.0)),
            (Some(f64::MAX), None),
        ] {
            assert_eq!(step_above(last), expected, "after {last:?}");
        }
    }

    #[test]
    fn a_raw_report_with_another_token_or_without_a_number_has_no_order() {
        let token = ProgressToken::from(1);
        for (params, expected) in [
            (r#"{"progressToken":1,"progress":2}"#, Some(2.0)),
            (r#"{"progressToken":"1","progress":0.5}"#, Some(0.5)),
            (r#"{"progressToken":2,"progress":2}"#, None),
            (r#"{"progress":2}"#, None),
            (r#"{"progressToken":1}"#, None),
            (r#"{"progressToken":1,"progress":"2"}"#, None),
            (r#"{"progressToken":1,"progress":1e999}"#, None),
        ] {
            let params = Json::parse(params.to_owned()).unwrap();
            let notification = Notification::new("notifications/progress", Some(params.clone()));

            let at = read_progress(&notification, Some(&token)).map(|(at, _)| at);

            assert_eq!(at, expected, "{params:?}");
            assert_eq!(read_progress(&notification, None), None);
        }
    }
}
