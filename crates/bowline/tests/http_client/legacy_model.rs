//! A model of the legacy client: random schedules of calls, drops, restarts, cuts and delays, against laws.
//!
//! Everything is decided by a seed, the clock is paused, and the server has no sockets: the same seed plays the same
//! schedule. `BOWLINE_SEEDS=from..to` plays others than the usual ones.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bowline::client::{Change, Changes};
use bowline::types::LoggingLevel;
use bowline::{Call, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::legacy_server::{LegacyServer, OnGet, Seen, Stage, World};

const URIS: [&str; 3] = ["file:///a", "file:///b", "file:///c"];
const LEVELS: [(LoggingLevel, &str); 2] =
    [(LoggingLevel::Error, "error"), (LoggingLevel::Info, "info")];

/// How one schedule went, as seen when it was over and at peace.
struct Record {
    seed: u64,
    /// What the server processed, one line each.
    trace: String,
    /// What connections got.
    calls: Vec<Handed>,
    cancels: Vec<Handed>,
    /// Calls whose cancel was lost on the way.
    lost_cancels: Vec<String>,
    /// The calls that were dropped.
    dropped: Vec<Value>,
    /// Calls that still run, and where.
    running: Vec<(String, String)>,
    /// The newest session: its subscriptions and its log level.
    current: Option<(BTreeSet<String>, Option<String>)>,
    listeners: Vec<(&'static str, Heard)>,
    /// When each resource was changed last.
    changed: BTreeMap<&'static str, Instant>,
    level: Option<&'static str>,
    unanswered: usize,
    connections: usize,
}

/// A message that a connection got: in which place, about which request, in which session.
struct Handed {
    at: usize,
    id: Value,
    session: Option<String>,
}

/// A subscription to one resource, in a task of its own.
struct Listener {
    uri: &'static str,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    since: Option<Instant>,
    last: Option<Instant>,
    has_ended: bool,
}

impl Listener {
    fn start(client: &Client, uri: &'static str) -> Self {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (client, told) = (client.clone(), heard.clone());
        tokio::spawn(async move {
            let Ok(mut changes) = client.subscribe(Changes::new().resource(uri)).await else {
                told.lock().unwrap().has_ended = true;
                return;
            };
            told.lock().unwrap().since = Some(Instant::now());
            while let Ok(Some(change)) = changes.next().await {
                assert_eq!(change, Change::Resource(uri.into()));
                told.lock().unwrap().last = Some(Instant::now());
            }
            told.lock().unwrap().has_ended = true;
        });
        Self { uri, heard }
    }

    fn heard(&self) -> Heard {
        *self.heard.lock().unwrap()
    }
}

/// SplitMix64.
#[derive(Clone)]
struct Chance(u64);

impl Chance {
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

/// Delays that let requests overtake each other, on one stage or another.
fn delays(seed: u64) -> impl FnMut(Stage, &str) -> u64 + Send {
    let mut chance = Chance(seed ^ 0x5eed);
    move |stage, _| match (stage, chance.below(4)) {
        (_, 0 | 1) => 0,
        (Stage::Connect, 2) => chance.below(20),
        (Stage::Connect, _) => chance.below(300),
        (Stage::Transit, 2) => chance.below(80),
        // Longer than the head start of a cancel.
        (Stage::Transit, _) => chance.below(250),
        (Stage::Head, 2) => chance.below(90),
        (Stage::Head, _) => chance.below(400),
    }
}

async fn play(seed: u64) -> Record {
    let mut chance = Chance(seed);
    let server = LegacyServer::start();
    let start = Instant::now();
    let client = server.connect().await;
    server.world().numbers_events = chance.below(2) == 0;
    server.world().delays = Some(Box::new(delays(seed)));
    let mut calls: Vec<(i64, bool, Call)> = Vec::new();
    let (mut dropped, mut listeners) = (Vec::new(), Vec::new());
    let (mut changed, mut level) = (BTreeMap::new(), None);
    for step in 0..40 {
        match chance.below(16) {
            0..=4 => {
                let id = 1000 + step;
                let is_slow = chance.below(3) > 0;
                let tool = if is_slow { "slow" } else { "quick" };
                calls.push((id, is_slow, client.call_tool(tool, ()).id(id).start()));
            }
            5..=7 if !calls.is_empty() => {
                let at = chance.below(calls.len() as u64) as usize;
                let (id, _, call) = calls.remove(at);
                dropped.push(json!(id));
                drop(call);
            }
            8 => server.restart(),
            9 => server.cut_streams(),
            10 => {
                let mut world = server.world();
                world.is_down = !world.is_down;
            }
            11 => {
                let answers = [OnGet::Stream, OnGet::Stream, OnGet::Status(503)];
                server.world().on_get = chance.pick(&answers);
            }
            12 => listeners.push(Listener::start(&client, chance.pick(&URIS))),
            13 => {
                let uri = chance.pick(&URIS);
                changed.insert(uri, Instant::now());
                server.change_resource(uri);
            }
            14 => {
                let (wanted, name) = chance.pick(&LEVELS);
                let setting = client.set_log_level(wanted).into_future();
                let set = tokio::time::timeout(LONG, setting).await;
                level = set.is_ok_and(|set| set.is_ok()).then_some(name);
            }
            _ => {}
        }
        sleep(Duration::from_millis(chance.below(300))).await;
    }
    // Peace: whatever can be restored is restored by the end of it.
    server.world().is_down = false;
    server.world().on_get = OnGet::Stream;
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
        .map(|own: &Listener| (own.uri, own.heard()));
    let record = Record {
        seed,
        dropped,
        listeners: listeners.collect(),
        changed,
        level,
        unanswered,
        connections: server.connections(),
        ..Record::of(&server.world(), start)
    };
    drop(client);
    record
}

impl Record {
    /// What the server can tell.
    fn of(world: &World, start: Instant) -> Self {
        let handed = |method: &str| -> Vec<Handed> {
            let all = world.handed.iter().enumerate();
            let all = all.filter(|(_, (message, _))| message["method"] == method);
            let handed = all.map(|(at, (message, session))| Handed {
                at,
                id: about(message).clone(),
                session: session.clone(),
            });
            handed.collect()
        };
        let running = world.sessions.iter().flat_map(|(name, session)| {
            let ids = session.running.keys();
            ids.map(|id| (name.clone(), id.clone()))
        });
        let lost = world.lost.iter();
        let lost = lost.filter(|lost| lost["method"] == "notifications/cancelled");
        let lost_cancels = lost.map(|lost| about(lost).to_string());
        let newest = world.sessions.values().max_by_key(|session| session.opened);
        Self {
            seed: 0,
            trace: world.seen.iter().map(|seen| line(seen, start)).collect(),
            calls: handed("tools/call"),
            cancels: handed("notifications/cancelled"),
            lost_cancels: lost_cancels.collect(),
            dropped: Vec::new(),
            running: running.collect(),
            current: newest.map(|own| (own.subscriptions.clone(), own.level.clone())),
            listeners: Vec::new(),
            changed: BTreeMap::new(),
            level: None,
            unanswered: 0,
            connections: 0,
        }
    }
}

/// The request that a message is, or is about.
fn about(message: &Value) -> &Value {
    match &message["params"]["requestId"] {
        Value::Null => &message["id"],
        id => id,
    }
}

fn line(seen: &Seen, start: Instant) -> String {
    let at = seen.at.duration_since(start).as_millis();
    let session = seen.session.as_deref().unwrap_or("-");
    let (what, id, status) = (&seen.what, about(&seen.body), seen.status);
    format!("{at:>8} ms  {what} {id} in {session}: {status}\n")
}

fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("BOWLINE_SEEDS") else {
        return 0..200;
    };
    let (from, to) = range.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

/// Every schedule, played once for all laws.
fn records() -> &'static [Record] {
    static RECORDS: OnceLock<Vec<Record>> = OnceLock::new();
    let played = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(play(seed))
    };
    RECORDS.get_or_init(|| seeds().map(played).collect())
}

/// Checks a law in every schedule, and says in which it is broken.
fn holds(law: impl Fn(&Record) -> Result<(), String>) {
    for record in records() {
        if let Err(broken) = law(record) {
            let Record {
                seed,
                trace,
                dropped,
                ..
            } = record;
            let dropped: Vec<_> = dropped.iter().map(Value::to_string).collect();
            panic!("seed {seed}: {broken}\ndropped: {dropped:?}\n{trace}");
        }
    }
}

fn ensure(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}

#[test]
fn a_dropped_call_does_not_run_on_and_is_not_sent_after_its_cancel() {
    holds(|record| {
        for call in &record.calls {
            let earlier = |cancel: &&Handed| cancel.id == call.id && cancel.at < call.at;
            let earlier = record.cancels.iter().find(earlier);
            ensure(earlier.is_none(), || {
                format!("{} was sent after its cancel", call.id)
            })?;
        }
        if let Some((session, id)) = record.running.first() {
            return Err(format!("{id} runs on in {session}"));
        }
        Ok(())
    });
}

#[test]
fn every_cancel_names_a_dropped_call_once_and_in_the_session_it_was_last_posted_in() {
    holds(|record| {
        for Handed { at, id, session } in &record.cancels {
            let posted = record.cancels.iter().filter(|own| own.id == *id);
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
fn a_reopened_session_has_what_the_old_one_had() {
    holds(|record| {
        let Some((subscriptions, level)) = &record.current else {
            return Err("there is no session".into());
        };
        for (uri, _) in record.listeners.iter().filter(|(_, own)| !own.has_ended) {
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
fn a_change_is_told_even_if_it_happened_while_nobody_listened() {
    holds(|record| {
        for (uri, heard) in &record.listeners {
            let (Some(since), Some(changed)) = (heard.since, record.changed.get(uri)) else {
                continue;
            };
            let was_told = heard.last.is_some_and(|last| last >= *changed);
            ensure(was_told || heard.has_ended || *changed < since, || {
                format!("{uri} changed and {heard:?}")
            })?;
        }
        Ok(())
    });
}

#[test]
fn every_call_ends_and_a_client_at_rest_holds_one_connection() {
    holds(|record| {
        let (unanswered, connections) = (record.unanswered, record.connections);
        ensure(unanswered == 0, || {
            format!("{unanswered} calls have no end")
        })?;
        ensure(connections == 1, || format!("{connections} connections"))
    });
}

const LONG: Duration = Duration::from_secs(300);
