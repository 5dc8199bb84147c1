//! The simulation that a schedule runs in: sessions, and a model of what they should do.

#![allow(
    clippy::panic,
    reason = "a violated invariant is reported by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::http::Request;
use bowline_core::{Message, Notification, RawRequest, Response};
use bowline_types::{Json, RequestId};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Invariant, has_dropped_events};
use crate::exchange::Principal;
use crate::http::legacy::event_store::MemoryEventStore;
use crate::http::legacy::session::{Session, SessionWire, StreamReader};
use crate::http::legacy::session_state::{
    Activity, DecodedPost, EvictionRank, PostHead, SessionTimeouts, TimeoutOutcome,
};
use crate::http::legacy::sessions::{RunningSession, Sessions};
use crate::http::legacy::streams::{ResponseForm, SessionStreams, StreamLayout, UNSOLICITED};
use crate::limits::{Account, Limit, Limits};
use crate::wire::{EngineWire as _, Received, WireEvent};

pub(super) struct SessionSimulation {
    seed: u64,
    invariant: Invariant,
    rng: SeededRng,
    account: Arc<Account>,
    sessions: Arc<Sessions>,
    clients: Vec<ModelClient>,
    open: Vec<OpenResponse>,
    last_tag: u64,
    last_client: u64,
    /// Where each message was seen: client, stream and position.
    seen: BTreeMap<u64, (u64, u64, u64)>,
    /// Where each message should be: client and stream.
    belongs: BTreeMap<u64, (u64, u64)>,
    /// Where the end of each request was seen, and whether that was a cancel.
    ends: BTreeMap<(u64, u64, RequestId), (u64, bool)>,
    /// Requests that were cancelled, by client and stream.
    cancelled: BTreeSet<(u64, u64, RequestId)>,
}

/// A session, with the client's and the engine's side of it.
struct ModelClient {
    number: u64,
    layout: StreamLayout,
    session: Arc<Session>,
    /// The engine's side; `None` once the session has ended.
    wire: Option<SessionWire>,
    /// The unanswered requests, and the streams of their answers.
    unanswered: BTreeMap<RequestId, u64>,
    /// Those of them that the engine has received.
    serving: BTreeMap<RequestId, Option<Arc<PostHead>>>,
    used: BTreeSet<RequestId>,
    /// Early cancels, and when they expire.
    early: BTreeMap<RequestId, Instant>,
    /// Requests that must never reach the engine.
    stopped: BTreeSet<RequestId>,
}

/// An open response.
struct OpenResponse {
    client: u64,
    key: u64,
    reader: StreamReader,
    /// Whether its head was sent.
    is_events: bool,
    /// The position of the last event that it read.
    last: Option<u64>,
}

/// A small random generator (SplitMix64): the same seed produces the same schedule.
pub(super) struct SeededRng(pub(super) u64);

impl SeededRng {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub(super) fn one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }

    fn at<T>(&mut self, of: &[T]) -> Option<usize> {
        (!of.is_empty()).then(|| self.below(of.len() as u64) as usize)
    }

    fn id(&mut self) -> RequestId {
        match self.below(12) {
            number @ 0..8 => RequestId::Number(number as i64),
            8 => "1".into(),
            9 => "2".into(),
            10 => "a".into(),
            _ => RequestId::Number(self.below(1000) as i64),
        }
    }
}

impl SessionSimulation {
    pub(super) fn new(seed: u64, invariant: Invariant) -> Self {
        let limits = Limits {
            sessions: 4,
            principal_sessions: 2,
            requests: 24,
            peer_requests: 3,
            event_bytes: EVENT_BYTES,
            session_event_bytes: EVENT_BYTES / 2,
            session_events: 6,
            output_bytes: 300,
            ..Limits::default()
        };
        Self {
            seed,
            invariant,
            rng: SeededRng(seed),
            account: Account::total(limits),
            sessions: Arc::default(),
            clients: Vec::new(),
            open: Vec::new(),
            last_tag: 0,
            last_client: 0,
            seen: BTreeMap::new(),
            belongs: BTreeMap::new(),
            ends: BTreeMap::new(),
            cancelled: BTreeSet::new(),
        }
    }

