//! Random schedules of events, and the laws that hold after each: the table against a simple model of its calls.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline::exchange::request_digest;

use super::tests::{TestTable, accepted};
use super::*;
use crate::test_random::SplitMix64;

const SCHEDULES: u64 = 2_000;
const STEPS: usize = 120;

#[test]
fn the_laws_of_parked_calls_hold_in_random_schedules() {
    let mut seen = Seen::default();
    for seed in 0..SCHEDULES {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step(&mut seen);
            world.check_budget();
        }
        world.check_end();
    }
    // A schedule that never reaches a row of the table would show nothing about it.
    let Seen {
        attached,
        asked_again,
        answered,
        ref refused,
        expired,
        over_budget,
        lost,
    } = seen;
    for count in [attached, asked_again, answered, expired, over_budget, lost] {
        assert!(count > 300, "{seen:?}");
    }
    let names = refused.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(
        names,
        ["AlreadyUsed", "Cancelled", "Expired", "Foreign", "Lost"]
    );
}

/// How often each kind of event happened.
#[derive(Clone, Debug, Default)]
struct Seen {
    attached: usize,
    asked_again: usize,
    answered: usize,
    expired: usize,
    over_budget: usize,
    lost: usize,
    refused: BTreeSet<String>,
}

struct World {
    seed: u64,
    rng: SplitMix64,
    it: TestTable,
    principals: [Principal; 2],
    digests: [Digest; 2],
    calls: Vec<ModelCall>,
}

