//! How far a request has come, told in an order that only grows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_types::{ProgressNotificationParams, ProgressToken};

/// How far a request has come.
///
/// # Examples
///
/// ```
/// use bowline::Progress;
///
/// let half = Progress::at(2.0).of(4.0).message("second of four files");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "it is sent by `Context::progress`"]
pub struct Progress {
    at: f64,
    total: Option<f64>,
    message: Option<String>,
}

impl Progress {
    /// As far as this, in whatever unit; it must grow from one report to the next.
    pub fn at(at: f64) -> Self {
        Self {
            at,
            total: None,
            message: None,
        }
    }

    /// Out of this many.
    pub fn of(mut self, total: f64) -> Self {
        self.total = Some(total);
        self
    }

    /// With a sentence for people.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
}

impl Progress {
    pub(super) fn into_params(self, token: ProgressToken) -> ProgressNotificationParams {
        let mut params = ProgressNotificationParams::new(token, self.at);
        // What is no number has no form in JSON.
        params.total = self.total.filter(|total| total.is_finite());
        params.message = self.message;
        params
    }
}

impl From<f64> for Progress {
    fn from(at: f64) -> Self {
        Self::at(at)
    }
}

/// What was reported of one request, from however many threads.
#[derive(Default)]
pub(super) struct Reports(Mutex<State>);

#[derive(Default)]
struct State {
    highest: Option<f64>,
    is_sending: bool,
    /// What came while another report was being sent; of several, the last.
    next: Option<Progress>,
}

impl Reports {
    /// Sends `progress` if it is above all before it; if another report is being sent, whoever does that sends
    /// this one after it.
    pub(super) fn send(&self, progress: Progress, send: impl Fn(Progress)) {
        let at = progress.at;
        let mut next = match self.admit(progress) {
            Ok(now) => now,
            Err(DoesNotGrow) => {
                tracing::debug!(at, "progress does not grow and is not sent");
                None
            }
        };
        while let Some(progress) = next {
            send(progress);
            next = self.next();
        }
    }

    /// What is to be sent right now.
    fn admit(&self, progress: Progress) -> Result<Option<Progress>, DoesNotGrow> {
        let mut state = self.lock();
        // Written so that a NaN is never sent either.
        let grows = state.highest.is_none_or(|highest| progress.at > highest);
        if !(grows && progress.at.is_finite()) {
            return Err(DoesNotGrow);
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
        let mut state = self.lock();
        let next = state.next.take();
        state.is_sending = next.is_some();
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that could panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct DoesNotGrow;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_is_reported_while_another_report_is_sent_comes_after_it() {
        let reports = Reports::default();
        let sent = RefCell::new(Vec::new());

        reports.send(Progress::at(1.0), |progress| {
            if progress.at == 1.0 {
                for at in [2.0, 4.0, 3.0] {
                    reports.send(at.into(), |it| sent.borrow_mut().push(it.at));
                }
            }
            sent.borrow_mut().push(progress.at);
        });
        reports.send(Progress::at(5.0), |it| sent.borrow_mut().push(it.at));

        assert_eq!(sent.into_inner(), [1.0, 4.0, 5.0]);
    }

    #[test]
    fn what_does_not_grow_is_not_sent() {
        let reports = Reports::default();
        let sent = RefCell::new(Vec::new());

        for at in [f64::NAN, 1.0, 1.0, 0.5, f64::INFINITY, 2.0, f64::NAN] {
            reports.send(at.into(), |it| sent.borrow_mut().push(it.at));
        }

        assert_eq!(sent.into_inner(), [1.0, 2.0]);
    }

    #[test]
    fn a_total_that_is_no_number_is_left_out() {
        for (total, told) in [(4.0, Some(4.0)), (f64::NAN, None), (f64::INFINITY, None)] {
            let params = Progress::at(1.0).of(total).into_params(1.into());

            assert_eq!(params.total, told);
        }
    }
}