    pub(super) async fn step(&mut self) {
        match self.rng.below(32) {
            0..=1 => self.open_session(),
            2..=6 => self.post(),
            7..=8 => self.cancel(),
            9..=12 => self.drive(),
            13..=16 => self.answer(),
            17..=19 => self.send_message(),
            20..=25 => self.read(),
            26 => self.get(),
            27..=28 => self.resume(),
            29 => self.drop_response(),
            30 => self.advance_time().await,
            _ if self.rng.one_in(3) => self.end_session(),
            _ => self.drive(),
        }
        self.check_sizes();
    }

    /// Ends all requests and sessions, and checks that no memory is held.
    pub(super) async fn finish(&mut self) {
        tokio::time::advance(Duration::from_secs(20)).await;
        self.open.clear();
        for at in 0..self.clients.len() {
            while self.drive_one(at) {}
            let unanswered: Vec<_> = self.clients[at].unanswered.keys().cloned().collect();
            for id in unanswered {
                self.send_answer(at, &id);
            }
            self.clients[at].session.handle_timeouts(NO_TIMEOUTS);
        }
        let usage = self.account.usage();
        let held = (usage.requests, usage.request_bytes, usage.output_bytes);
        self.check(Invariant::NothingHeld, held == (0, 0, 0), || {
            format!("held while no request runs: {usage:?}")
        });
        for client in std::mem::take(&mut self.clients) {
            drop(self.sessions.remove(&client.session.id()));
        }
        let usage = self.account.usage();
        self.check(
            Invariant::NothingHeld,
            (usage.bytes(), usage.sessions) == (0, 0),
            || format!("held when all sessions are gone: {usage:?}"),
        );
    }

    fn check(&self, invariant: Invariant, holds: bool, seen: impl FnOnce() -> String) {
        if invariant == self.invariant && !holds {
            panic!("seed {}: {invariant:?}: {}", self.seed, seen());
        }
    }

    fn open_session(&mut self) {
        let layout = match self.rng.one_in(4) {
            true => StreamLayout::HttpSse,
            false => StreamLayout::StreamableHttp,
        };
        let principal = match self.rng.below(3) {
            0 => Principal::named("ada"),
            _ => Principal::anonymous(),
        };
        let account = self.account.principal(principal.name()).peer();
        let store = MemoryEventStore::with_limits(account.limits(), account.counters().clone());
        let streams = SessionStreams::new(layout, Box::new(store), account.clone());
        self.last_client += 1;
        let number = self.last_client;
        let pool = self.sessions.pool();
        let session = Session::new(principal, layout, streams, account, pool, None);
        session.set_id(format!("session {number}").into());
        let task = tokio::spawn(std::future::pending::<()>());
        let before = self.eviction_ranks();
        if layout == StreamLayout::HttpSse {
            let reader = session.attach(UNSOLICITED, None);
            let reader = reader.unwrap_or_else(|why| panic!("a new stream: {why:?}"));
            self.open.push(OpenResponse {
                client: number,
                key: UNSOLICITED,
                reader,
                is_events: true,
                last: None,
            });
        }
        let running = RunningSession::new(session.clone(), task.abort_handle(), Default::default());
        let published = self.sessions.publish(running);
        assert!(published.is_ok(), "a session was rejected");
        self.check_evicted(&session, &before);
        self.clients.push(ModelClient {
            number,
            layout,
            wire: Some(SessionWire::new(session.clone())),
            session,
            unanswered: BTreeMap::new(),
            serving: BTreeMap::new(),
            used: BTreeSet::new(),
            early: BTreeMap::new(),
            stopped: BTreeSet::new(),
        });
        let count = self.sessions.len();
        self.check(Invariant::Bounds, count <= 4, || {
            format!("{count} sessions")
        });
    }

