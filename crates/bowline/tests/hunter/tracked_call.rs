//! A call of an application: its settings, whether it is polled, and a check of its outcome.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Poll};
use std::time::Duration;

use bowline::{Call, Client, Error, Reply, RequestId, Result};
use bowline_core::CorrelationKey;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::handlers::{HandlerStep, Job, OWN_ANSWER_ONLY, tag_hash};
use crate::scene::ScheduleConfig;
use crate::schedule_log::{AllowedFailure, ScheduleLog};
use crate::seeded_random::SeededRandom;

/// The settings of a call.
#[derive(Debug)]
pub(crate) struct CallSettings {
    id: Option<RequestId>,
    /// The `idle_timeout` and the `timeout`, in milliseconds.
    idle: Option<u64>,
    total: Option<u64>,
    wants_progress: bool,
    /// Whether it calls the tool with `CancelMode::Signal`.
    is_signaled: bool,
    /// Whether it sets `cancel_on_drop(false)`.
    opts_out_of_cancel: bool,
    /// Whether its timeouts are paused while a host answers on behalf of another call: a legacy wire does not tell
    /// which call a request of the server belongs to.
    shares_pauses: bool,
}

impl CallSettings {
    /// Draws the settings of a call of the party that made the `others`.
    pub(crate) fn random<'a>(
        random: &SeededRandom,
        config: ScheduleConfig,
        mut others: impl Iterator<Item = &'a TrackedCall>,
    ) -> Self {
        let millis = |random: &SeededRandom| 1 + random.below(300) as u64;
        let id = random.one_in(4).then(|| match random.below(4) {
            0 => RequestId::from(7001),
            1 => RequestId::from("7001"),
            _ => RequestId::from("x"),
        });
        // Where a late answer to an abandoned call cannot be distinguished from the answer to a later call with the
        // same id, a caller must not choose that id again.
        let mut may_get_a_late_answer = |id: &RequestId| {
            others.any(|call| {
                let is_distinguishable = config.cancels_by_closing()
                    || (config.ends_cancelled_posts()
                        && !config.can_lose_posts()
                        && !call.state.settings.opts_out_of_cancel);
                call.was_abandoned_with(id) && !is_distinguishable
            })
        };
        let id = id.filter(|id| !may_get_a_late_answer(id));
        Self {
            id,
            idle: random.one_in(6).then(|| millis(random)),
            total: random.one_in(6).then(|| millis(random)),
            wants_progress: random.one_in(2),
            is_signaled: random.one_in(8),
            opts_out_of_cancel: random.one_in(12),
            shares_pauses: !config.dialect.is_modern(),
        }
    }
}

/// A call that an application has started.
pub(crate) struct TrackedCall {
    pub(crate) party: char,
    pub(crate) tag: String,
    state: Arc<TrackedState>,
    /// The task that polls it, if any.
    task: Option<AbortHandle>,
}

struct TrackedState {
    call: Mutex<Option<Call>>,
    phase: Mutex<CallPhase>,
    /// Whether a fault since it started may have lost its answer.
    is_excused: AtomicBool,
    job: Job,
    settings: CallSettings,
    log: ScheduleLog,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallPhase {
    Pending,
    Answered,
    /// Dropped, cancelled or timed out.
    Abandoned,
}

impl TrackedCall {
    pub(crate) fn start(
        client: &Client,
        party: char,
        job: Job,
        settings: CallSettings,
        log: &ScheduleLog,
    ) -> Self {
        log.note(format_args!(
            "{} starts: {:?} with {settings:?}",
            job.tag, job.plan
        ));
        let tool = if settings.is_signaled {
            "signaled"
        } else {
            "work"
        };
        let mut request = client.call_tool(tool, &job);
        if let Some(id) = &settings.id {
            request = request.id(id.clone());
        }
        if let Some(idle) = settings.idle {
            request = request.idle_timeout(Duration::from_millis(idle));
        }
        if let Some(total) = settings.total {
            request = request.timeout(Duration::from_millis(total));
        }
        if settings.wants_progress {
            let (log, tag) = (log.clone(), job.tag.clone());
            request = request.on_progress(move |progress| {
                log.note(format_args!(
                    "{tag} receives progress {}",
                    progress.progress
                ));
                if progress.total != Some(tag_hash(&tag)) {
                    log.violation(
                        "progress reaches only the caller it belongs to",
                        format_args!("{tag}: {progress:?}"),
                    );
                }
            });
        }
        let request = request.cancel_on_drop(!settings.opts_out_of_cancel);
        let call = request.start();
        let tag = job.tag.clone();
        let state = TrackedState {
            call: Mutex::new(Some(call)),
            phase: Mutex::new(CallPhase::Pending),
            is_excused: AtomicBool::new(false),
            job,
            settings,
            log: log.clone(),
        };
        Self {
            party,
            tag,
            state: Arc::new(state),
            task: None,
        }
    }

