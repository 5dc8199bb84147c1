//! The state machine of parked calls, without I/O: every event of a call and what follows from it. Time is an argument.
//!
//! | phase | event | result | next |
//! |---|---|---|---|
//! | Attached | [`end`](CallTable::end): upstream answers, or the front is dropped | | ended |
//! | Attached | [`ask`](CallTable::ask) without the capability | refused | Attached |
//! | Attached | [`park`](CallTable::park) | a [`Round`] | Parked |
//! | Attached | `park` over budget | refused, "may have run" | ended |
//! | Parked | [`retry`](CallTable::retry) of this round, no question left | [`RetryAction::Attach`] | Attached |
//! | Parked | `retry` of this round, questions left | [`RetryAction::AskAgain`] | Parked |
//! | Parked | `retry` of an older round | refused: already used | Parked |
//! | Parked | `retry` for another principal or request | refused: not issued for it | Parked |
//! | Parked | `ask`, [`withdraw`](CallTable::withdraw) | questions of the next round | Parked |
//! | Parked | [`answered`](CallTable::answered) | outcome kept | Answered |
//! | Answered | `retry` of this round | [`RetryAction::Answer`] | ended |
//! | Parked, Answered | [`expire`](CallTable::expire) | | ended |
//! | ended | `retry` | refused by the tombstone | ended |
//! | Attached | [`start_task`](CallTable::start_task) | charged; a runner is its front | Attached |
//! | Attached, a task | [`answer`](CallTable::answer) | answers to open questions | Attached |
//! | Attached, a task | [`finish_task`](CallTable::finish_task) | outcome kept | Answered |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline::Json;
use bowline::exchange::{Caller, Digest, Outcome, Principal, RawInputRequest};
use tokio::time::Instant;

use super::budget::{Budget, OverBudget, Usage};
use super::entry::{Entry, Phase, Question, QuestionKey, Round, Serial, outcome_bytes};
use super::refusal::{QuestionRefusal, Refusal, Sent, outcome_too_large};
use super::settings::{ParkSettings, instant_after};
use super::task::TaskState;
use super::tombstones::{Ended, Tombstones};

/// All calls of this process that are attached, parked or answered, and the tombstones of ended ones.
#[derive(Debug)]
pub(super) struct CallTable {
    /// The number of attached calls is bounded by the front's limit of requests, that of others by the budget.
    entries: BTreeMap<Serial, Entry>,
    tombstones: Tombstones,
    budget: Budget,
    next_serial: u64,
    settings: ParkSettings,
}

/// A request that carries the state of a parked call.
#[derive(Debug)]
pub(super) struct RetryEvent<'a> {
    pub(super) serial: Serial,
    pub(super) round: u32,
    pub(super) principal: &'a Principal,
    pub(super) digest: Digest,
    pub(super) caller: &'a Arc<Caller>,
    pub(super) responses: &'a BTreeMap<String, Json>,
}

/// The answers of a retry to open questions.
pub(super) type Answers = Vec<(QuestionKey, Json)>;

/// What follows from an accepted retry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RetryAction {
    /// Pass the running call from its keeper to this retry, and the answers to the upstream.
    Attach { answers: Answers },
    /// Pass the answers to the upstream and answer the retry with a new round. The keeper keeps the call.
    AskAgain { answers: Answers, round: Round },
    /// Answer the retry; the call has ended.
    Answer { outcome: Outcome },
}

/// What follows from the outcome of the upstream, while a keeper waits for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnsweredAction {
    /// The outcome is kept until a retry arrives.
    Kept,
    /// A retry was accepted just before: the keeper passes it the outcome.
    PassToRetry(Outcome),
}

/// What follows from the timer of a keeper.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// The call was parked again: its deadline is later.
    NotBefore(Instant),
    /// The call has ended; the keeper cancels it upstream.
    Ended,
    /// A retry has the call, or it has ended before.
    NotParked,
}

impl CallTable {
    pub(super) fn new(settings: ParkSettings) -> Self {
        Self {
            entries: BTreeMap::new(),
            tombstones: Tombstones::default(),
            budget: Budget::new(&settings),
            next_serial: 1,
            settings,
        }
    }

    /// Adds a call, which is attached to its front. `request_bytes` are those of its params.
    pub(super) fn open(
        &mut self,
        principal: Principal,
        caller: Arc<Caller>,
        request_bytes: usize,
    ) -> Serial {
        let serial = Serial(self.next_serial);
        self.next_serial += 1;
        let entry = Entry::new(principal, caller, request_bytes);
        self.entries.insert(serial, entry);
        serial
    }