    fn eviction_ranks(&self) -> Vec<(EvictionRank, u64)> {
        let clients = self.clients.iter();
        clients
            .map(|client| (client.session.eviction_rank(), client.number))
            .collect()
    }

    /// Checks which sessions were ended to make room for a new one, and drops their clients.
    fn check_evicted(&mut self, new: &Session, before: &[(EvictionRank, u64)]) {
        let lives = |client: &ModelClient| {
            let found = self
                .sessions
                .find(&client.session.id(), &client.session.principal);
            found.is_ok()
        };
        let (stay, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.clients)
            .into_iter()
            .partition(lives);
        self.clients = stay;
        self.check(Invariant::LongestIdleFirst, gone.len() <= 2, || {
            "ended more than two".into()
        });
        let is_own_quota = |client: &ModelClient| {
            new.principal.name().is_some() && client.session.principal == new.principal
        };
        for client in &gone {
            let of = |number| before.iter().find(|(_, other)| *other == number);
            let (rank, _) = *of(client.number).expect("it was open");
            // At its own limit a principal loses one of its own sessions, whatever others there are.
            let rivals = self
                .clients
                .iter()
                .filter(|rival| !is_own_quota(client) || rival.session.principal == new.principal);
            for rival in rivals {
                let (other, _) = *of(rival.number).expect("it was open");
                let is_first = match rank.activity {
                    // Ended in the order of their opening.
                    Activity::Unused => true,
                    activity => other.activity > activity || other >= rank,
                };
                self.check(Invariant::LongestIdleFirst, is_first, || {
                    format!("ended {rank:?} rather than {other:?}")
                });
            }
        }
        gone.into_iter().for_each(drop);
    }

    fn pick(&mut self) -> Option<usize> {
        self.rng.at(&self.clients)
    }

    fn post(&mut self) {
        let Some(at) = self.pick() else { return };
        let layout = self.clients[at].layout;
        let mut messages = Vec::new();
        let mut ids = BTreeSet::new();
        for _ in 0..=self.rng.below(3) {
            let id = self.rng.id();
            if self.rng.one_in(6) {
                messages.push(cancel(&id));
            } else if ids.insert(id.clone()) {
                messages.push(request(id, "tools/call", 0));
            }
        }
        let refusals = match self.rng.one_in(6) && layout == StreamLayout::StreamableHttp {
            true => vec![Bytes::from_static(b"{\"error\":1}")],
            false => Vec::new(),
        };
        let form = match self.rng.below(3) {
            0 => ResponseForm::Json,
            1 => ResponseForm::Events,
            _ => ResponseForm::Undecided,
        };
        let has_stream =
            layout == StreamLayout::StreamableHttp && (!ids.is_empty() || !refusals.is_empty());
        self.send(at, &messages, refusals, has_stream.then_some(form));
    }

    fn cancel(&mut self) {
        let Some(at) = self.pick() else { return };
        let id = match self.rng.one_in(2) {
            true => self.clients[at].unanswered.keys().next().cloned(),
            false => None,
        };
        let id = id.unwrap_or_else(|| self.rng.id());
        for _ in 0..=self.rng.below(2) {
            self.send(at, &[cancel(&id)], Vec::new(), None);
        }
    }