/// What the model knows of a call.
struct ModelCall {
    serial: Serial,
    /// The index of its principal, and of its request.
    principal: usize,
    request: usize,
    owner: ModelOwner,
    is_charged: bool,
    /// The rounds of which the client has a state, and those of them that were used.
    issued: u32,
    used: BTreeSet<u32>,
    open: BTreeSet<QuestionKey>,
    shown: BTreeSet<QuestionKey>,
    deadline: Option<Instant>,
    outcomes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelOwner {
    Front,
    Keeper,
    /// The keeper has an outcome, and the upstream is released.
    Outcome,
    Ended(Ended),
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            rng: SplitMix64::new(seed),
            it: TestTable::new(ParkSettings {
                max_calls: 5,
                max_calls_each: 4,
                ..ParkSettings::default()
            }),
            principals: [Principal::named("ada"), Principal::anonymous()],
            digests: ["tools/call", "prompts/get"].map(|method| request_digest(method, None)),
            calls: Vec::new(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.rng.below(limit as usize) as u64
    }

    fn step(&mut self, seen: &mut Seen) {
        if self.calls.is_empty() || self.below(8) == 0 {
            return self.open(seen);
        }
        // Mostly recent calls, and sometimes one that ended long ago.
        let back = if self.below(3) > 0 { 6 } else { u64::MAX };
        let at = self.below((self.calls.len() as u64).min(back));
        let at = self.calls.len() - 1 - at as usize;
        match self.below(16) {
            0..=3 => self.ask(at),
            4 => self.withdraw(at),
            5..=7 => self.park(at, seen),
            8..=11 => self.retry(at, seen),
            12 => self.upstream_answers(at),
            13 if self.below(3) == 0 => self.drop_owner(at, seen),
            13 => {}
            _ => self.pass_time(seen),
        }
    }

    fn open(&mut self, seen: &mut Seen) {
        let (principal, request) = (self.below(2) as usize, self.below(2) as usize);
        self.it.principal = self.principals[principal].clone();
        let serial = self.it.open();
        let mut call = ModelCall {
            serial,
            principal,
            request,
            owner: ModelOwner::Front,
            is_charged: false,
            issued: 0,
            used: BTreeSet::new(),
            open: BTreeSet::new(),
            shown: BTreeSet::new(),
            deadline: None,
            outcomes: 0,
        };
        if self.below(4) == 0 {
            match self.it.table.reserve(serial) {
                Ok(()) => call.is_charged = true,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::TooManyCalls(Sent::No));
                    seen.over_budget += 1;
                    self.it.table.end(serial, Ended::Cancelled, self.it.now);
                    call.owner = ModelOwner::Ended(Ended::Cancelled);
                }
            }
        }
        self.calls.push(call);
    }

    fn ask(&mut self, at: usize) {
        let call = &mut self.calls[at];
        let asked = self.it.ask(call.serial);
        match call.owner {
            ModelOwner::Front | ModelOwner::Keeper => {
                call.open.insert(asked.expect("a running call may ask"));
            }
            ModelOwner::Outcome | ModelOwner::Ended(_) => {
                assert_eq!(asked, Err(QuestionRefusal::CallEnded));
            }
        }
    }

    fn withdraw(&mut self, at: usize) {
        let call = &mut self.calls[at];
        if let Some(key) = call.open.pop_first() {
            call.shown.remove(&key);
            self.it.table.withdraw(call.serial, key);
        }
    }

    fn park(&mut self, at: usize, seen: &mut Seen) {
        let call = &mut self.calls[at];
        if call.owner != ModelOwner::Front || call.open.is_empty() {
            return;
        }
        self.it.digest = self.digests[call.request];
        match self.it.park(call.serial) {
            Ok(round) => {
                call.is_charged = true;
                call.owner = ModelOwner::Keeper;
                call.show(&round);
            }
            Err(refusal) => {
                assert!(matches!(
                    refusal,
                    Refusal::TooManyCalls(Sent::Yes) | Refusal::ParkedTooLong
                ));
                seen.over_budget += 1;
                call.end(Ended::Cancelled);
            }
        }
    }

    fn retry(&mut self, at: usize, seen: &mut Seen) {
        let (round, as_other, for_other, keys) = self.any_retry(at);
        let now = self.it.now;
        let call = &mut self.calls[at];
        let other = |index: usize, is_other: bool| index ^ usize::from(is_other);
        self.it.principal = self.principals[other(call.principal, as_other)].clone();
        self.it.digest = self.digests[other(call.request, for_other)];
        let keys: Vec<_> = keys.into_iter().collect();
        let action = self.it.retry(call.serial, round, &keys);
        let seed = self.seed;
        let is_foreign = as_other || for_other || round > call.issued;
        let action = match (call.owner, action) {
            (_, Err(refusal)) => {
                let expected = match call.owner {
                    // Nothing but the seal is checked for an ended call; `as_other` does not open it.
                    ModelOwner::Ended(ended) if call.issued > 0 => call.late_refusal(ended, now),
                    ModelOwner::Ended(_) => Refusal::Expired,
                    _ if is_foreign => Refusal::Foreign,
                    ModelOwner::Front => Refusal::AlreadyUsed,
                    _ if round < call.issued => Refusal::AlreadyUsed,
                    _ => {
                        let is_late = call.deadline.is_some_and(|deadline| now >= deadline);
                        assert!(is_late, "seed {seed}: refused a valid state: {refusal:?}");
                        Refusal::Expired
                    }
                };
                assert_eq!(refusal, expected, "seed {seed}");
                let name = format!("{refusal:?}");
                seen.refused.insert(name);
                return;
            }
            (_, Ok(action)) => action,
        };
        assert!(!is_foreign, "seed {seed}: a foreign state was accepted");
        assert_eq!(round, call.issued, "seed {seed}: an old state was accepted");
        let first = call.used.insert(round);
        assert!(first, "seed {seed}: a state was accepted twice");
        match action {
            RetryAction::Attach { answers } => {
                seen.attached += 1;
                assert_eq!(call.owner, ModelOwner::Keeper, "seed {seed}");
                call.take_answers(&answers, &keys);
                assert!(call.open.is_empty(), "seed {seed}");
                call.owner = ModelOwner::Front;
            }
            RetryAction::AskAgain { answers, round } => {
                seen.asked_again += 1;
                assert_eq!(call.owner, ModelOwner::Keeper, "seed {seed}");
                call.take_answers(&answers, &keys);
                call.show(&round);
            }
            RetryAction::Answer { outcome } => {
                seen.answered += 1;
                assert_eq!(call.owner, ModelOwner::Outcome, "seed {seed}");
                assert!(outcome.is_ok());
                call.outcomes += 1;
                call.end(Ended::Answered);
            }
        }
    }

    /// Returns a round, whether the retry is sent by another principal or for another request, and answered keys.
    fn any_retry(&mut self, at: usize) -> (u32, bool, bool, BTreeSet<QuestionKey>) {
        let issued = self.calls[at].issued;
        let round = match self.below(6) {
            0 => issued + 1,
            1 => self.below(u64::from(issued) + 1) as u32,
            _ => issued,
        };
        let (as_other, for_other) = (self.below(10) == 0, self.below(10) == 0);
        let is_partial = self.below(3) == 0;
        let mut keys = self.calls[at].open.clone();
        keys.retain(|_| !is_partial || self.below(2) == 0);
        (round.max(1), as_other, for_other, keys)
    }

    fn upstream_answers(&mut self, at: usize) {
        let call = &mut self.calls[at];
        let outcome = Ok(Json::empty_object());
        match call.owner {
            ModelOwner::Front => {
                self.it.table.end(call.serial, Ended::Answered, self.it.now);
                call.outcomes += 1;
                call.end(Ended::Answered);
            }
            ModelOwner::Keeper => {
                let action = self.it.table.answered(call.serial, outcome);
                assert_eq!(action, AnsweredAction::Kept);
                call.owner = ModelOwner::Outcome;
                call.open.clear();
                call.shown.clear();
            }
            ModelOwner::Outcome | ModelOwner::Ended(_) => {}
        }
    }

    fn drop_owner(&mut self, at: usize, seen: &mut Seen) {
        let call = &mut self.calls[at];
        let now = self.it.now;
        match call.owner {
            ModelOwner::Front => {
                assert!(
                    self.it
                        .table
                        .end_kept(call.serial, Ended::Lost, now)
                        .is_none()
                );
                self.it.table.end(call.serial, Ended::Cancelled, now);
                call.end(Ended::Cancelled);
            }
            ModelOwner::Keeper | ModelOwner::Outcome => {
                assert!(
                    self.it
                        .table
                        .end_kept(call.serial, Ended::Lost, now)
                        .is_some()
                );
                seen.lost += 1;
                call.end(Ended::Lost);
            }
            ModelOwner::Ended(_) => {}
        }
    }

    /// Lets time pass, and runs the timers of all keepers, or leaves them late.
    fn pass_time(&mut self, seen: &mut Seen) {
        let seconds = [1, 2, 5, 20, 60, 150, 400][self.below(7) as usize];
        self.it.now += Duration::from_secs(seconds);
        if self.below(3) > 0 {
            self.run_timers(seen);
        }
    }

    fn run_timers(&mut self, seen: &mut Seen) {
        let now = self.it.now;
        for call in &mut self.calls {
            let expiry = self.it.table.expire(call.serial, now);
            match (call.owner, call.deadline) {
                (ModelOwner::Keeper | ModelOwner::Outcome, Some(deadline)) if deadline <= now => {
                    assert_eq!(expiry, Expiry::Ended, "the keeper cancels it upstream");
                    seen.expired += 1;
                    call.end(Ended::Expired);
                }
                (ModelOwner::Keeper | ModelOwner::Outcome, Some(deadline)) => {
                    assert_eq!(expiry, Expiry::NotBefore(deadline));
                }
                _ => assert_eq!(expiry, Expiry::NotParked),
            }
        }
    }

    /// Nothing is parked without a charge, nothing is charged for long, and no limit is exceeded.
    fn check_budget(&self) {
        let is_charged = |call: &&ModelCall| call.is_charged;
        let is_parked =
            |call: &ModelCall| matches!(call.owner, ModelOwner::Keeper | ModelOwner::Outcome);
        let charged: Vec<_> = self.calls.iter().filter(is_charged).collect();
        let used = self.it.table.used();
        assert_eq!(used.calls, charged.len(), "seed {}", self.seed);
        assert!(used.calls <= 5);
        assert!(
            self.calls
                .iter()
                .all(|call| call.is_charged || !is_parked(call))
        );
        for (index, principal) in self.principals.iter().enumerate() {
            let each = charged.iter().filter(|call| call.principal == index);
            let each = each.count();
            assert_eq!(self.it.table.budget.used_by(principal).calls, each);
            assert!(each <= 4);
        }
        let entries = self.it.table.entries.values();
        let bytes = entries.filter_map(|entry| entry.charge.as_ref());
        let bytes: usize = bytes.map(|charge| charge.bytes()).sum();
        assert_eq!(used.bytes, bytes);
    }

    /// When every front is gone and time has passed, nothing is left.
    fn check_end(&mut self) {
        for call in &mut self.calls {
            if call.owner == ModelOwner::Front {
                self.it
                    .table
                    .end(call.serial, Ended::Cancelled, self.it.now);
                call.end(Ended::Cancelled);
            }
            assert!(call.outcomes <= 1);
        }
        self.it.now += Duration::from_secs(2 * 3600);
        self.run_timers(&mut Seen::default());
        self.it.now += Duration::from_secs(2 * 3600);
        self.it.table.tombstones.remove_expired(self.it.now);

        assert!(self.it.table.entries.is_empty(), "seed {}", self.seed);
        assert_eq!(self.it.table.tombstones.len(), 0);
        assert_eq!(self.it.table.used(), Usage::default());
        for call in &self.calls {
            assert!(matches!(call.owner, ModelOwner::Ended(_)));
        }
    }
}

