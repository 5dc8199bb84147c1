//! The race hunter: runs complete clients and a complete server under thousands of seeded schedules.
//!
//! ```text
//! seed ──▶ SeededRandom ──▶ Schedule ── calls, drops, cancels, deadlines, subscriptions ──▶ Client ─┐
//!                              │                                                                   │ Network
//!                              └──────── order and size of deliveries, faults, passing of time ────┤
//!          ScheduleLog ◀── events at the handlers, the callers and the wire ────── Server ◀────────┘
//! ```
//!
//! Everything runs on one thread with a paused clock, so that a seed always produces the same schedule. A seed
//! that violates an invariant prints its trace and the command that repeats it:
//!
//! ```text
//! cargo xtask hunt --from SEED --seeds 1
//! ```

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a violated invariant is reported by panicking"
)]

mod batch_client;
mod faults;
mod handlers;
mod http_frontend;
mod invariants;
mod network;
mod scene;
mod schedule;
mod schedule_log;
mod seeded_random;
mod test_setup;
mod tracked_call;
mod traffic_monitor;
mod update_listener;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use scene::{SCENES, Scene, ScheduleConfig};
use schedule::Schedule;
use schedule_log::ScheduleLog;
use seeded_random::SeededRandom;
use test_setup::TestSetup;

/// The result of the schedule of one seed.
struct ScheduleResult {
    trace: Vec<String>,
    violations: Vec<String>,
}

thread_local! {
    /// The number of panics on this thread, including those in tasks, which the runtime catches.
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

/// Runs the schedule of one seed to its end.
fn run_schedule(seed: u64, has_trace: bool) -> ScheduleResult {
    count_panics();
    let panics = PANICS.get();
    let random = SeededRandom::new(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // The number of tasks that are polled between two steps of the schedule.
        .event_interval(*random.pick(&[1, 2, 5, 61]))
        .build()
        .unwrap();
    let config = ScheduleConfig::of(seed, &random);
    let log = runtime.block_on(async { ScheduleLog::new(config, has_trace) });
    let finished = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let setup = TestSetup::connect(config, random, log.clone()).await;
            let mut schedule = Schedule::new(setup);
            schedule.run().await;
            schedule.finish().await;
        });
    }));
    drop(runtime);
    let mut violations = log.violations();
    if finished.is_err() || PANICS.get() > panics {
        violations.push("nothing panics".to_owned());
    }
    ScheduleResult {
        trace: log.trace(),
        violations,
    }
}

/// Runs a seed; if it violates invariants, runs it again with a trace and returns the report.
fn run_and_report(seed: u64) -> Option<String> {
    let ScheduleResult { violations, .. } = run_schedule(seed, false);
    if violations.is_empty() {
        return None;
    }
    let trace = run_schedule(seed, true).trace;
    Some(format!(
        "\n{}\n\nseed {seed}, scene {}, violates:\n  {}\n\nto repeat it: cargo xtask hunt --from {seed} --seeds 1\n",
        trace.join("\n"),
        Scene::of(seed).name,
        violations.join("\n  "),
    ))
}

/// Runs [`SCHEDULES_PER_SCENE`] seeds of a scene, up to the first violation.
fn hunt_in(scene: &str) {
    let first = SCENES.iter().position(|it| it.name == scene).unwrap();
    let seeds = (first as u64..).step_by(SCENES.len());
    for seed in seeds.take(SCHEDULES_PER_SCENE) {
        if let Some(report) = run_and_report(seed) {
            panic!("{report}");
        }
    }
}

#[test]
fn the_invariants_hold_over_lines_in_the_modern_era() {
    hunt_in("lines-modern");
}

#[test]
fn the_invariants_hold_over_lines_in_the_legacy_era() {
    hunt_in("lines-legacy");
}

#[test]
fn the_invariants_hold_over_http_1_in_the_modern_era() {
    hunt_in("http1-modern");
}

#[test]
fn the_invariants_hold_over_http_1_in_the_legacy_era() {
    hunt_in("http1-legacy");
}

#[test]
fn the_invariants_hold_over_http_2_in_the_modern_era() {
    hunt_in("http2-modern");
}

#[test]
fn the_invariants_hold_over_http_2_in_the_legacy_era() {
    hunt_in("http2-legacy");
}

#[test]
fn the_invariants_hold_over_http_sse() {
    hunt_in("http-sse");
}