    /// Posts messages to a session.
    fn send(
        &mut self,
        at: usize,
        messages: &[Message],
        refusals: Vec<Bytes>,
        form: Option<ResponseForm>,
    ) {
        let before = (self.account.usage(), self.clients[at].session.sizes());
        let Ok(charge) = self.account.charge_request(600 + 100 * messages.len()) else {
            return; // rejected before the session sees it
        };
        let head = Request::new(()).into_parts().0;
        let post = DecodedPost::new(
            messages.iter().cloned().collect(),
            refusals,
            head,
            charge,
            600,
        );
        let session = self.clients[at].session.clone();
        match session.post(post, form) {
            Ok(reader) => {
                let key = reader.as_ref().map_or(UNSOLICITED, StreamReader::key);
                self.clients[at].apply_post(messages, key, &mut self.cancelled);
                let client = self.clients[at].number;
                self.open.extend(reader.map(|reader| OpenResponse {
                    client,
                    key,
                    reader,
                    is_events: form == Some(ResponseForm::Events),
                    last: None,
                }));
            }
            Err(refused) => {
                let usage = self.account.usage();
                let after = (usage.clone(), session.sizes());
                let is_same = after.1 == before.1
                    && (usage.bytes(), usage.requests) == (before.0.bytes(), before.0.requests);
                self.check(Invariant::RejectionChangesNothing, is_same, || {
                    format!("{refused}: {before:?} became {after:?}")
                });
            }
        }
    }

    fn drive(&mut self) {
        if let Some(at) = self.pick() {
            self.drive_one(at);
        }
    }

    /// Lets an engine receive one message, and returns whether there was one.
    fn drive_one(&mut self, at: usize) -> bool {
        let client = &mut self.clients[at];
        let Some(wire) = &mut client.wire else {
            return false;
        };
        let cx = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(received) = wire.poll_event(cx) else {
            return false;
        };
        let _ = wire.poll_flush(cx);
        match received {
            WireEvent::Received(Received::Message(Message::Request(raw))) => {
                let is_twice = client.serving.contains_key(&raw.id);
                if is_twice {
                    let error = bowline_types::RpcError::new(bowline_types::ErrorCode(-32600), "");
                    let (id, outcome) = (None, Err(error));
                    (client.session).send(None, &Response { id, outcome }.into());
                } else {
                    let head = client.session.take_head(&raw.id);
                    // With one stream, a session accepts a duplicate id, and the second request finds no head.
                    let has_head = head.is_some() || client.layout == StreamLayout::HttpSse;
                    client.serving.insert(raw.id.clone(), head);
                    let stopped = client.stopped.contains(&raw.id);
                    self.check(Invariant::EarlyCancel, !stopped, || {
                        format!("{} was cancelled before it arrived", raw.id)
                    });
                    self.check(Invariant::OwnStream, has_head, || {
                        format!("{} has no head", raw.id)
                    });
                }
            }
            WireEvent::Received(Received::Message(Message::Notification(notification))) => {
                let params: Value = notification
                    .params
                    .map_or(Value::Null, |it| it.decode().unwrap());
                let id: Option<RequestId> =
                    serde_json::from_value(params["requestId"].clone()).ok();
                if let Some(id) = id
                    && client.serving.remove(&id).is_some()
                {
                    wire.cancelled(&id);
                    if let Some(key) = client.unanswered.remove(&id) {
                        self.cancelled.insert((client.number, key, id));
                    }
                }
            }
            WireEvent::Received(Received::Message(Message::Response(_))) => {}
            other => panic!("expected a message, got {other:?}"),
        }
        true
    }

    fn answer(&mut self) {
        let Some(at) = self.pick() else { return };
        let serving: Vec<_> = self.clients[at].serving.keys().cloned().collect();
        if let Some(which) = self.rng.at(&serving) {
            self.send_answer(at, &serving[which]);
        }
    }

    fn send_answer(&mut self, at: usize, id: &RequestId) {
        self.last_tag += 1;
        let tag = self.last_tag;
        let length = self.rng.below(200) as usize;
        let client = &mut self.clients[at];
        client.serving.remove(id);
        let only = (client.layout == StreamLayout::HttpSse).then_some(UNSOLICITED);
        if let Some(key) = client.unanswered.remove(id).or(only) {
            self.belongs.insert(tag, (client.number, key));
        }
        let result = Json::encode(&json!({"tag": tag, "pad": "x".repeat(length)})).unwrap();
        let (id, outcome) = (Some(id.clone()), Ok(result));
        let answer = Response { id, outcome }.into();
        if client.wire.is_some() {
            client.session.send(None, &answer);
        }
    }