    /// Charges a call before it is sent, so that a refusal has no side effect.
    pub(super) fn reserve(&mut self, serial: Serial) -> Result<(), Refusal> {
        self.settle_charge(serial)
            .map_err(|OverBudget| Refusal::TooManyCalls(Sent::No))
    }

    /// Adds a question of the upstream.
    pub(super) fn ask(
        &mut self,
        serial: Serial,
        request: RawInputRequest,
        now: Instant,
    ) -> Result<QuestionKey, QuestionRefusal> {
        let entry = self.entries.get_mut(&serial);
        let entry = entry.ok_or(QuestionRefusal::CallEnded)?;
        if request
            .check_capabilities(&entry.caller.capabilities)
            .is_err()
        {
            return Err(QuestionRefusal::Unsupported(request.kind));
        }
        if entry.questions.len() >= MAX_QUESTIONS {
            return Err(QuestionRefusal::TooMany);
        }
        if matches!(entry.phase, Phase::Answered(_)) {
            return Err(QuestionRefusal::CallEnded);
        }
        let key = entry.add_question(request, now);
        // An attached call is charged when it is parked: it may end without.
        let is_charged = entry.is_task || matches!(entry.phase, Phase::Parked);
        if is_charged && self.settle_charge(serial).is_err() {
            self.withdraw(serial, key);
            return Err(QuestionRefusal::TooMany);
        }
        Ok(key)
    }

    /// Removes a question that the upstream has cancelled. A later answer to it is ignored.
    pub(super) fn withdraw(&mut self, serial: Serial, key: QuestionKey) {
        if let Some(entry) = self.entries.get_mut(&serial)
            && entry.questions.remove(&key).is_some()
            && entry.charge.is_some()
        {
            // Never over budget: the bytes decrease.
            let _ = self.settle_charge(serial);
        }
    }

    /// Returns whether a call has a question.
    pub(super) fn has_question(&self, serial: Serial) -> bool {
        let entry = self.entries.get(&serial);
        entry.is_some_and(|entry| !entry.questions.is_empty())
    }

    /// Returns when an attached call should be parked, if it has a question.
    pub(super) fn ready_at(&self, serial: Serial) -> Option<Instant> {
        self.entries.get(&serial)?.ready_at(&self.settings)
    }

    /// Parks an attached call. On a refusal the call has ended, and must be cancelled upstream.
    pub(super) fn park(
        &mut self,
        serial: Serial,
        digest: Digest,
        sent: Sent,
        now: Instant,
    ) -> Result<Round, Refusal> {
        let charged = self.settle_charge(serial);
        let settings = self.settings;
        let refusal = match (charged, self.entries.get_mut(&serial)) {
            (Ok(()), Some(entry)) => {
                entry.digest = Some(digest);
                match entry.start_round(serial, &settings, now) {
                    Some(round) => return Ok(round),
                    None => Refusal::ParkedTooLong,
                }
            }
            (Err(OverBudget), _) => Refusal::TooManyCalls(sent),
            (Ok(()), None) => Refusal::Lost,
        };
        self.end(serial, Ended::Cancelled, now);
        Err(refusal)
    }

    /// Accepts or refuses a retry. A refusal changes nothing.
    pub(super) fn retry(
        &mut self,
        retry: &RetryEvent<'_>,
        now: Instant,
    ) -> Result<RetryAction, Refusal> {
        self.tombstones.remove_expired(now);
        let answers = self.check_retry(retry, now)?;
        let serial = retry.serial;
        let settings = self.settings;
        let entry = self.entries.get_mut(&serial).ok_or(Refusal::Expired)?;
        if matches!(entry.phase, Phase::Answered(_)) {
            let ended = self.end(serial, Ended::Answered, now);
            return match ended.map(|entry| entry.phase) {
                Some(Phase::Answered(outcome)) => Ok(RetryAction::Answer { outcome }),
                _ => Err(Refusal::Lost),
            };
        }
        self.set_caller(serial, retry.caller)?;
        let entry = self.entries.get_mut(&serial).ok_or(Refusal::Expired)?;
        // A call that may not be parked any longer is refused before its round is used up; the timer ends it.
        if entry.questions.len() > answers.len() {
            let round = entry.start_round(serial, &settings, now);
            let round = round.ok_or(Refusal::Expired)?;
            let round = Round {
                questions: (round.questions.into_iter())
                    .filter(|(key, _)| !answers.iter().any(|(answered, _)| answered == key))
                    .collect(),
                ..round
            };
            self.remove_answered(serial, &answers);
            return Ok(RetryAction::AskAgain { answers, round });
        }
        entry.phase = Phase::Attached;
        self.remove_answered(serial, &answers);
        Ok(RetryAction::Attach { answers })
    }

