//! The race hunter: whole clients and a whole server, under thousands of seeded schedules.
//!
//! ```text
//! seed ──▶ Chance ──▶ Schedule ── calls, drops, cancels, deadlines, subscriptions ──▶ Client ─┐
//!                        │                                                                   │ Network
//!                        └──────── which bytes arrive when, what breaks, how time passes ────┤
//!          Ledger ◀── what was seen at the handlers, the callers and the wire ── Server ◀────┘
//! ```
//!
//! Everything runs on one thread with a paused clock, so that a seed always plays the same schedule. A seed
//! that breaks a law prints itself, and replays:
//!
//! ```text
//! cargo xtask hunt --from SEED --seeds 1
//! ```

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a broken law is reported by panicking"
)]

mod batching;
mod calling;
mod chance;
mod door;
mod laws;
mod ledger;
mod listening;
mod network;
mod scene;
mod schedule;
mod tap;
mod trouble;
mod work;
mod world;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use chance::Chance;
use ledger::Ledger;
use scene::{Column, SCENES, Scene};
use schedule::Schedule;
use world::World;

/// What one seed led to.
struct Story {
    trace: Vec<String>,
    broken: Vec<String>,
}

thread_local! {
    /// How often something panicked on this thread, in tasks too, whose panics the runtime keeps to itself.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with(|panics| panics.set(panics.get() + 1));
            report(panic);
        }));
    });
}

/// Plays the schedule of one seed, to its end.
fn play(seed: u64, has_trace: bool) -> Story {
    count_panics();
    let panics = PANICS.get();
    let chance = Chance::seeded(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // How many tasks have a turn between two steps of the schedule.
        .event_interval(*chance.pick(&[1, 2, 5, 61]))
        .build()
        .unwrap();
    let column = Column::of(seed, &chance);
    let ledger = runtime.block_on(async { Ledger::open(column, has_trace) });
    let played = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let world = World::connect(column, chance, ledger.clone()).await;
            let mut schedule = Schedule::new(world);
            schedule.play().await;
            schedule.end().await;
        });
    }));
    drop(runtime);
    let mut broken = ledger.broken_laws();
    if played.is_err() || PANICS.get() > panics {
        broken.push("nothing panics".to_owned());
    }
    Story {
        trace: ledger.trace(),
        broken,
    }
}

/// Plays these schedules, and stops at the first that breaks a law.
fn hunt(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        if let Some(report) = play_and_report(seed) {
            panic!("{report}");
        }
    }
}

/// The trace and the broken laws, if a seed breaks any. They are had by playing it once more.
fn play_and_report(seed: u64) -> Option<String> {
    let Story { broken, .. } = play(seed, false);
    if broken.is_empty() {
        return None;
    }
    let trace = play(seed, true).trace;
    Some(format!(
        "\n{}\n\nseed {seed}, scene {}, breaks:\n  {}\n\nplay it again: cargo xtask hunt --from {seed} --seeds 1\n",
        trace.join("\n"),
        Scene::of(seed).name,
        broken.join("\n  "),
    ))
}

/// Plays as many schedules of a scene as every run of the tests does.
fn hunt_in(scene: &str) {
    let first = SCENES.iter().position(|it| it.name == scene).unwrap();
    hunt((first as u64..).step_by(SCENES.len()).take(PER_SCENE));
}

#[test]
fn the_laws_hold_over_lines_in_the_modern_era() {
    hunt_in("lines-modern");
}

#[test]
fn the_laws_hold_over_lines_in_the_legacy_era() {
    hunt_in("lines-legacy");
}

#[test]
fn the_laws_hold_over_http_1_in_the_modern_era() {
    hunt_in("http1-modern");
}

#[test]
fn the_laws_hold_over_http_1_in_the_legacy_era() {
    hunt_in("http1-legacy");
}

#[test]
fn the_laws_hold_over_http_2_in_the_modern_era() {
    hunt_in("http2-modern");
}

#[test]
fn the_laws_hold_over_http_2_in_the_legacy_era() {
    hunt_in("http2-legacy");
}

#[test]
fn the_laws_hold_over_http_with_two_endpoints() {
    hunt_in("http-sse");
}