    /// Sends a notification or a request, within a request or on its own.
    fn send_message(&mut self) {
        let Some(at) = self.pick() else { return };
        self.last_tag += 1;
        let tag = self.last_tag;
        let serving: Vec<_> = self.clients[at].serving.keys().cloned().collect();
        let within = self.rng.at(&serving).map(|which| &serving[which]);
        let length = self.rng.below(300) as usize;
        let message = match self.rng.one_in(4) {
            true => request((tag as i64).into(), "roots/list", tag),
            false => {
                let params = json!({"tag": tag, "pad": "x".repeat(length)});
                Notification::new("word", Json::encode(&params).ok()).into()
            }
        };
        let client = &mut self.clients[at];
        let key = within.and_then(|id| client.unanswered.get(id).copied());
        // A request that belongs to none may be on the stream of any POST.
        let is_free = key.is_none() && matches!(message, Message::Request(_));
        if !is_free || client.layout == StreamLayout::HttpSse {
            let belongs = (client.number, key.unwrap_or(UNSOLICITED));
            self.belongs.insert(tag, belongs);
        }
        if client.wire.is_some() {
            client.session.send(within, &message);
            if is_free && self.rng.one_in(2) {
                let params = json!({"requestId": tag});
                let cancel =
                    Notification::new("notifications/cancelled", Json::encode(&params).ok());
                client
                    .session
                    .send_cancel(&(tag as i64).into(), &cancel.into());
            }
        }
    }

    /// Lets an open response read.
    fn read(&mut self) {
        let Some(at) = self.rng.at(&self.open) else {
            return;
        };
        let cx = &mut Context::from_waker(Waker::noop());
        if !self.open[at].is_events {
            match self.open[at].reader.poll_form(cx) {
                Poll::Ready(ResponseForm::Json) => {
                    let OpenResponse {
                        client,
                        key,
                        reader,
                        ..
                    } = self.open.remove(at);
                    let answers = reader.take_answers();
                    answers
                        .iter()
                        .for_each(|answer| self.check_message(client, key, 0, answer));
                    return;
                }
                Poll::Ready(_) => self.open[at].reader.commit_to_events(),
                Poll::Pending if self.rng.one_in(2) => {
                    self.open[at].reader.commit_to_events();
                }
                Poll::Pending => return,
            }
            self.open[at].is_events = true;
        }
        for _ in 0..=self.rng.below(3) {
            let OpenResponse { client, key, .. } = self.open[at];
            match self.open[at].reader.poll_next(cx) {
                Poll::Ready(Some((position, frame))) => {
                    let last = self.open[at].last.replace(position);
                    let may_skip = key != UNSOLICITED && has_dropped_events(&self.account);
                    let follows = |last| position == last + 1 || (position > last && may_skip);
                    self.check(Invariant::NoGaps, last.is_none_or(follows), || {
                        format!("{position} follows {last:?} on stream {key}")
                    });
                    self.check_message(client, key, position, &frame);
                }
                Poll::Ready(None) => {
                    drop(self.open.remove(at));
                    return;
                }
                Poll::Pending => return,
            }
        }
    }