    /// Keeps the outcome of a call whose keeper waits for it.
    pub(super) fn answered(&mut self, serial: Serial, outcome: Outcome) -> AnsweredAction {
        let Some(entry) = self.entries.get_mut(&serial) else {
            return AnsweredAction::PassToRetry(outcome);
        };
        if !matches!(entry.phase, Phase::Parked) {
            return AnsweredAction::PassToRetry(outcome);
        }
        entry.questions.clear();
        let bytes = outcome_bytes(&outcome);
        entry.phase = Phase::Answered(unshared(outcome));
        if self.settle_charge(serial).is_err()
            && let Some(entry) = self.entries.get_mut(&serial)
        {
            entry.phase = Phase::Answered(Err(outcome_too_large(bytes)));
        }
        AnsweredAction::Kept
    }

    /// Ends a call whose deadline has passed.
    pub(super) fn expire(&mut self, serial: Serial, now: Instant) -> Expiry {
        let Some(entry) = self.entries.get(&serial) else {
            return Expiry::NotParked;
        };
        let deadline = entry.times.map(|times| times.deadline);
        match (&entry.phase, deadline) {
            (Phase::Attached, _) | (_, None) => Expiry::NotParked,
            (_, Some(deadline)) if now < deadline => Expiry::NotBefore(deadline),
            (Phase::Parked | Phase::Answered(_), Some(_)) => {
                self.end(serial, Ended::Expired, now);
                Expiry::Ended
            }
        }
    }

    /// Ends a call, and leaves a tombstone if the client has a state of it.
    pub(super) fn end(&mut self, serial: Serial, ended: Ended, now: Instant) -> Option<Entry> {
        self.tombstones.remove_expired(now);
        let mut entry = self.entries.remove(&serial)?;
        if let Some(charge) = entry.charge.take() {
            self.budget.release(&entry.principal, charge);
        }
        if let Some(until) = entry.sealed_until() {
            self.tombstones.insert(serial, ended, until);
        }
        Some(entry)
    }

    /// Ends a call that is parked or answered.
    pub(super) fn end_kept(&mut self, serial: Serial, ended: Ended, now: Instant) -> Option<Entry> {
        let entry = self.entries.get(&serial)?;
        if matches!(entry.phase, Phase::Attached) {
            return None;
        }
        self.end(serial, ended, now)
    }

    /// Charges an attached call that becomes a task, and returns the task's time to live. On a refusal the call has
    /// ended, and must be cancelled upstream.
    pub(super) fn start_task(&mut self, serial: Serial, now: Instant) -> Result<Duration, Refusal> {
        let charged = self.settle_charge(serial);
        let refusal = match (charged, self.entries.get_mut(&serial)) {
            (Ok(()), Some(entry)) => {
                entry.is_task = true;
                return Ok(self.settings.max_parked_time);
            }
            (Err(OverBudget), _) => Refusal::TooManyCalls(Sent::Yes),
            (Ok(()), None) => Refusal::Lost,
        };
        self.end(serial, Ended::Cancelled, now);
        Err(refusal)
    }

    /// Returns where a task is; `None` if its call was lost.
    pub(super) fn task_state(&self, serial: Serial) -> Option<TaskState> {
        let entry = self.entries.get(&serial).filter(|entry| entry.is_task)?;
        if let Phase::Answered(outcome) = &entry.phase {
            return Some(TaskState::Ended(outcome.clone()));
        }
        let questions = entry.questions.iter();
        let questions: Vec<_> = questions
            .map(|(key, question)| (key.to_string(), question.request.to_json()))
            .collect();
        match questions.is_empty() {
            true => Some(TaskState::Working),
            false => Some(TaskState::InputRequired(questions)),
        }
    }

    /// Returns until when the client of a task must answer its oldest question.
    pub(super) fn input_deadline(&self, serial: Serial) -> Option<Instant> {
        let asked = self.entries.get(&serial)?.asked_since()?;
        Some(instant_after(asked, self.settings.park_timeout))
    }

