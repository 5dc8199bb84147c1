//! A call as an application makes it: on what terms, whether it is polled, and how it ends.

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

use crate::chance::Chance;
use crate::ledger::{Ledger, Permit};
use crate::scene::Column;
use crate::work::{Act, Job, NO_CROSSED_ANSWERS, number_of};

/// On what terms a call is made.
#[derive(Debug)]
pub(crate) struct Terms {
    id: Option<RequestId>,
    idle: Option<u64>,
    total: Option<u64>,
    wants_progress: bool,
    is_stubborn: bool,
    /// Whether letting go of it is to be kept from the server.
    is_secret: bool,
}

impl Terms {
    pub(crate) fn by_chance<'a>(
        chance: &Chance,
        column: Column,
        mut others: impl Iterator<Item = &'a Calling>,
    ) -> Self {
        let millis = |chance: &Chance| 1 + chance.below(300) as u64;
        let id = chance.one_in(4).then(|| match chance.below(4) {
            0 => RequestId::from(7001),
            1 => RequestId::from("7001"),
            _ => RequestId::from("x"),
        });
        // Where nothing else tells the late answer to a call that was given up from the answer to a successor
        // with the same id, a caller that chooses ids does not choose that one again.
        let mut may_get_a_late_answer = |id: &RequestId| {
            others.any(|call| {
                let is_told_apart = column.closing_is_cancelling()
                    || (column.ends_its_posts()
                        && !column.loses_posts()
                        && !call.state.terms.is_secret);
                call.gave_up(id) && !is_told_apart
            })
        };
        let id = id.filter(|id| !may_get_a_late_answer(id));
        Self {
            id,
            idle: chance.one_in(6).then(|| millis(chance)),
            total: chance.one_in(6).then(|| millis(chance)),
            wants_progress: chance.one_in(2),
            is_stubborn: chance.one_in(8),
            is_secret: chance.one_in(12),
        }
    }
}

/// A call that an application has begun.
pub(crate) struct Calling {
    pub(crate) party: char,
    pub(crate) tag: String,
    state: Arc<State>,
    task: Option<AbortHandle>,
}

struct State {
    call: Mutex<Option<Call>>,
    fate: Mutex<Fate>,
    /// Whether it was under way when something happened that may cost it its answer.
    is_excused: AtomicBool,
    job: Job,
    terms: Terms,
    ledger: Ledger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Answered,
    /// Let go of, or given up at a deadline.
    GivenUp,
}

impl Calling {
    pub(crate) fn begin(
        client: &Client,
        party: char,
        job: Job,
        terms: Terms,
        ledger: &Ledger,
    ) -> Self {
        ledger.note(format_args!(
            "{} is called: {:?} on {terms:?}",
            job.tag, job.acts
        ));
        let tool = if terms.is_stubborn {
            "stubborn"
        } else {
            "work"
        };
        let mut draft = client.call_tool(tool, &job);
        if let Some(id) = &terms.id {
            draft = draft.id(id.clone());
        }
        if let Some(idle) = terms.idle {
            draft = draft.timeout(Duration::from_millis(idle));
        }
        if let Some(total) = terms.total {
            draft = draft.total_timeout(Duration::from_millis(total));
        }
        if terms.wants_progress {
            let (ledger, tag) = (ledger.clone(), job.tag.clone());
            draft = draft.on_progress(move |progress| {
                ledger.note(format_args!("{tag} hears of {}", progress.progress));
                if progress.total != Some(number_of(&tag)) {
                    ledger.broken(
                        "nobody hears another's progress",
                        format_args!("{tag}: {progress:?}"),
                    );
                }
            });
        }
        let call = draft.cancel_on_abandon(!terms.is_secret).start();
        let tag = job.tag.clone();
        let state = State {
            call: Mutex::new(Some(call)),
            fate: Mutex::new(Fate::Open),
            is_excused: AtomicBool::new(false),
            job,
            terms,
            ledger: ledger.clone(),
        };
        Self {
            party,
            tag,
            state: Arc::new(state),
            task: None,
        }
    }

