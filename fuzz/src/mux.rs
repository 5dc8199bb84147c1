//! Random schedules of two connected engines, checked against the invariants of the engine.
//!
//! A schedule is a list of bytes, each an operation or its argument, so that a fuzzer and a seeded generator drive the
//! same model. A violated invariant panics.

#![allow(clippy::panic, reason = "a broken invariant is reported by a panic")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bowline_core::mux::{
    AbandonReason, CallFailure, CallId, CallOptions, CallRefused, InFlightId, Mux, MuxEvent,
    MuxLimits, TableSizes, WireEnd,
};
use bowline_core::{CorrelationKey, Message, Notification, alternate_id};
use bowline_types::{Json, ProgressToken, RequestId};
use serde::{Deserialize, Serialize};

/// Runs the input as a schedule of two connected engines, and checks their invariants.
pub fn mux(schedule: &[u8]) {
    let mut bytes = schedule.iter().copied();
    let queued = if bytes.next().is_some_and(|byte| byte % 4 == 0) {
        3
    } else {
        1000
    };
    let mut simulation = Simulation::new(queued);
    while let Some(operation) = bytes.next() {
        simulation.step(operation, bytes.next().unwrap_or_default());
    }
    simulation.finish();
}

/// Two ends, the two directions of the wire between them, and the time.
struct Simulation {
    ends: [ModelEnd; 2],
    /// `wires[n]` leads to `ends[n]`.
    wires: [VecDeque<Message>; 2],
    now: Instant,
    next_tag: u64,
}

/// One end: its engine, and the expected state.
struct ModelEnd {
    mux: Mux,
    calls: BTreeMap<CallId, CallHistory>,
    /// Requests of the other end that its application received and has not answered.
    serving: Vec<(InFlightId, u64)>,
    over: BTreeSet<InFlightId>,
}

/// The history of one call.
struct CallHistory {
    id: RequestId,
    tag: u64,
    state: CallState,
    sent: bool,
    cancelled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum CallState {
    Open,
    Settled,
    Abandoned,
    TimedOut,
}

/// The params of every request and the result of every response: identifies the call.
#[derive(Serialize, Deserialize)]
struct CallTag {
    tag: u64,
}

impl Simulation {
    fn new(queued: usize) -> Self {
        let end = || ModelEnd {
            mux: Mux::new(MuxLimits {
                queued,
                ..MuxLimits::default()
            }),
            calls: BTreeMap::new(),
            serving: Vec::new(),
            over: BTreeSet::new(),
        };
        Self {
            ends: [end(), end()],
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
        self.ends.iter_mut().for_each(ModelEnd::drain_events);
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
        // A late response to an abandoned call would settle a successor with the same id, so a caller that chooses ids
        // must not reuse that one.
        let chosen = chosen.filter(|id| !self.ends[end].has_abandoned(id));
        let options = CallOptions {
            id: chosen.clone(),
            progress_token: Some(ProgressToken::from(i64::try_from(tag).unwrap_or(0))),
            idle_timeout: (argument & 8 != 0).then_some(Duration::from_secs(2)),
            timeout: (argument & 16 != 0).then_some(Duration::from_secs(3)),
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
            // Some peers spell the id differently in the response.
            let other = response.id.as_ref().and_then(alternate_id);
            response.id = other.or(response.id.take());
        }
        self.ends[to].mux.handle_message(self.now, message);
    }

    /// Delivers a request twice; the second must not affect the first.
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
            "a duplicate was accepted"
        );
        assert!(after <= before + 1);
    }

    fn pass_time(&mut self, argument: u8) {
        self.now += Duration::from_millis(u64::from(argument) * 10);
        for end in &mut self.ends {
            end.mux.handle_timeout(self.now);
        }
    }

    /// Delivers everything in transit, ends both wires, and checks that no entry is left.
    fn finish(&mut self) {
        while self.is_moving() {
            for end in 0..2 {
                self.transmit(end);
                self.deliver(end, 1);
            }
            self.ends.iter_mut().for_each(ModelEnd::drain_events);
        }
        for end in &mut self.ends {
            end.check_cancels();
            end.mux.handle_end(WireEnd::Closed);
            end.drain_events();
            end.check_end();
        }
    }

    fn is_moving(&self) -> bool {
        let queued = |end: &ModelEnd| end.mux.sizes().queued > 0;
        self.ends.iter().any(queued) || self.wires.iter().any(|wire| !wire.is_empty())
    }
}