    /// Polls it in a task.
    pub(crate) fn start_polling(&mut self) {
        let state = self.state.clone();
        let task = tokio::spawn(async move {
            let (started, before) = (Instant::now(), state.log.host_time());
            if let Some(outcome) = poll_fn(|cx| state.poll(cx)).await {
                let paused = match state.settings.shares_pauses {
                    true => state.log.host_time() - before,
                    false => Duration::ZERO,
                };
                state.check_outcome(outcome, started.elapsed() - paused);
            }
        });
        self.task = Some(task.abort_handle());
    }

    /// Cancels it with a reason, or drops it.
    pub(crate) fn abandon(&mut self, reason: Option<&str>) {
        let call = lock(&self.state.call).take();
        let Some(call) = call else { return };
        self.state
            .log
            .note(format_args!("{} is abandoned", self.tag));
        *lock(&self.state.phase) = CallPhase::Abandoned;
        match reason {
            Some(reason) => call.cancel(reason),
            None => drop(call),
        }
        self.task.iter().for_each(AbortHandle::abort);
    }

    /// Excuses it from getting an answer, because of a fault.
    pub(crate) fn excuse(&self) {
        self.state.is_excused.store(true, Relaxed);
    }

    pub(crate) fn is_pending(&self) -> bool {
        *lock(&self.state.phase) == CallPhase::Pending
    }

    pub(crate) fn is_unpolled(&self) -> bool {
        self.is_pending() && self.task.is_none()
    }

    /// Returns whether its handler must have stopped: it was abandoned and did not opt out of cancelling.
    pub(crate) fn must_be_stopped(&self) -> bool {
        *lock(&self.state.phase) == CallPhase::Abandoned && !self.state.settings.opts_out_of_cancel
    }

    pub(crate) fn chosen_id(&self) -> Option<&RequestId> {
        self.state.settings.id.as_ref()
    }

    /// Returns whether it chose this id and was not answered.
    fn was_abandoned_with(&self, id: &RequestId) -> bool {
        let is_same = |own: &RequestId| CorrelationKey::from(own) == CorrelationKey::from(id);
        self.state.settings.id.as_ref().is_some_and(is_same)
            && *lock(&self.state.phase) != CallPhase::Answered
    }
}

impl TrackedState {
    /// Polls for the outcome, which is `None` if the call was abandoned.
    fn poll(&self, cx: &mut task::Context<'_>) -> Poll<Option<Result<Reply>>> {
        let mut call = lock(&self.call);
        let Some(polled) = call.as_mut() else {
            return Poll::Ready(None);
        };
        let outcome = task::ready!(Pin::new(polled).poll(cx));
        *call = None;
        Poll::Ready(Some(outcome))
    }

    /// Checks the outcome of the call, which took `elapsed` without pauses.
    fn check_outcome(&self, outcome: Result<Reply>, elapsed: Duration) {
        let Self {
            job, settings, log, ..
        } = self;
        let tag = &job.tag;
        let is_late = |total: u64| elapsed > Duration::from_millis(total + 1);
        // The timeout of a call is paused while its own host decides.
        let elicits = job
            .plan
            .iter()
            .any(|step| matches!(step, HandlerStep::Ask(_)));
        if settings.total.is_some_and(is_late) && !elicits {
            log.violation(
                "a call ends at its deadline",
                format_args!("{tag} took {elapsed:?}"),
            );
        }
        let mut phase = CallPhase::Answered;
        let is_allowed = match &outcome {
            Ok(reply) => {
                let text = reply.text();
                if text != *tag {
                    log.violation(OWN_ANSWER_ONLY, format_args!("{tag} got {text:?}"));
                }
                true
            }
            Err(Error::Timeout { .. }) => {
                phase = CallPhase::Abandoned;
                settings.idle.is_some()
                    || settings.total.is_some()
                    || log.allows(AllowedFailure::Timeout)
            }
            Err(Error::Transport { .. } | Error::Closed) => {
                self.is_excused.load(Relaxed)
                    || log.allows(AllowedFailure::ConnectionLost)
                    // In the modern era a call that elicits input consists of several requests.
                    || (log.allows(AllowedFailure::LostBeforeHandler)
                        && (elicits || !log.has_handler_started(tag)))
            }
            Err(Error::Misuse { .. }) => settings.id.is_some(),
            Err(error) => {
                let is_unasked = elicits && error.to_string().contains(NO_CALL);
                self.is_excused.load(Relaxed)
                    || (is_unasked && log.allows(AllowedFailure::Question))
            }
        };
        *lock(&self.phase) = phase;
        let outcome = outcome.map(|_| "its answer");
        log.note(format_args!("{tag} gets {outcome:?}"));
        if !is_allowed && !log.allows_any_failure() {
            log.violation(
                "a call gets its own answer",
                format_args!("{tag} got {outcome:?}"),
            );
        }
    }
}

/// What a bridge answers to a question that may be about a call that was abandoned.
const NO_CALL: &str = "no call waits for this request";

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
