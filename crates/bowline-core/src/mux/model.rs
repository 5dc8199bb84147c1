//! Random schedules of two engines back to back, checked against the laws.
//!
//! A schedule is a list of bytes, each an operation or its argument, so that a fuzzer and a seeded
//! generator drive the same model. Every broken law panics with what was seen.

#![allow(clippy::panic, reason = "a broken law is reported by panicking")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bowline_types::{Json, ProgressToken, RequestId};
use serde::{Deserialize, Serialize};

use super::{CallId, CallOptions, End, Event, InFlightId, Limits, Mux, Reason, Sizes};
use crate::id::{CorrelationKey, other_spelling};
use crate::message::{Message, Notification};

/// Plays one schedule.
pub(crate) fn play(schedule: &[u8]) {
    let mut bytes = schedule.iter().copied();
    let queued = if bytes.next().is_some_and(|byte| byte % 4 == 0) {
        3
    } else {
        1000
    };
    let mut world = World::new(queued);
    while let Some(operation) = bytes.next() {
        world.step(operation, bytes.next().unwrap_or_default());
    }
    world.finish();
}

/// Two ends, two directions of wire between them, and the time.
struct World {
    ends: [Player; 2],
    /// `wires[n]` leads to `ends[n]`.
    wires: [VecDeque<Message>; 2],
    now: Instant,
    next_tag: u64,
}

/// One end: its engine, and what must be true of it.
struct Player {
    mux: Mux,
    calls: BTreeMap<CallId, Ledger>,
    /// Requests of the other end that its application has seen and not answered yet.
    serving: Vec<(InFlightId, u64)>,
    over: BTreeSet<InFlightId>,
}

/// What is known of one call.
struct Ledger {
    id: RequestId,
    tag: u64,
    fate: Fate,
    sent: bool,
    cancelled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Open,
    Settled,
    Abandoned,
    TimedOut,
}

/// The params of every request and the result of every answer: whose it is.
#[derive(Serialize, Deserialize)]
struct Tag {
    tag: u64,
}

impl World {
    fn new(queued: usize) -> Self {
        let player = || Player {
            mux: Mux::new(Limits {
                queued,
                ..Limits::default()
            }),
            calls: BTreeMap::new(),
            serving: Vec::new(),
            over: BTreeSet::new(),
        };
        Self {
            ends: [player(), player()],
            wires: [VecDeque::new(), VecDeque::new()],
            now: Instant::now(),
            next_tag: 0,
        }
    }

    fn step(&mut self, operation: u8, argument: u8) {
        let end = usize::from(operation & 1);
        match (operation >> 1) % 12 {
            0 | 1 => self.call(end, argument),
            2 | 3 => self.transmit(end),
            4 | 5 => self.deliver(end, argument),
            6 | 7 => self.ends[end].respond(argument),
            8 => self.ends[end].abandon(argument),
            9 => self.ends[end].report_progress(argument),
            10 => self.pass_time(argument),
            _ => self.deliver_twice(end),
        }
        self.ends.iter_mut().for_each(Player::drain_events);
    }

    fn call(&mut self, end: usize, argument: u8) {
        self.next_tag += 1;
        let tag = self.next_tag;
        let chosen: Option<RequestId> = match argument % 8 {
            0 => Some("3".into()),
            1 => Some(2.into()),
            2 => Some("x".into()),
            _ => None,
        };
        // Nobody can tell a late answer to a call that was given up from the answer to a successor with
        // the same id, so a caller that chooses ids does not choose that one again.
        let chosen = chosen.filter(|id| !self.ends[end].gave_up(id));
        let options = CallOptions {
            id: chosen.clone(),
            progress_token: Some(ProgressToken::from(i64::try_from(tag).unwrap_or(0))),
            idle_timeout: (argument & 8 != 0).then_some(Duration::from_secs(2)),
            total_timeout: (argument & 16 != 0).then_some(Duration::from_secs(3)),
            ..CallOptions::default()
        };
        let now = self.now;
        self.ends[end].call(now, tag, chosen, options);
    }

    fn transmit(&mut self, from: usize) {
        let Some(message) = self.ends[from].mux.poll_transmit() else {
            return;
        };
        self.ends[from].check_sent(&message);
        self.wires[1 - from].push_back(message);
    }

    fn deliver(&mut self, to: usize, argument: u8) {
        let Some(mut message) = self.wires[to].pop_front() else {
            return;
        };
        if let (Message::Response(response), 0) = (&mut message, argument % 4) {
            // Some peers spell an id differently in the answer.
            let other = response.id.as_ref().and_then(other_spelling);
            response.id = other.or(response.id.take());
        }
        self.ends[to].mux.handle_message(self.now, message);
    }

