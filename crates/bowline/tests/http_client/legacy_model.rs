//! A model of the legacy client: random schedules of calls, drops, restarts, cuts and delays, against laws.
//!
//! Everything is decided by a seed, the clock is paused, and the server has no sockets: the same seed plays the same
//! schedule. `BOWLINE_SEEDS=from..to` plays others than the usual ones.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{Change, Changes};
use bowline::types::LoggingLevel;
use bowline::{Call, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::legacy_server::{LegacyServer, OnGet, Seen, Stage};

const URIS: [&str; 3] = ["file:///a", "file:///b", "file:///c"];
const LEVELS: [(LoggingLevel, &str); 2] =
    [(LoggingLevel::Error, "error"), (LoggingLevel::Info, "info")];

/// How one schedule went.
struct Played {
    server: LegacyServer,
    start: Instant,
    /// The calls that were dropped.
    dropped: Vec<i64>,
    listeners: Vec<Listener>,
    /// When each resource was changed last.
    changed: BTreeMap<&'static str, Instant>,
    level: Option<&'static str>,
    unanswered: usize,
}

/// A subscription to one resource, in a task of its own.
struct Listener {
    uri: &'static str,
    heard: Arc<Mutex<Heard>>,
    task: JoinHandle<()>,
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
        let task = tokio::spawn(async move {
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
        Self { uri, heard, task }
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

async fn play(seed: u64) -> Played {
    let mut chance = Chance(seed);
    let server = LegacyServer::start();
    let client = server.connect().await;
    server.world().numbers_events = chance.below(2) == 0;
    server.world().delays = Some(Box::new(delays(seed)));
    let mut calls: Vec<(i64, bool, Call)> = Vec::new();
    let mut played = Played {
        server: server.clone(),
        start: Instant::now(),
        dropped: Vec::new(),
        listeners: Vec::new(),
        changed: BTreeMap::new(),
        level: None,
        unanswered: 0,
    };
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
                played.dropped.push(id);
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
            12 => {
                let uri = chance.pick(&URIS);
                played.listeners.push(Listener::start(&client, uri));
            }
            13 => {
                let uri = chance.pick(&URIS);
                played.changed.insert(uri, Instant::now());
                server.change_resource(uri);
            }
            14 => {
                let (level, name) = chance.pick(&LEVELS);
                let setting = client.set_log_level(level);
                if let Ok(Ok(_)) = tokio::time::timeout(LONG, setting.into_future()).await {
                    played.level = Some(name);
                } else {
                    played.level = None;
                }
            }
            _ => {}
        }
        sleep(Duration::from_millis(chance.below(300))).await;
    }
    // Peace: whatever can be restored is restored by the end of it.
    server.world().is_down = false;
    server.world().on_get = OnGet::Stream;
    sleep(LONG).await;
    for (id, is_slow, call) in calls {
        let settled = tokio::time::timeout(Duration::from_millis(1), call).await;
        if settled.is_err() && !is_slow {
            played.unanswered += 1;
        }
        played.dropped.push(id);
    }
    sleep(LONG).await;
    drop(client);
    played
}

impl Played {
    fn of(seed: u64) -> (Self, tokio::runtime::Runtime) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let played = runtime.block_on(play(seed));
        (played, runtime)
    }

    /// What the server processed, one line each.
    fn trace(&self) -> String {
        let world = self.server.world();
        let line = |seen: &Seen| {
            let Seen {
                at,
                what,
                session,
                body,
                status,
                ..
            } = seen;
            let about = match &body["params"]["requestId"] {
                Value::Null => &body["id"],
                id => id,
            };
            let at = at.duration_since(self.start).as_millis();
            let session = session.as_deref().unwrap_or("-");
            format!("{at:>8} ms  {what} {about} in {session}: {status}\n")
        };
        let lines: String = world.seen.iter().map(line).collect();
        format!("dropped: {:?}\n{lines}", self.dropped)
    }

    /// What connections got: method, id and session, in order.
    fn handed(&self, method: &str) -> Vec<(usize, Value, Option<String>)> {
        let world = self.server.world();
        let handed = world.handed.iter().enumerate();
        let handed = handed.filter(|(_, (message, _))| message["method"] == method);
        let id = |message: &Value| match &message["params"]["requestId"] {
            Value::Null => message["id"].clone(),
            id => id.clone(),
        };
        handed
            .map(|(at, (message, session))| (at, id(message), session.clone()))
            .collect()
    }
}

fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("BOWLINE_SEEDS") else {
        return 0..150;
    };
    let (from, to) = range.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

/// Plays every seed, and says which one broke the law.
fn holds(law: impl Fn(&Played) -> Result<(), String>) {
    for seed in seeds() {
        let (played, runtime) = Played::of(seed);
        let verdict = runtime.block_on(async { law(&played) });
        if let Err(broken) = verdict {
            let trace = played.trace();
            panic!("seed {seed}: {broken}\n{trace}");
        }
    }
}

fn ensure(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}

#[test]
fn a_dropped_call_does_not_run_on_and_is_not_sent_after_its_cancel() {
    holds(|played| {
        let cancels = played.handed("notifications/cancelled");
        for (at, id, session) in played.handed("tools/call") {
            let earlier = cancels
                .iter()
                .find(|(cancel, own, _)| *own == id && *cancel < at);
            ensure(earlier.is_none(), || {
                format!("{id} was sent in {session:?} after its cancel")
            })?;
        }
        let world = played.server.world();
        let is_lost = |id: &str| {
            // The network took it; no client could know.
            let mut cancels = world.lost.iter().map(|lost| &lost["params"]["requestId"]);
            cancels.any(|cancelled| cancelled.to_string() == id)
        };
        for (name, session) in &world.sessions {
            for id in session.running.keys() {
                ensure(is_lost(id), || format!("{id} runs on in {name}"))?;
            }
        }
        Ok(())
    });
}

#[test]
fn every_cancel_names_a_dropped_call_once_and_in_the_session_it_was_last_posted_in() {
    holds(|played| {
        let calls = played.handed("tools/call");
        let cancels = played.handed("notifications/cancelled");
        for (at, id, session) in &cancels {
            let same = cancels.iter().filter(|(_, own, _)| own == id);
            ensure(same.count() == 1, || format!("{id} was cancelled twice"))?;
            let is_dropped = played.dropped.iter().any(|own| json!(own) == *id);
            ensure(is_dropped, || format!("{id} was not dropped"))?;
            let posted = calls
                .iter()
                .rev()
                .find(|(call, own, _)| own == id && call < at);
            let posted = posted.map(|(_, _, session)| session);
            ensure(posted == Some(session), || {
                format!("{id} was posted in {posted:?} and cancelled in {session:?}")
            })?;
        }
        Ok(())
    });
}

#[test]
fn a_reopened_session_has_what_the_old_one_had() {
    holds(|played| {
        let world = played.server.world();
        // The session that is in use is the last one; it is not ended yet.
        let Some((name, session)) = world
            .sessions
            .iter()
            .max_by_key(|(_, session)| session.opened)
        else {
            return Err("there is no session".into());
        };
        for listener in played.listeners.iter().filter(|own| !own.heard().has_ended) {
            ensure(session.subscriptions.contains(listener.uri), || {
                format!("{name} has no subscription to {}", listener.uri)
            })?;
        }
        let level = played.level;
        ensure(level.is_none() || session.level.as_deref() == level, || {
            format!("{name} logs at {:?} and not at {level:?}", session.level)
        })
    });
}

#[test]
fn a_change_is_told_even_if_it_happened_while_nobody_listened() {
    holds(|played| {
        for listener in &played.listeners {
            let heard = listener.heard();
            let (Some(since), Some(changed)) = (heard.since, played.changed.get(listener.uri))
            else {
                continue;
            };
            let was_told = heard.last.is_some_and(|last| last >= *changed);
            ensure(was_told || heard.has_ended || *changed < since, || {
                format!("{} changed and {heard:?}", listener.uri)
            })?;
        }
        Ok(())
    });
}

#[test]
fn every_call_ends_and_a_client_at_rest_holds_one_connection() {
    holds(|played| {
        let unanswered = played.unanswered;
        ensure(unanswered == 0, || {
            format!("{unanswered} calls have no end")
        })?;
        let ended = played.listeners.iter().filter(|own| own.task.is_finished());
        let open = played.listeners.len() - ended.count();
        let connections = played.server.connections();
        ensure(connections <= 1, || {
            format!("{connections} connections, {open} listeners")
        })
    });
}

const LONG: Duration = Duration::from_secs(300);
