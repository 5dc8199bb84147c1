//! Random schedules of fronts, retries, questions, outcomes, drops and time, with keepers, and the laws at their end.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline::exchange::Outcome;
use bowline::types::InputRequiredResult;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::advance;

use super::fake::*;
use crate::parked::budget::Usage;
use crate::parked::{HostSide, ParkSettings, ParkedCalls};
use crate::test_random::SplitMix64;

const SCHEDULES: u64 = 150;
const STEPS: usize = 80;

#[tokio::test(start_paused = true)]
async fn every_call_is_sent_once_ends_once_and_leaves_nothing_in_random_schedules() {
    let mut seen = Seen::default();
    for seed in 0..SCHEDULES {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step(&mut seen).await;
        }
        world.check_end(&mut seen).await;
    }
    let Seen {
        states,
        results,
        refusals,
        cancelled,
        answers,
    } = seen;
    for count in [states, results, refusals, cancelled, answers] {
        assert!(count > 100, "{seen:?}");
    }
}

/// How often each kind of event happened.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    states: usize,
    results: usize,
    refusals: usize,
    cancelled: usize,
    answers: usize,
}

struct World {
    seed: u64,
    rng: SplitMix64,
    calls: ParkedCalls<FakeUpstream>,
    open: Vec<SimulatedCall>,
}

struct SimulatedCall {
    events: mpsc::UnboundedSender<FakeEvent>,
    log: UpstreamLog,
    host: HostSide<FakeUpstream>,
    questions: Vec<JoinHandle<Outcome>>,
    /// The fronts that run, and which state each of them used.
    fronts: Vec<(JoinHandle<Outcome>, Option<usize>)>,
    /// The states that clients have received, with their keys.
    states: Vec<(String, Vec<String>)>,
    /// The states that got anything but a refusal.
    used: BTreeSet<usize>,
    results: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            rng: SplitMix64::new(seed),
            calls: parked_calls(ParkSettings {
                max_calls: 4,
                ..ParkSettings::default()
            }),
            open: Vec::new(),
        }
    }

    async fn step(&mut self, seen: &mut Seen) {
        if self.open.is_empty() || self.rng.below(10) == 0 {
            self.open_call();
        }
        let at = self.rng.below(self.open.len());
        match self.rng.below(16) {
            0..=3 => self.open[at].ask(),
            4 => self.abort_question(at),
            5 => self.abort_front(at),
            6 => drop(self.open[at].events.send(FakeEvent::Answer(Ok(result())))),
            7..=11 => self.retry(at),
            12 => {
                let seconds = [1, 30, 301][self.rng.below(3)];
                advance(Duration::from_secs(seconds)).await;
            }
            _ => {}
        }
        // Sometimes nothing runs between two events, sometimes a few tasks, sometimes all.
        for _ in 0..[0, 1, 2, 10][self.rng.below(4)] {
            tokio::task::yield_now().await;
        }
        self.collect(seen).await;
    }

    fn open_call(&mut self) {
        let it = open(&self.calls);
        let front = tokio::spawn(run_front(it.call, it.upstream));
        self.open.push(SimulatedCall {
            events: it.events,
            log: it.log,
            host: it.host,
            questions: Vec::new(),
            fronts: vec![(front, None)],
            states: Vec::new(),
            used: BTreeSet::new(),
            results: 0,
        });
    }

    fn abort_question(&mut self, at: usize) {
        let count = self.open[at].questions.len();
        if count > 0 {
            let which = self.rng.below(count);
            self.open[at].questions[which].abort();
        }
    }

    fn abort_front(&mut self, at: usize) {
        let count = self.open[at].fronts.len();
        if count > 0 {
            let which = self.rng.below(count);
            self.open[at].fronts[which].0.abort();
        }
    }

    fn retry(&mut self, at: usize) {
        let count = self.open[at].states.len();
        if count == 0 {
            return;
        }
        let which = count - 1 - self.rng.below(count.min(3));
        let is_partial = self.rng.below(4) == 0;
        let (state, keys) = self.open[at].states[which].clone();
        let keys: Vec<&str> = (keys.iter().map(String::as_str))
            .filter(|_| !is_partial || self.rng.below(2) == 0)
            .collect();
        let retry = run_retry(self.calls.clone(), retry(&state, &keys));
        let front = tokio::spawn(retry);
        self.open[at].fronts.push((front, Some(which)));
    }

    /// Takes in what fronts have returned.
    async fn collect(&mut self, seen: &mut Seen) {
        for call in &mut self.open {
            for (front, state) in std::mem::take(&mut call.fronts) {
                if front.is_finished() {
                    // An aborted front has no outcome.
                    if let Ok(outcome) = front.await {
                        call.take(outcome, state, self.seed, seen);
                    }
                } else {
                    call.fronts.push((front, state));
                }
            }
        }
    }

    async fn check_end(&mut self, seen: &mut Seen) {
        for call in &self.open {
            call.fronts.iter().for_each(|(front, _)| front.abort());
        }
        settle().await;
        self.collect(seen).await;
        advance(Duration::from_secs(2 * 3600)).await;
        settle().await;

        let seed = self.seed;
        assert_eq!(self.calls.used(), Usage::default(), "seed {seed}");
        assert!(self.calls.shared().lock().live.is_empty(), "seed {seed}");
        for call in &mut self.open {
            let ends = call.log.ends();
            assert_eq!(ends.len(), 1, "seed {seed}: {ends:?}");
            seen.cancelled += usize::from(ends[0] != "answered");
            assert!(call.results <= usize::from(ends[0] == "answered"));
            for question in std::mem::take(&mut call.questions) {
                assert!(question.is_finished(), "seed {seed}: a question hangs");
                seen.answers += usize::from(matches!(question.await, Ok(Ok(_))));
            }
            for (state, _) in &call.states {
                let late = run_retry(self.calls.clone(), retry(state, &[])).await;
                assert!(late.is_err(), "seed {seed}");
            }
        }
    }
}

impl SimulatedCall {
    fn ask(&mut self) {
        let question = self.host.question(elicitation());
        self.questions.push(tokio::spawn(question));
    }

    fn take(&mut self, outcome: Outcome, state: Option<usize>, seed: u64, seen: &mut Seen) {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                let is_expected = [
                    "request state was already used",
                    "request state has expired",
                    "request state is invalid: its call was cancelled",
                    "too many parked calls",
                    "the call waited too long for input",
                ]
                .contains(&&*error.message);
                assert!(is_expected, "seed {seed}: {error:?}");
                seen.refusals += 1;
                return;
            }
        };
        if let Some(state) = state {
            let is_first = self.used.insert(state);
            assert!(is_first, "seed {seed}: a state was used twice");
        }
        if result == super::fake::result() {
            self.results += 1;
            seen.results += 1;
            assert_eq!(self.results, 1, "seed {seed}: two results");
            return;
        }
        let result: InputRequiredResult = result.decode().unwrap();
        let keys = result.input_requests.unwrap_or_default().0.into_keys();
        let state = result.request_state.unwrap();
        self.states.push((state, keys.collect()));
        seen.states += 1;
    }
}