#[test]
fn the_laws_hold_when_notices_come_faster_than_they_are_read() {
    hunt_in("burst");
}

#[test]
fn the_laws_hold_when_the_server_restarts() {
    hunt_in("restart");
}

#[test]
fn the_laws_hold_when_the_server_forgets_a_session() {
    hunt_in("forgotten");
}

#[test]
fn the_laws_hold_when_a_connection_is_shut_down_in_good_order() {
    hunt_in("goodbye");
}

#[test]
fn the_laws_hold_over_a_half_dead_path() {
    hunt_in("half-dead");
}

#[test]
fn the_laws_hold_when_a_peer_stops_reading() {
    hunt_in("unread");
}

#[test]
fn the_laws_hold_for_a_client_that_posts_batches() {
    hunt_in("batches");
}

#[test]
fn a_seed_always_plays_the_same_schedule() {
    for seed in 1_000_000..1_000_140 {
        let [first, second] = [(); 2].map(|()| play(seed, true).trace);

        let parted = first.iter().zip(&second).find(|(one, other)| one != other);
        assert_eq!(parted, None, "seed {seed} was played in two ways");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

/// `cargo xtask hunt` says which seeds of which scenes; without being told, it is a few beyond the rest.
#[test]
fn the_laws_hold_for_as_long_as_it_is_told() {
    let told = |name: &str| std::env::var(name).ok();
    let number = |name: &str| told(name).map(|text| text.parse::<u64>().unwrap());
    let from = number("BOWLINE_HUNT_FROM").unwrap_or(2_000_000);
    let end = from + number("BOWLINE_HUNT_SEEDS").unwrap_or(SCENES.len() as u64);
    let quarry = Quarry {
        next: AtomicU64::new(from),
        end,
        scenes: told("BOWLINE_HUNT_SCENES"),
        max_broken: number("BOWLINE_HUNT_MAX_BROKEN").unwrap_or(1),
        broken: AtomicU64::new(0),
        played: AtomicU64::new(0),
    };
    if let Some(scenes) = &quarry.scenes {
        let unknown = scenes
            .split(',')
            .find(|name| SCENES.iter().all(|it| it.name != *name));
        assert_eq!(unknown, None, "there is no such scene");
    }
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| quarry.hunt());
        }
    });
    let (played, took) = (quarry.played.into_inner(), begun.elapsed().as_secs_f64());
    let broken = quarry.broken.into_inner();
    eprintln!(
        "{played} schedules in {took:.1} s on {threads} threads, {:.0} a second; {broken} break a law",
        played as f64 / took
    );
    assert_eq!(broken, 0, "so many seeds break a law");
    if end - from == 1 {
        eprintln!("{}", play(from, true).trace.join("\n"));
    }
}

/// Seeds that several threads play, each its own.
struct Quarry {
    next: AtomicU64,
    end: u64,
    /// Names of scenes, separated by commas.
    scenes: Option<String>,
    max_broken: u64,
    broken: AtomicU64,
    played: AtomicU64,
}

impl Quarry {
    /// Plays one seed after the other until there are no more, or enough have broken a law.
    fn hunt(&self) {
        while self.broken.load(Relaxed) < self.max_broken {
            let seed = self.next.fetch_add(1, Relaxed);
            if seed >= self.end {
                return;
            }
            if !self.is_wanted(seed) {
                continue;
            }
            if let Some(report) = play_and_report(seed) {
                self.broken.fetch_add(1, Relaxed);
                eprintln!("{report}");
            }
            let played = self.played.fetch_add(1, Relaxed) + 1;
            if played.is_multiple_of(A_WHILE) {
                eprintln!("{played} schedules were played, up to seed {seed}");
            }
        }
    }

    fn is_wanted(&self, seed: u64) -> bool {
        let Some(scenes) = &self.scenes else {
            return true;
        };
        scenes.split(',').any(|name| name == Scene::of(seed).name)
    }
}

/// How many schedules are played before anybody is told.
const A_WHILE: u64 = 10_000;
/// So many scenes make more than ten thousand schedules.
const PER_SCENE: usize = 720;