#[test]
fn the_invariants_hold_when_notifications_arrive_faster_than_they_are_read() {
    hunt_in("burst");
}

#[test]
fn the_invariants_hold_when_the_server_restarts() {
    hunt_in("restart");
}

#[test]
fn the_invariants_hold_when_the_server_deletes_a_session() {
    hunt_in("session-deleted");
}

#[test]
fn the_invariants_hold_when_a_connection_is_shut_down_gracefully() {
    hunt_in("graceful-shutdown");
}

#[test]
fn the_invariants_hold_over_a_half_open_connection() {
    hunt_in("half-open");
}

#[test]
fn the_invariants_hold_when_a_peer_stops_reading() {
    hunt_in("stalled-reader");
}

#[test]
fn the_invariants_hold_for_a_client_that_posts_batches() {
    hunt_in("batches");
}

#[test]
fn a_seed_always_produces_the_same_schedule() {
    for seed in 1_000_000..1_000_140 {
        let [first, second] = [(); 2].map(|()| run_schedule(seed, true).trace);

        let difference = first.iter().zip(&second).find(|(one, other)| one != other);
        assert_eq!(difference, None, "seed {seed} produced two schedules");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

/// The entry point of `cargo xtask hunt`, which selects seeds and scenes by environment variables. Without them it runs
/// one seed of each scene.
#[test]
fn the_invariants_hold_for_the_selected_seeds() {
    let variable = |name: &str| std::env::var(name).ok();
    let number = |name: &str| variable(name).map(|text| text.parse::<u64>().unwrap());
    let from = number("BOWLINE_HUNT_FROM").unwrap_or(2_000_000);
    let end = from + number("BOWLINE_HUNT_SEEDS").unwrap_or(SCENES.len() as u64);
    let queue = SeedQueue {
        next: AtomicU64::new(from),
        end,
        scenes: variable("BOWLINE_HUNT_SCENES"),
        max_failed: number("BOWLINE_HUNT_MAX_BROKEN").unwrap_or(1),
        failed: AtomicU64::new(0),
        finished: AtomicU64::new(0),
    };
    if let Some(scenes) = &queue.scenes {
        let unknown = scenes
            .split(',')
            .find(|name| SCENES.iter().all(|it| it.name != *name));
        assert_eq!(unknown, None, "unknown scene");
    }
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| queue.run());
        }
    });
    let finished = queue.finished.into_inner();
    let seconds = started.elapsed().as_secs_f64();
    let failed = queue.failed.into_inner();
    eprintln!(
        "{finished} schedules in {seconds:.1} s on {threads} threads, {:.0} a second; {failed} violate an invariant",
        finished as f64 / seconds
    );
    assert_eq!(failed, 0, "seeds that violate an invariant");
    if end - from == 1 {
        eprintln!("{}", run_schedule(from, true).trace.join("\n"));
    }
}

/// Distributes seeds among threads.
struct SeedQueue {
    next: AtomicU64,
    end: u64,
    /// Names of scenes, separated by commas.
    scenes: Option<String>,
    max_failed: u64,
    failed: AtomicU64,
    finished: AtomicU64,
}

impl SeedQueue {
    /// Runs seeds until the queue is empty or `max_failed` of them have violated an invariant.
    fn run(&self) {
        while self.failed.load(Relaxed) < self.max_failed {
            let seed = self.next.fetch_add(1, Relaxed);
            if seed >= self.end {
                return;
            }
            if !self.is_selected(seed) {
                continue;
            }
            if let Some(report) = run_and_report(seed) {
                self.failed.fetch_add(1, Relaxed);
                eprintln!("{report}");
            }
            let finished = self.finished.fetch_add(1, Relaxed) + 1;
            if finished.is_multiple_of(REPORT_INTERVAL) {
                eprintln!("{finished} schedules finished, up to seed {seed}");
            }
        }
    }

    fn is_selected(&self, seed: u64) -> bool {
        let Some(scenes) = &self.scenes else {
            return true;
        };
        scenes.split(',').any(|name| name == Scene::of(seed).name)
    }
}

/// The number of schedules between two progress lines.
const REPORT_INTERVAL: u64 = 10_000;
/// More than ten thousand schedules for all scenes together.
const SCHEDULES_PER_SCENE: usize = 720;