    /// Checks a message that a response contains against the model.
    fn check_message(&mut self, client: u64, key: u64, position: u64, frame: &Bytes) {
        let message: Value = serde_json::from_slice(frame).expect("JSON");
        let tags = [&message["params"]["tag"], &message["result"]["tag"]];
        if let Some(tag) = tags.into_iter().find_map(Value::as_u64) {
            let here = (client, key, position);
            let there = *self.seen.entry(tag).or_insert(here);
            self.check(Invariant::OneStream, here == there, || {
                format!("{message} is at {here:?} and {there:?}")
            });
            let belongs = self.belongs.get(&tag);
            self.check(
                Invariant::OwnStream,
                belongs.is_none_or(|belongs| *belongs == (client, key)),
                || format!("{message} is on stream {key} of {client}, expected {belongs:?}"),
            );
        }
        let is_end = message.get("method").is_none();
        if let Ok(id) = serde_json::from_value::<RequestId>(message["id"].clone())
            && is_end
            && key != UNSOLICITED
        {
            let is_cancel = message["error"]["code"] == -32800;
            let request = (client, key, id);
            let was_cancelled = self.cancelled.contains(&request);
            let here = (position, is_cancel);
            let there = *self.ends.entry(request.clone()).or_insert(here);
            let is_right = here == there && is_cancel == was_cancelled;
            self.check(Invariant::EndedOnce, is_right, || {
                format!("{request:?} ends with {message} at {here:?}, and at {there:?}")
            });
        }
    }

    fn get(&mut self) {
        let Some(at) = self.pick() else { return };
        let was_read =
            |open: &OpenResponse| open.client == self.clients[at].number && open.key == UNSOLICITED;
        let is_free = !self.open.iter().any(was_read);
        let attached = self.attach(at, UNSOLICITED, None);
        self.check(Invariant::NoGaps, attached || !is_free, || {
            "a stream without a reader was refused".into()
        });
    }

    fn resume(&mut self) {
        let Some(at) = self.pick() else { return };
        let key = match self.rng.below(10) {
            0 => u64::MAX,
            _ => self.rng.below(6),
        };
        let position = match self.rng.below(10) {
            0 => u64::MAX,
            1 => u64::MAX - 1,
            _ => self.rng.below(8),
        };
        self.attach(at, key, Some(position));
    }

    fn attach(&mut self, at: usize, key: u64, after: Option<u64>) -> bool {
        let client = &self.clients[at];
        let sizes = client.session.sizes();
        match client.session.attach(key, after) {
            Ok(reader) => {
                self.check(
                    Invariant::NoGaps,
                    after.is_none_or(|position| position < 1000),
                    || format!("{key}-{after:?} was resumed"),
                );
                self.open.push(OpenResponse {
                    client: client.number,
                    key,
                    reader,
                    is_events: true,
                    last: after,
                });
                true
            }
            Err(_) => {
                let after = client.session.sizes();
                self.check(Invariant::RejectionChangesNothing, after == sizes, || {
                    format!("{sizes:?} became {after:?}")
                });
                false
            }
        }
    }

    fn drop_response(&mut self) {
        if let Some(at) = self.rng.at(&self.open) {
            let open = self.open.remove(at);
            let number = open.client;
            drop(open);
            let ends = |client: &ModelClient| {
                client.number == number && client.layout == StreamLayout::HttpSse
            };
            if let Some(at) = self.clients.iter().position(ends) {
                self.remove(at);
            }
        }
    }

    async fn advance_time(&mut self) {
        let millis = match self.rng.below(3) {
            0 => 1 + self.rng.below(100),
            1 => 1000 * (1 + self.rng.below(12)),
            _ => 1000 * (1 + self.rng.below(400)),
        };
        tokio::time::advance(Duration::from_millis(millis)).await;
        let timeouts = match self.rng.one_in(4) {
            true => NO_TIMEOUTS,
            false => SHORT_TIMEOUTS,
        };
        for at in (0..self.clients.len()).rev() {
            let sizes = self.clients[at].session.sizes();
            if self.clients[at].session.handle_timeouts(timeouts) == TimeoutOutcome::Expired {
                let is_idle = sizes.readers == 0 && sizes.unanswered.is_empty();
                let is_unlimited = timeouts.idle_timeout == Duration::MAX;
                self.check(Invariant::NothingHeld, is_idle && !is_unlimited, || {
                    format!("expired: {sizes:?}")
                });
                self.remove(at);
            }
        }
    }

    fn end_session(&mut self) {
        if let Some(at) = self.pick() {
            self.remove(at);
        }
    }

