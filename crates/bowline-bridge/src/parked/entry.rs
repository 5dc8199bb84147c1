//! One call of the table: its phase, its questions and its deadlines.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline::exchange::{Caller, Digest, InputKind, Outcome, Principal, RawInputRequest};
use tokio::time::Instant;

use super::budget::Charge;
use super::settings::{ParkSettings, SEAL_GRACE, instant_after};

/// Identifies a call in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Serial(pub(super) u64);

/// Identifies a question within its call. It is the key in `inputRequests`, and is not used again in the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QuestionKey(u32);

impl fmt::Display for QuestionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "q{}", self.0)
    }
}

/// A call, until it ends.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) principal: Principal,
    /// Of the request; `None` until the call is first parked, because most calls are not.
    pub(super) digest: Option<Digest>,
    /// The sender of the latest request: a retry may declare other capabilities than the first request.
    pub(super) caller: Arc<Caller>,
    /// The length of the params of the request, which is kept as long as the call runs.
    request_bytes: usize,
    pub(super) phase: Phase,
    /// The number of times that the call was parked, and of the round whose state may be used while it is parked.
    pub(super) round: u32,
    pub(super) questions: BTreeMap<QuestionKey, Question>,
    next_key: u32,
    /// `Some` in every phase but `Attached`.
    pub(super) charge: Option<Charge>,
    /// `None` until the call is first parked.
    pub(super) times: Option<ParkedTimes>,
    /// Whether the call is a task. It is attached to its runner then, and charged.
    pub(super) is_task: bool,
}

/// Where a call is.
///
/// ```text
///            park                     answered
///  Attached ─────▶ Parked ──────────────────────▶ Answered
///      ▲             │ ▲ │                            │
///      └─── retry ───┘ └─┘ retry, questions are left  │ retry
/// ```
#[derive(Debug)]
pub(super) enum Phase {
    /// A client waits; its front owns the running call.
    Attached,
    /// No client waits; the keeper owns the running call.
    Parked,
    /// No client waits and the upstream has answered.
    Answered(Outcome),
}

/// A request of the upstream that waits for the client's answer.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: RawInputRequest,
    asked_at: Instant,
    /// Whether the client received it in the current round.
    pub(super) is_shown: bool,
}

/// When a parked call ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParkedTimes {
    first_parked: Instant,
    /// The call is cancelled if no retry arrives before.
    pub(super) deadline: Instant,
}

/// One `input_required` result: what the client must answer, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) serial: Serial,
    pub(super) number: u32,
    pub(super) questions: Vec<(QuestionKey, RawInputRequest)>,
    pub(super) deadline: Instant,
    /// The lifetime of the sealed state.
    pub(super) seal_lifetime: Duration,
}

impl Entry {
    pub(super) fn new(principal: Principal, caller: Arc<Caller>, request_bytes: usize) -> Self {
        Self {
            principal,
            digest: None,
            caller,
            request_bytes,
            phase: Phase::Attached,
            round: 0,
            questions: BTreeMap::new(),
            next_key: 1,
            charge: None,
            times: None,
            is_task: false,
        }
    }

    /// Adds a question and returns its key.
    pub(super) fn add_question(&mut self, request: RawInputRequest, now: Instant) -> QuestionKey {
        let key = QuestionKey(self.next_key);
        self.next_key = self.next_key.saturating_add(1);
        let question = Question {
            // A slice of a frame would keep the whole frame in memory.
            request: RawInputRequest::new(
                request.kind,
                request.params.map(|params| params.to_unshared()),
            ),
            asked_at: now,
            is_shown: false,
        };
        self.questions.insert(key, question);
        key
    }

    /// Returns when the call should be parked, if it has a question.
    pub(super) fn ready_at(&self, settings: &ParkSettings) -> Option<Instant> {
        let ready_at = |question: &Question| match question.request.kind {
            InputKind::Roots => instant_after(question.asked_at, settings.roots_delay),
            InputKind::Elicitation | InputKind::Sampling => question.asked_at,
        };
        self.questions.values().map(ready_at).min()
    }

    /// Returns when the oldest question was asked.
    pub(super) fn asked_since(&self) -> Option<Instant> {
        let questions = self.questions.values();
        questions.map(|question| question.asked_at).min()
    }

    /// Starts a round: all open questions are shown, and the timeout starts again. `None` if the call may not be parked
    /// any longer.
    pub(super) fn start_round(
        &mut self,
        serial: Serial,
        settings: &ParkSettings,
        now: Instant,
    ) -> Option<Round> {
        let first_parked = self.times.map_or(now, |times| times.first_parked);
        let deadline = instant_after(now, settings.park_timeout)
            .min(instant_after(first_parked, settings.max_parked_time));
        if deadline <= now {
            return None;
        }
        self.times = Some(ParkedTimes {
            first_parked,
            deadline,
        });
        self.round = self.round.saturating_add(1);
        self.phase = Phase::Parked;
        let questions = self.questions.iter_mut().map(|(key, question)| {
            question.is_shown = true;
            (*key, question.request.clone())
        });
        Some(Round {
            serial,
            number: self.round,
            questions: questions.collect(),
            deadline,
            seal_lifetime: deadline - now + SEAL_GRACE,
        })
    }

    /// Returns how long the latest sealed state opens at most; `None` if the call was never parked.
    pub(super) fn sealed_until(&self) -> Option<Instant> {
        self.times.map(|times| times.deadline + SEAL_GRACE)
    }

    /// Returns the bytes that the entry must be charged with.
    pub(super) fn needed_bytes(&self) -> usize {
        let questions = self.questions.values().map(Question::bytes);
        let kept = match &self.phase {
            Phase::Answered(outcome) => outcome_bytes(outcome),
            // The running call owns its request.
            Phase::Attached | Phase::Parked => self.request_bytes,
        };
        let kept = [BASE_BYTES, self.caller.bytes(), kept];
        kept.into_iter()
            .chain(questions)
            .fold(0, usize::saturating_add)
    }
}

impl Question {
    fn bytes(&self) -> usize {
        let params = self.request.params.as_ref();
        params.map_or(0, |params| params.as_bytes().len())
    }
}

pub(super) fn outcome_bytes(outcome: &Outcome) -> usize {
    match outcome {
        Ok(result) => result.as_bytes().len(),
        Err(error) => {
            let data = error.data.as_ref().map_or(0, |data| data.as_bytes().len());
            error.message.len().saturating_add(data)
        }
    }
}

/// What each parked call is charged with besides its request, questions and outcome: the entry, the keeper's task, the kept
/// notifications ([`MAX_KEPT_BYTES`](super::kept_notifications::MAX_KEPT_BYTES)), and a small error as the outcome.
pub(super) const BASE_BYTES: usize = 24 * 1024;