    /// A confused peer sends a request twice; the second must not disturb the first.
    fn deliver_twice(&mut self, to: usize) {
        let Some(message @ Message::Request(_)) = self.wires[to].front().cloned() else {
            return;
        };
        self.wires[to].pop_front();
        let before = self.ends[to].mux.sizes().in_flight;
        self.ends[to].mux.handle_message(self.now, message.clone());
        let after = self.ends[to].mux.sizes().in_flight;
        self.ends[to].mux.handle_message(self.now, message);
        assert_eq!(
            self.ends[to].mux.sizes().in_flight,
            after,
            "a duplicate was taken in"
        );
        assert!(after <= before + 1);
    }

    fn pass_time(&mut self, argument: u8) {
        self.now += Duration::from_millis(u64::from(argument) * 10);
        for end in &mut self.ends {
            end.mux.handle_timeout(self.now);
        }
    }

    /// Lets everything in transit arrive, ends both wires, and looks for what is left.
    fn finish(&mut self) {
        while self.is_moving() {
            for end in 0..2 {
                self.transmit(end);
                self.deliver(end, 1);
            }
            self.ends.iter_mut().for_each(Player::drain_events);
        }
        for end in &mut self.ends {
            end.check_cancels();
            end.mux.handle_end(End::Closed);
            end.drain_events();
            end.check_end();
        }
    }

    fn is_moving(&self) -> bool {
        let queued = |end: &Player| end.mux.sizes().queued > 0;
        self.ends.iter().any(queued) || self.wires.iter().any(|wire| !wire.is_empty())
    }
}

impl Player {
    fn call(&mut self, now: Instant, tag: u64, chosen: Option<RequestId>, options: CallOptions) {
        let taken = |id: &RequestId| {
            let same = |open: &Ledger| CorrelationKey::from(&open.id) == CorrelationKey::from(id);
            self.calls
                .values()
                .any(|open| open.fate == Fate::Open && same(open))
        };
        let clash = chosen.as_ref().is_some_and(taken);
        let params = Json::encode(&Tag { tag }).expect("a number has a JSON form");
        match self.mux.call(now, "m", Some(params), options) {
            Ok(call) => {
                assert!(!clash, "an id in flight was accepted");
                let id = self
                    .mux
                    .request_id(call)
                    .expect("a new call is pending")
                    .clone();
                assert!(
                    chosen.is_none_or(|chosen| chosen == id),
                    "a chosen id was changed"
                );
                let fate = Fate::Open;
                self.calls.insert(
                    call,
                    Ledger {
                        id,
                        tag,
                        fate,
                        sent: false,
                        cancelled: false,
                    },
                );
            }
            Err(super::Refused::IdInUse(_)) => assert!(clash, "a free id was refused"),
            Err(super::Refused::Full) => assert!(self.mux.sizes().queued >= 3),
            Err(refused) => panic!("refused: {refused}"),
        }
    }

    fn gave_up(&self, id: &RequestId) -> bool {
        let same = |ledger: &Ledger| CorrelationKey::from(&ledger.id) == CorrelationKey::from(id);
        let given_up = |ledger: &Ledger| matches!(ledger.fate, Fate::Abandoned | Fate::TimedOut);
        self.calls
            .values()
            .any(|ledger| given_up(ledger) && same(ledger))
    }

    fn respond(&mut self, argument: u8) {
        if self.serving.is_empty() {
            return;
        }
        let (id, tag) = self
            .serving
            .swap_remove(usize::from(argument) % self.serving.len());
        let result = Json::encode(&Tag { tag }).expect("a number has a JSON form");
        let before = self.mux.sizes().queued;
        self.mux.respond(&id, Ok(result));
        let answered = self.mux.sizes().queued > before;
        assert_eq!(
            answered,
            !self.over.contains(&id),
            "answered what was cancelled, or did not answer"
        );
    }

    fn abandon(&mut self, argument: u8) {
        if self.calls.is_empty() {
            return;
        }
        let nth = usize::from(argument) % self.calls.len();
        let (call, ledger) = self.calls.iter_mut().nth(nth).expect("there are that many");
        if ledger.fate == Fate::Open {
            ledger.fate = Fate::Abandoned;
        }
        self.mux.abandon(*call, &Reason::Dropped);
        assert_eq!(
            self.mux.request_id(*call),
            None,
            "an abandoned call is still pending"
        );
    }

    fn report_progress(&mut self, argument: u8) {
        if self.serving.is_empty() {
            return;
        }
        let (id, tag) = &self.serving[usize::from(argument) % self.serving.len()];
        let params = Json::from(serde_json::json!({"progressToken": tag, "progress": 1}));
        let progress = Notification::new("notifications/progress", Some(params));
        let sent = self.mux.notify_within(id, progress).is_ok();
        assert!(
            !(sent && self.over.contains(id)),
            "progress on a request that is over"
        );
    }

