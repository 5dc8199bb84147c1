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
mod seed_runner;
mod seeded_random;
mod test_setup;
mod tracked_call;
mod traffic_monitor;
mod update_listener;

use scene::{SCENES, Scene, ScheduleConfig};
use schedule::Schedule;
use schedule_log::ScheduleLog;
use seed_runner::{Hunt, ScheduleResult};
use seeded_random::SeededRandom;
use test_setup::TestSetup;

/// Runs the schedule of one seed to its end.
fn run_schedule(seed: u64, has_trace: bool) -> ScheduleResult {
    let random = SeededRandom::new(seed);
    let runtime = seed_runner::runtime(&random);
    let config = ScheduleConfig::of(seed, &random);
    let log = runtime.block_on(async { ScheduleLog::new(config, has_trace) });
    seed_runner::run_to_end(runtime, &log, async {
        let setup = TestSetup::connect(config, random, log.clone()).await;
        let mut schedule = Schedule::new(setup);
        schedule.run().await;
        schedule.finish().await;
    })
}

const HUNT: Hunt = Hunt {
    scene: |seed| Scene::of(seed).name,
    scenes: SCENES.len(),
    run: run_schedule,
    command: "cargo xtask hunt",
};

/// Runs [`SCHEDULES_PER_SCENE`] seeds of a scene, up to the first violation.
fn hunt_in(scene: &str) {
    HUNT.run_scene(scene, SCHEDULES_PER_SCENE);
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
    HUNT.run_selected();
}

/// More than ten thousand schedules for all scenes together.
const SCHEDULES_PER_SCENE: usize = 720;
