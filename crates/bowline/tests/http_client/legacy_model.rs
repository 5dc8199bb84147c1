//! Random schedules of calls, drops, restarts, closed streams and delays against the legacy client, and invariants.
//!
//! A seed decides everything, the clock is paused, and the server has no sockets: the same seed runs the same
//! schedule. `BOWLINE_SEEDS=from..to` selects other seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bowline::client::{Change, ChangeFilter};
use bowline::types::LoggingLevel;
use bowline::{Call, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::legacy_server::{
    BadRequest, GetBehavior, HoldStage, LegacyServer, LegacyServerState, ProcessedRequest,
};

const URIS: [&str; 3] = ["file:///a", "file:///b", "file:///c"];
const LEVELS: [(LoggingLevel, &str); 2] =
    [(LoggingLevel::Error, "error"), (LoggingLevel::Info, "info")];

/// The record of one schedule, taken after everything has settled.
struct ScheduleRecord {
    seed: u64,
    /// The requests that the server processed, one per line.
    trace: String,
    /// Calls written to connections.
    calls: Vec<SentMessage>,
    cancels: Vec<SentMessage>,
    /// Calls whose cancel was lost in transit.
    lost_cancels: Vec<String>,
    dropped: Vec<Value>,
    /// Calls that still run: the session and the id.
    running: Vec<(String, String)>,
    /// The subscriptions and the log level of the newest session.
    current: Option<(BTreeSet<String>, Option<String>)>,
    listeners: Vec<(&'static str, ListenerState)>,
    /// The time of the last change of each resource.
    changed: BTreeMap<&'static str, Instant>,
    level: Option<&'static str>,
    unanswered: usize,
    connections: usize,
}

/// A message written to a connection: its position, the id of its request, its session.
struct SentMessage {
    at: usize,
    id: Value,
    session: Option<String>,
}

/// A subscription to one resource, in its own task.
struct ResourceListener {
    uri: &'static str,
    state: Arc<Mutex<ListenerState>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ListenerState {
    since: Option<Instant>,
    last: Option<Instant>,
    has_ended: bool,
}

impl ResourceListener {
    fn start(client: &Client, uri: &'static str) -> Self {
        let state = Arc::new(Mutex::new(ListenerState::default()));
        let (client, shared) = (client.clone(), state.clone());
        tokio::spawn(async move {
            let Ok(mut changes) = client.subscribe(ChangeFilter::new().resource(uri)).await else {
                shared.lock().unwrap().has_ended = true;
                return;
            };
            shared.lock().unwrap().since = Some(Instant::now());
            while let Ok(Some(change)) = changes.next().await {
                assert_eq!(change, Change::Resource(uri.into()));
                shared.lock().unwrap().last = Some(Instant::now());
            }
            shared.lock().unwrap().has_ended = true;
        });
        Self { uri, state }
    }

    fn state(&self) -> ListenerState {
        *self.state.lock().unwrap()
    }
}

#[derive(Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Delays that let requests overtake one another.
fn delays(seed: u64) -> impl FnMut(HoldStage, &str) -> u64 + Send {
    let mut random = SplitMix64(seed ^ 0x5eed);
    move |stage, _| match (stage, random.below(4)) {
        (_, 0 | 1) => 0,
        (HoldStage::Connect, 2) => random.below(20),
        (HoldStage::Connect, _) => random.below(300),
        (HoldStage::Transit, 2) => random.below(80),
        // Longer than a cancel waits after its request.
        (HoldStage::Transit, _) => random.below(250),
        (HoldStage::Head, 2) => random.below(90),
        (HoldStage::Head, _) => random.below(400),
    }
}

const GET_BEHAVIORS: [GetBehavior; 3] = [
    GetBehavior::Stream,
    GetBehavior::Stream,
    GetBehavior::Status(503),
];

const UNKNOWN_SESSIONS: [Option<BadRequest>; 4] = [
    None,
    Some(BadRequest::OwnId(-32000)),
    Some(BadRequest::NullId),
    Some(BadRequest::Text),
];

async fn run_schedule(seed: u64) -> ScheduleRecord {
    let mut random = SplitMix64(seed);
    let server = LegacyServer::start();
    let unknown_session = SplitMix64(seed ^ 0x404).pick(&UNKNOWN_SESSIONS);
    server.state().unknown_session = unknown_session;
    let start = Instant::now();
    let client = server.connect().await;
    server.state().has_event_ids = random.below(2) == 0;
    server.state().delays = Some(Box::new(delays(seed)));
    let mut calls: Vec<(i64, bool, Call)> = Vec::new();
    let (mut dropped, mut listeners) = (Vec::new(), Vec::new());
    let (mut changed, mut level) = (BTreeMap::new(), None);
    for step in 0..40 {
        match random.below(16) {
            0..=4 => {
                let id = 1000 + step;
                let is_slow = random.below(3) > 0;
                let tool = if is_slow { "slow" } else { "quick" };
                calls.push((id, is_slow, client.call_tool(tool, ()).id(id).start()));
            }
            5..=7 if !calls.is_empty() => {
                let at = random.below(calls.len() as u64) as usize;
                let (id, _, call) = calls.remove(at);
                dropped.push(json!(id));
                drop(call);
            }
            8 => server.restart(),
            9 => server.cut_streams(),
            10 => {
                let mut state = server.state();
                state.is_down = !state.is_down;
            }
            11 => {
                server.state().get_behavior = random.pick(&GET_BEHAVIORS);
            }
            12 => listeners.push(ResourceListener::start(&client, random.pick(&URIS))),
            13 => {
                let uri = random.pick(&URIS);
                changed.insert(uri, Instant::now());
                server.change_resource(uri);
            }
            14 => {
                let (wanted, name) = random.pick(&LEVELS);
                let setting = client.set_log_level(wanted).into_future();
                let set = tokio::time::timeout(LONG, setting).await;
                level = set.is_ok_and(|set| set.is_ok()).then_some(name);
            }
            _ => {}
        }
        sleep(Duration::from_millis(random.below(300))).await;
    }
    // The faults end here: whatever can be restored is restored after this sleep.
    server.state().is_down = false;
    server.state().get_behavior = GetBehavior::Stream;
    sleep(LONG).await;
    let mut unanswered = 0;
    for (id, is_slow, call) in calls {
        let settled = tokio::time::timeout(Duration::from_millis(1), call).await;
        unanswered += usize::from(settled.is_err() && !is_slow);
        dropped.push(json!(id));
    }
    sleep(LONG).await;
    let listeners = listeners
        .iter()
        .map(|listener: &ResourceListener| (listener.uri, listener.state()));
    let record = ScheduleRecord {
        seed,
        dropped,
        listeners: listeners.collect(),
        changed,
        level,
        unanswered,
        connections: server.connections(),
        ..ScheduleRecord::of(&server.state(), start)
    };
    drop(client);
    record
}

impl ScheduleRecord {
    /// The part of the record that the server has.
    fn of(state: &LegacyServerState, start: Instant) -> Self {
        let sent = |method: &str| -> Vec<SentMessage> {
            let all = state.sent.iter().enumerate();
            let all = all.filter(|(_, (message, _))| message["method"] == method);
            let sent = all.map(|(at, (message, session))| SentMessage {
                at,
                id: request_id_of(message).clone(),
                session: session.clone(),
            });
            sent.collect()
        };
        let running = state.sessions.iter().flat_map(|(name, session)| {
            let ids = session.running.keys();
            ids.map(|id| (name.clone(), id.clone()))
        });
        let lost = state.lost.iter();
        let lost = lost.filter(|lost| lost["method"] == "notifications/cancelled");
        let lost_cancels = lost.map(|lost| request_id_of(lost).to_string());
        let newest = state.sessions.values().max_by_key(|session| session.number);
        Self {
            seed: 0,
            trace: state
                .processed
                .iter()
                .map(|processed| line(processed, start))
                .collect(),
            calls: sent("tools/call"),
            cancels: sent("notifications/cancelled"),
            lost_cancels: lost_cancels.collect(),
            dropped: Vec::new(),
            running: running.collect(),
            current: newest.map(|session| (session.subscriptions.clone(), session.level.clone())),
            listeners: Vec::new(),
            changed: BTreeMap::new(),
            level: None,
            unanswered: 0,
            connections: 0,
        }
    }
}

/// The id of the request that a message is or refers to.
fn request_id_of(message: &Value) -> &Value {
    match &message["params"]["requestId"] {
        Value::Null => &message["id"],
        id => id,
    }
}

fn line(processed: &ProcessedRequest, start: Instant) -> String {
    let at = processed.at.duration_since(start).as_millis();
    let session = processed.session.as_deref().unwrap_or("-");
    let (label, id, status) = (
        &processed.label,
        request_id_of(&processed.body),
        processed.status,
    );
    format!("{at:>8} ms  {label} {id} in {session}: {status}\n")
}

fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("BOWLINE_SEEDS") else {
        return 0..200;
    };
    let (from, to) = range.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

/// The records of all schedules, run once for all invariants.
fn records() -> &'static [ScheduleRecord] {
    static RECORDS: OnceLock<Vec<ScheduleRecord>> = OnceLock::new();
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(run_schedule(seed))
    };
    RECORDS.get_or_init(|| seeds().map(run).collect())
}

/// Checks an invariant in every schedule, and panics with the first that violates it.
fn check_invariant(invariant: impl Fn(&ScheduleRecord) -> Result<(), String>) {
    for record in records() {
        if let Err(violation) = invariant(record) {
            let ScheduleRecord {
                seed,
                trace,
                dropped,
                ..
            } = record;
            let dropped: Vec<_> = dropped.iter().map(Value::to_string).collect();
            panic!("seed {seed}: {violation}\ndropped: {dropped:?}\n{trace}");
        }
    }
}

fn ensure(condition: bool, violation: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(violation()) }
}