    /// Looks at what leaves: nothing out of order, no cancel of what was not sent, none twice.
    fn check_sent(&mut self, message: &Message) {
        match message {
            Message::Request(request) => {
                let tag = tag_of(request.params.as_deref());
                let ledger = self.calls.values_mut().find(|ledger| ledger.tag == tag);
                let ledger = ledger.expect("only what was called is sent");
                assert_eq!(ledger.fate, Fate::Open, "a withdrawn request was sent");
                assert!(!ledger.sent, "sent twice");
                ledger.sent = true;
                let earlier =
                    |other: &Ledger| other.tag < tag && !other.sent && other.fate == Fate::Open;
                assert!(
                    !self.calls.values().any(earlier),
                    "a later call overtook an earlier one"
                );
            }
            Message::Notification(notification)
                if notification.method == "notifications/cancelled" =>
            {
                let params = notification.params.as_ref().expect("a cancel has params");
                let value: serde_json::Value = params.decode().expect("params are JSON");
                let id: RequestId =
                    serde_json::from_value(value["requestId"].clone()).expect("an id");
                let given_up = |ledger: &&mut Ledger| {
                    ledger.id == id
                        && matches!(ledger.fate, Fate::Abandoned | Fate::TimedOut)
                        && ledger.sent
                        && !ledger.cancelled
                };
                let ledger = self.calls.values_mut().find(given_up);
                ledger
                    .expect("a cancel names a sent call that was given up, once")
                    .cancelled = true;
            }
            _ => {}
        }
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.mux.poll_event() {
            match event {
                Event::Request { id, params, .. } => {
                    self.serving.push((id, tag_of(params.as_deref())));
                }
                Event::Cancelled { id, .. } => {
                    assert!(self.over.insert(id), "cancelled twice");
                }
                Event::Notified { call, notification } => {
                    let ledger = &self.calls[&call];
                    assert_eq!(ledger.fate, Fate::Open, "progress on a call that is over");
                    let params = notification.params.expect("progress has params");
                    let value: serde_json::Value = params.decode().expect("params are JSON");
                    assert_eq!(
                        value["progressToken"], ledger.tag,
                        "somebody else's progress"
                    );
                }
                Event::Settled { call, outcome } => self.check_settled(call, outcome),
                Event::Notification(other) => panic!("nobody sent {other:?}"),
                Event::Oddity(_) => {}
            }
        }
        if self.mux.sizes().pending == 0 {
            assert_eq!(self.mux.poll_timeout(), None, "a deadline of no call");
        }
    }

    fn check_settled(&mut self, call: CallId, outcome: Result<Json, super::Failure>) {
        let ledger = self
            .calls
            .get_mut(&call)
            .expect("only calls of ours settle");
        assert_eq!(
            ledger.fate,
            Fate::Open,
            "settled twice, or after it was abandoned"
        );
        ledger.fate = Fate::Settled;
        match outcome {
            Ok(result) => assert_eq!(tag_of(Some(&result)), ledger.tag, "somebody else's answer"),
            Err(super::Failure::Timeout(_)) => ledger.fate = Fate::TimedOut,
            Err(super::Failure::Ended(_)) => {}
            Err(other) => panic!("nobody caused {other:?}"),
        }
    }

    /// Every sent call that was given up has been cancelled.
    fn check_cancels(&self) {
        for ledger in self.calls.values() {
            let given_up = matches!(ledger.fate, Fate::Abandoned | Fate::TimedOut);
            assert_eq!(
                ledger.cancelled,
                given_up && ledger.sent,
                "a cancel was lost or made up"
            );
        }
    }

    fn check_end(&self) {
        assert_eq!(
            self.mux.sizes(),
            Sizes::default(),
            "something is left in a table"
        );
        assert_eq!(self.mux.poll_timeout(), None, "a deadline is left");
        for ledger in self.calls.values() {
            assert_ne!(ledger.fate, Fate::Open, "a call never ended");
        }
    }
}

fn tag_of(params: Option<&Json>) -> u64 {
    let Tag { tag } = params
        .and_then(|params| params.decode().ok())
        .expect("it carries a tag");
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift: the same seed gives the same schedule on every machine.
    fn schedule(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        let length = 40 + usize::from(next());
        (0..length).map(|_| next()).collect()
    }

    struct Seed(u64);

    impl Drop for Seed {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the failing seed is {}", self.0);
            }
        }
    }

    #[test]
    fn every_law_holds_on_25_000_random_schedules() {
        for seed in 0..25_000 {
            let _named = Seed(seed);
            play(&schedule(seed));
        }
    }

    #[test]
    fn one_seed_gives_one_schedule() {
        assert_eq!(schedule(7), schedule(7));
        assert_ne!(schedule(7), schedule(8));
    }
}