    /// Has it polled from now on.
    pub(crate) fn take_up(&mut self) {
        let state = self.state.clone();
        let task = tokio::spawn(async move {
            let begun = Instant::now();
            if let Some(outcome) = poll_fn(|cx| state.poll(cx)).await {
                state.judge(outcome, begun);
            }
        });
        self.task = Some(task.abort_handle());
    }

    /// Lets go of it, with a reason or without.
    pub(crate) fn let_go(&mut self, reason: Option<&str>) {
        let call = lock(&self.state.call).take();
        let Some(call) = call else { return };
        self.state
            .ledger
            .note(format_args!("{} is let go of", self.tag));
        *lock(&self.state.fate) = Fate::GivenUp;
        match reason {
            Some(reason) => call.cancel(reason),
            None => drop(call),
        }
        self.task.iter().for_each(AbortHandle::abort);
    }

    /// Something happens that may cost it its answer, if it is under way.
    pub(crate) fn excuse(&self) {
        self.state.is_excused.store(true, Relaxed);
    }

    pub(crate) fn is_open(&self) -> bool {
        *lock(&self.state.fate) == Fate::Open
    }

    pub(crate) fn is_only_begun(&self) -> bool {
        self.is_open() && self.task.is_none()
    }

    /// Whether its handler must stop, because nobody waits for it and the server was told so.
    pub(crate) fn must_have_stopped(&self) -> bool {
        *lock(&self.state.fate) == Fate::GivenUp && !self.state.terms.is_secret
    }

    pub(crate) fn chosen_id(&self) -> Option<&RequestId> {
        self.state.terms.id.as_ref()
    }

    /// Whether it had this id and was given up.
    fn gave_up(&self, id: &RequestId) -> bool {
        let is_same = |own: &RequestId| CorrelationKey::from(own) == CorrelationKey::from(id);
        self.state.terms.id.as_ref().is_some_and(is_same)
            && *lock(&self.state.fate) != Fate::Answered
    }
}

impl State {
    /// The outcome, or nothing if it was let go of.
    fn poll(&self, cx: &mut task::Context<'_>) -> Poll<Option<Result<Reply>>> {
        let mut call = lock(&self.call);
        let Some(polled) = call.as_mut() else {
            return Poll::Ready(None);
        };
        let outcome = task::ready!(Pin::new(polled).poll(cx));
        *call = None;
        Poll::Ready(Some(outcome))
    }

    /// Whether a call may end this way.
    fn judge(&self, outcome: Result<Reply>, begun: Instant) {
        let Self {
            job, terms, ledger, ..
        } = self;
        let tag = &job.tag;
        let took = begun.elapsed();
        let late = |total: u64| took > Duration::from_millis(total + 1);
        // While a host decides, the clock of its call stands still.
        let asks = job.acts.iter().any(|act| matches!(act, Act::Ask(_)));
        if terms.total.is_some_and(late) && !asks {
            ledger.broken(
                "a call is over at its deadline",
                format_args!("{tag} took {took:?}"),
            );
        }
        let mut fate = Fate::Answered;
        let is_fine = match &outcome {
            Ok(reply) => {
                let text = reply.text();
                if text != *tag {
                    ledger.broken(NO_CROSSED_ANSWERS, format_args!("{tag} got {text:?}"));
                }
                true
            }
            Err(Error::Timeout { .. }) => {
                fate = Fate::GivenUp;
                terms.idle.is_some() || terms.total.is_some() || ledger.permits(Permit::TimeOut)
            }
            Err(Error::Transport { .. } | Error::Closed) => {
                self.is_excused.load(Relaxed)
                    || ledger.permits(Permit::ConnectionLost)
                    // A call that asks something is made of several requests in the modern era.
                    || (ledger.permits(Permit::LostUnbegun) && (asks || !ledger.has_worked(tag)))
            }
            Err(Error::Misuse { .. }) => terms.id.is_some(),
            Err(_) => self.is_excused.load(Relaxed),
        };
        *lock(&self.fate) = fate;
        let outcome = outcome.map(|_| "its answer");
        ledger.note(format_args!("{tag} gets {outcome:?}"));
        if !is_fine && !ledger.is_wrecked() {
            ledger.broken(
                "a call gets its own answer",
                format_args!("{tag} got {outcome:?}"),
            );
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