#[test]
fn a_dropped_call_stops_running_and_is_not_sent_after_its_cancel() {
    check_invariant(|record| {
        for call in &record.calls {
            let earlier = |cancel: &&SentMessage| cancel.id == call.id && cancel.at < call.at;
            let earlier = record.cancels.iter().find(earlier);
            ensure(earlier.is_none(), || {
                format!("{} was sent after its cancel", call.id)
            })?;
        }
        if let Some((session, id)) = record.running.first() {
            return Err(format!("{id} still runs in {session}"));
        }
        Ok(())
    });
}

#[test]
fn every_cancel_names_a_dropped_call_once_in_the_session_of_its_last_post() {
    check_invariant(|record| {
        for SentMessage { at, id, session } in &record.cancels {
            let posted = record.cancels.iter().filter(|cancel| cancel.id == *id);
            let lost = record
                .lost_cancels
                .iter()
                .filter(|lost| *lost == id.to_string().as_str());
            let arrived = posted.count() - lost.count();
            ensure(arrived <= 1, || format!("{id} was cancelled twice"))?;
            let is_dropped = record.dropped.contains(id);
            ensure(is_dropped, || format!("{id} was not dropped"))?;
            let mut posts = record.calls.iter().rev();
            let posted = posts.find(|call| call.id == *id && call.at < *at);
            let posted = posted.map(|call| &call.session);
            ensure(posted == Some(session), || {
                format!("{id} was posted in {posted:?} and cancelled in {session:?}")
            })?;
        }
        Ok(())
    });
}