    /// Accepts the answers to open questions of a task. A refusal changes nothing.
    pub(super) fn answer(
        &mut self,
        serial: Serial,
        responses: &BTreeMap<String, Json>,
    ) -> Result<Answers, Refusal> {
        let Some(entry) = self.entries.get_mut(&serial).filter(|entry| entry.is_task) else {
            return Ok(Vec::new());
        };
        let answers = answers(entry, responses, |_| true)?;
        for (key, _) in &answers {
            entry.questions.remove(key);
        }
        // Never over budget: the bytes decrease.
        let _ = self.settle_charge(serial);
        Ok(answers)
    }

    /// Keeps the outcome of a task.
    pub(super) fn finish_task(&mut self, serial: Serial, outcome: Outcome) {
        let Some(entry) = self.entries.get_mut(&serial).filter(|entry| entry.is_task) else {
            return;
        };
        entry.questions.clear();
        let bytes = outcome_bytes(&outcome);
        entry.phase = Phase::Answered(unshared(outcome));
        if self.settle_charge(serial).is_err()
            && let Some(entry) = self.entries.get_mut(&serial)
        {
            entry.phase = Phase::Answered(Err(outcome_too_large(bytes)));
        }
    }

    /// Returns what parked calls use of the budget.
    pub(super) fn used(&self) -> Usage {
        self.budget.used()
    }

    fn check_retry(&self, retry: &RetryEvent<'_>, now: Instant) -> Result<Answers, Refusal> {
        let Some(entry) = self.entries.get(&retry.serial) else {
            if retry.serial.0 >= self.next_serial {
                return Err(Refusal::Foreign);
            }
            let tombstone = self.tombstones.find(retry.serial);
            return Err(tombstone.map_or(Refusal::Expired, Refusal::from));
        };
        // The seal is bound to both already. This check does not depend on how the state was opened.
        if entry.principal != *retry.principal || entry.digest != Some(retry.digest) {
            return Err(Refusal::Foreign);
        }
        if retry.round > entry.round {
            return Err(Refusal::Foreign);
        }
        if retry.round < entry.round || matches!(entry.phase, Phase::Attached) {
            return Err(Refusal::AlreadyUsed);
        }
        if entry.times.is_some_and(|times| now >= times.deadline) {
            return Err(Refusal::Expired);
        }
        answers(entry, retry.responses, |question| question.is_shown)
    }

    /// Remembers the sender of a retry, who may declare more than that of the first request.
    fn set_caller(&mut self, serial: Serial, caller: &Arc<Caller>) -> Result<(), Refusal> {
        let entry = self.entries.get_mut(&serial).ok_or(Refusal::Expired)?;
        let before = std::mem::replace(&mut entry.caller, caller.clone());
        let charged = self.settle_charge(serial);
        if charged.is_err()
            && let Some(entry) = self.entries.get_mut(&serial)
        {
            entry.caller = before;
        }
        charged.map_err(|OverBudget| Refusal::TooManyCalls(Sent::Yes))
    }

    fn remove_answered(&mut self, serial: Serial, answers: &Answers) {
        if let Some(entry) = self.entries.get_mut(&serial) {
            for (key, _) in answers {
                entry.questions.remove(key);
            }
        }
        // Never over budget: the bytes decrease.
        let _ = self.settle_charge(serial);
    }

    /// Charges a call with the bytes that it needs now.
    fn settle_charge(&mut self, serial: Serial) -> Result<(), OverBudget> {
        let Some(entry) = self.entries.get_mut(&serial) else {
            return Ok(());
        };
        let bytes = entry.needed_bytes();
        match &mut entry.charge {
            Some(charge) => self.budget.resize(&entry.principal, charge, bytes),
            none => {
                *none = Some(self.budget.charge(&entry.principal, bytes)?);
                Ok(())
            }
        }
    }
}

/// Returns the answers to the selected questions; others are ignored.
fn answers(
    entry: &Entry,
    responses: &BTreeMap<String, Json>,
    selects: impl Fn(&Question) -> bool,
) -> Result<Answers, Refusal> {
    let mut answers = Vec::new();
    for (key, question) in entry.questions.iter().filter(|(_, it)| selects(it)) {
        let text = key.to_string();
        let Some(answer) = responses.get(&text) else {
            continue;
        };
        let checked = question.request.kind.check_answer(answer);
        checked.map_err(|expected| Refusal::InvalidAnswer {
            key: text,
            expected,
        })?;
        answers.push((*key, answer.clone()));
    }
    Ok(answers)
}

/// A slice of a frame would keep the whole frame in memory.
fn unshared(outcome: Outcome) -> Outcome {
    outcome.map(|result| result.to_unshared())
}

/// Of one call.
const MAX_QUESTIONS: usize = 64;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