impl ModelCall {
    fn show(&mut self, round: &Round) {
        assert_eq!(round.number, self.issued + 1);
        let keys = round.questions.iter().map(|(key, _)| *key);
        assert!(keys.eq(self.open.iter().copied()));
        self.shown = self.open.clone();
        self.issued = round.number;
        self.deadline = Some(round.deadline);
    }

    /// Exactly the answers to shown questions are passed on.
    fn take_answers(&mut self, answers: &Answers, keys: &[QuestionKey]) {
        let expected = keys.iter().filter(|key| self.shown.contains(key));
        let answered = answers.iter().map(|(key, _)| key);
        assert!(answered.eq(expected));
        for (key, answer) in answers {
            assert_eq!(*answer, accepted());
            self.open.remove(key);
        }
        self.shown.clear();
    }

    fn end(&mut self, ended: Ended) {
        self.owner = ModelOwner::Ended(ended);
        self.is_charged = false;
        self.open.clear();
        self.shown.clear();
    }

    /// Returns what a retry of this ended call is answered with.
    fn late_refusal(&self, ended: Ended, now: Instant) -> Refusal {
        let sealed_until = self.deadline.map(|it| it + Duration::from_secs(60));
        if sealed_until.is_some_and(|until| now >= until) {
            return Refusal::Expired;
        }
        match ended {
            Ended::Answered => Refusal::AlreadyUsed,
            Ended::Expired => Refusal::Expired,
            Ended::Cancelled => Refusal::Cancelled,
            Ended::Lost => Refusal::Lost,
        }
    }
}