#[test]
fn a_reopened_session_restores_subscriptions_and_log_level() {
    check_invariant(|record| {
        let Some((subscriptions, level)) = &record.current else {
            return Err("there is no session".into());
        };
        for (uri, _) in record
            .listeners
            .iter()
            .filter(|(_, listener)| !listener.has_ended)
        {
            let is_subscribed = subscriptions.contains(*uri);
            ensure(is_subscribed, || {
                format!("there is no subscription to {uri}")
            })?;
        }
        let wanted = record.level;
        ensure(wanted.is_none() || level.as_deref() == wanted, || {
            format!("the log level is {level:?} and not {wanted:?}")
        })
    });
}

#[test]
fn a_change_during_a_disconnect_is_reported() {
    check_invariant(|record| {
        for (uri, listener) in &record.listeners {
            let (Some(since), Some(changed)) = (listener.since, record.changed.get(uri)) else {
                continue;
            };
            let is_reported = listener.last.is_some_and(|last| last >= *changed);
            ensure(
                is_reported || listener.has_ended || *changed < since,
                || format!("{uri} changed and {listener:?}"),
            )?;
        }
        Ok(())
    });
}

#[test]
fn every_call_settles_and_an_idle_client_holds_one_connection() {
    check_invariant(|record| {
        let (unanswered, connections) = (record.unanswered, record.connections);
        ensure(unanswered == 0, || {
            format!("{unanswered} calls did not settle")
        })?;
        ensure(connections == 1, || format!("{connections} connections"))
    });
}

const LONG: Duration = Duration::from_secs(300);