    /// Ends a session, like a DELETE or a restart of the server.
    fn remove(&mut self, at: usize) {
        let client = self.clients.remove(at);
        drop(self.sessions.remove(&client.session.id()));
    }

    fn check_sizes(&self) {
        for client in &self.clients {
            let sizes = client.session.sizes();
            let expected: Vec<_> = client.unanswered.keys().cloned().collect();
            for invariant in [Invariant::EndedOnce, Invariant::EarlyCancel] {
                self.check(invariant, sizes.unanswered == expected, || {
                    format!("in flight: {:?}, expected {expected:?}", sizes.unanswered)
                });
            }
            let early = client
                .early
                .values()
                .filter(|until| **until > Instant::now());
            let early = early.count();
            self.check(Invariant::EarlyCancel, sizes.early >= early, || {
                format!("{} cancels are kept, expected {early}", sizes.early)
            });
        }
        let usage = self.account.usage();
        self.check(Invariant::Bounds, usage.event_bytes <= EVENT_BYTES, || {
            format!("too many events: {usage:?}")
        });
        self.check(
            Invariant::Bounds,
            usage.sessions == self.sessions.len(),
            || format!("{} sessions: {usage:?}", self.sessions.len()),
        );
        let refused = usage.refused(Limit::TotalBytes);
        self.check(Invariant::Bounds, refused == 0, || format!("{usage:?}"));
    }
}

impl ModelClient {
    /// Updates the model with messages that the session accepted.
    fn apply_post(
        &mut self,
        messages: &[Message],
        key: u64,
        cancelled: &mut BTreeSet<(u64, u64, RequestId)>,
    ) {
        let now = Instant::now();
        self.early.retain(|_, until| *until > now);
        let mut ids = Vec::new();
        let mut ended = Vec::new();
        for message in messages {
            match message {
                Message::Request(raw) => {
                    ids.push(raw.id.clone());
                    self.used.insert(raw.id.clone());
                    if self.early.remove(&raw.id).is_some() {
                        self.stopped.insert(raw.id.clone());
                        ended.push(raw.id.clone());
                    } else {
                        self.stopped.remove(&raw.id);
                    }
                }
                Message::Notification(notification) => {
                    let params: Value = notification.params.as_ref().unwrap().decode().unwrap();
                    let id: RequestId =
                        serde_json::from_value(params["requestId"].clone()).unwrap();
                    let other = bowline_core::alternate_id(&id);
                    let is_in_flight = [Some(&id), other.as_ref()]
                        .into_iter()
                        .flatten()
                        .any(|id| ids.contains(id) || self.unanswered.contains_key(id));
                    if !is_in_flight && !self.used.contains(&id) {
                        self.early
                            .entry(id)
                            .or_insert(now + Duration::from_secs(10));
                    }
                }
                Message::Response(_) => {}
            }
        }
        for id in ids {
            self.unanswered.entry(id).or_insert(key);
        }
        for id in ended {
            if let Some(key) = self.unanswered.remove(&id) {
                cancelled.insert((self.number, key, id));
            }
        }
    }
}

fn request(id: RequestId, method: &'static str, tag: u64) -> Message {
    let params = Json::encode(&json!({"tag": tag})).unwrap();
    RawRequest {
        id,
        method: method.into(),
        params: (tag > 0).then(|| params.into()),
    }
    .into()
}

fn cancel(id: &RequestId) -> Message {
    let params = json!({"requestId": id});
    Notification::new("notifications/cancelled", Json::encode(&params).ok()).into()
}

const EVENT_BYTES: usize = 2500;
const NO_TIMEOUTS: SessionTimeouts = SessionTimeouts {
    idle_timeout: Duration::MAX,
    orphan_timeout: Duration::MAX,
};
const SHORT_TIMEOUTS: SessionTimeouts = SessionTimeouts {
    idle_timeout: Duration::from_secs(300),
    orphan_timeout: Duration::from_secs(100),
};