impl ModelEnd {
    fn call(&mut self, now: Instant, tag: u64, chosen: Option<RequestId>, options: CallOptions) {
        let taken = |id: &RequestId| {
            let same =
                |open: &CallHistory| CorrelationKey::from(&open.id) == CorrelationKey::from(id);
            self.calls
                .values()
                .any(|open| open.state == CallState::Open && same(open))
        };
        let clash = chosen.as_ref().is_some_and(taken);
        let params = Json::encode(&CallTag { tag }).expect("a number is serializable");
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
                let state = CallState::Open;
                self.calls.insert(
                    call,
                    CallHistory {
                        id,
                        tag,
                        state,
                        sent: false,
                        cancelled: false,
                    },
                );
            }
            Err(CallRefused::IdInUse(_)) => assert!(clash, "a free id was refused"),
            Err(CallRefused::Full) => assert!(self.mux.sizes().queued >= 3),
            Err(refused) => panic!("refused: {refused}"),
        }
    }

    fn has_abandoned(&self, id: &RequestId) -> bool {
        let same =
            |history: &CallHistory| CorrelationKey::from(&history.id) == CorrelationKey::from(id);
        let is_abandoned = |history: &CallHistory| {
            matches!(history.state, CallState::Abandoned | CallState::TimedOut)
        };
        self.calls
            .values()
            .any(|history| is_abandoned(history) && same(history))
    }

    fn respond(&mut self, argument: u8) {
        if self.serving.is_empty() {
            return;
        }
        let (id, tag) = self
            .serving
            .swap_remove(usize::from(argument) % self.serving.len());
        let result = Json::encode(&CallTag { tag }).expect("a number is serializable");
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
        let (call, history) = self.calls.iter_mut().nth(nth).expect("`nth` is in range");
        if history.state == CallState::Open {
            history.state = CallState::Abandoned;
        }
        self.mux.abandon(*call, &AbandonReason::Dropped);
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

    /// Checks an outgoing message: requests in order, and one cancel at most, only for a request that was sent.
    fn check_sent(&mut self, message: &Message) {
        match message {
            Message::Request(request) => {
                let tag = tag_of(request.params.as_deref());
                let history = self.calls.values_mut().find(|history| history.tag == tag);
                let history = history.expect("only requests of calls are sent");
                assert_eq!(
                    history.state,
                    CallState::Open,
                    "a withdrawn request was sent"
                );
                assert!(!history.sent, "sent twice");
                history.sent = true;
                let earlier = |other: &CallHistory| {
                    other.tag < tag && !other.sent && other.state == CallState::Open
                };
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
                let is_abandoned = |history: &&mut CallHistory| {
                    history.id == id
                        && matches!(history.state, CallState::Abandoned | CallState::TimedOut)
                        && history.sent
                        && !history.cancelled
                };
                let history = self.calls.values_mut().find(is_abandoned);
                history
                    .expect("a cancel names a sent and abandoned call, once")
                    .cancelled = true;
            }
            _ => {}
        }
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.mux.poll_event() {
            match event {
                MuxEvent::Request { id, params, .. } => {
                    self.serving.push((id, tag_of(params.as_deref())));
                }
                MuxEvent::Cancelled { id, .. } => {
                    assert!(self.over.insert(id), "cancelled twice");
                }
                MuxEvent::CallNotification { call, notification } => {
                    let history = &self.calls[&call];
                    assert_eq!(
                        history.state,
                        CallState::Open,
                        "progress on a call that is over"
                    );
                    let params = notification.params.expect("progress has params");
                    let value: serde_json::Value = params.decode().expect("params are JSON");
                    assert_eq!(
                        value["progressToken"], history.tag,
                        "progress of another call"
                    );
                }
                MuxEvent::Settled { call, outcome } => self.check_settled(call, outcome),
                MuxEvent::Warning(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        if self.mux.sizes().pending == 0 {
            assert_eq!(self.mux.poll_timeout(), None, "a deadline of no call");
        }
    }

    fn check_settled(&mut self, call: CallId, outcome: Result<Json, CallFailure>) {
        let history = self
            .calls
            .get_mut(&call)
            .expect("only calls of ours settle");
        assert_eq!(
            history.state,
            CallState::Open,
            "settled twice, or after it was abandoned"
        );
        history.state = CallState::Settled;
        match outcome {
            Ok(result) => assert_eq!(tag_of(Some(&result)), history.tag, "result of another call"),
            Err(CallFailure::Timeout(_)) => history.state = CallState::TimedOut,
            Err(CallFailure::Ended(_)) => {}
            Err(other) => panic!("unexpected {other:?}"),
        }
    }

    /// Checks that exactly the sent and abandoned calls were cancelled.
    fn check_cancels(&self) {
        for history in self.calls.values() {
            let is_abandoned = matches!(history.state, CallState::Abandoned | CallState::TimedOut);
            assert_eq!(
                history.cancelled,
                is_abandoned && history.sent,
                "a cancel was lost or made up"
            );
        }
    }

    fn check_end(&self) {
        assert_eq!(
            self.mux.sizes(),
            TableSizes::default(),
            "something is left in a table"
        );
        assert_eq!(self.mux.poll_timeout(), None, "a deadline is left");
        for history in self.calls.values() {
            assert_ne!(history.state, CallState::Open, "a call never ended");
        }
    }
}

fn tag_of(params: Option<&Json>) -> u64 {
    let CallTag { tag } = params
        .and_then(|params| params.decode().ok())
        .expect("every message has a tag");
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

    struct SeedReporter(u64);

    impl Drop for SeedReporter {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the failing seed is {}", self.0);
            }
        }
    }

    #[test]
    fn all_invariants_hold_on_25_000_random_schedules() {
        for seed in 0..25_000 {
            let _reporter = SeedReporter(seed);
            mux(&schedule(seed));
        }
    }

    #[test]
    fn one_seed_gives_one_schedule() {
        assert_eq!(schedule(7), schedule(7));
        assert_ne!(schedule(7), schedule(8));
    }
}
