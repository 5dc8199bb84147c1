//! The race hunter with a bridge in its world: clients, a bridge and a server under seeded schedules.
//!
//! ```text
//! seed ──▶ SeededRandom ──▶ Schedule ── calls, drops, cancels, deadlines ──▶ Client ─┐
//!                              │                                                    │ Network
//!                              ├─── order and size of deliveries, faults, time ── Bridge
//!                              │                                                    │ Network
//!          ScheduleLog ◀── events at handlers, callers and both networks ── Server ◀┘
//! ```
//!
//! Networks, handlers and calls are those of the hunter of `bowline`. Everything runs on one thread with a paused clock, so
//! that a seed always produces the same schedule, but for the delay after which a lost subscription is opened again. A seed
//! that violates an invariant prints its trace and the command that repeats it:
//!
//! ```text
//! cargo xtask hunt --bridge --from SEED --seeds 1
//! ```

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a violated invariant is reported by panicking"
)]

#[path = "../../../bowline/tests/hunter/handlers.rs"]
mod handlers;
#[allow(
    dead_code,
    reason = "the faults of one connection are those of the other hunter"
)]
#[path = "../../../bowline/tests/hunter/http_frontend.rs"]
mod http_frontend;
#[allow(
    dead_code,
    reason = "the faults of one connection are those of the other hunter"
)]
#[path = "../../../bowline/tests/hunter/network.rs"]
mod network;
#[allow(
    dead_code,
    reason = "the scenes with one connection are those of the other hunter"
)]
#[path = "../../../bowline/tests/hunter/scene.rs"]
mod scene;
#[allow(dead_code, reason = "the other hunter has subscriptions too")]
#[path = "../../../bowline/tests/hunter/schedule_log.rs"]
mod schedule_log;
#[path = "../../../bowline/tests/hunter/seed_runner.rs"]
mod seed_runner;
#[path = "../../../bowline/tests/hunter/seeded_random.rs"]
mod seeded_random;
#[allow(dead_code, reason = "the other hunter has more faults")]
#[path = "../../../bowline/tests/hunter/tracked_call.rs"]
mod tracked_call;
#[allow(dead_code, reason = "the other hunter has subscriptions too")]
#[path = "../../../bowline/tests/hunter/traffic_monitor.rs"]
mod traffic_monitor;

mod bridge_scene;
mod bridge_schedule;
mod invariants;
mod world;

use bridge_scene::{BridgeScene, SCENES, WorldConfig};
use bridge_schedule::BridgeSchedule;
use schedule_log::ScheduleLog;
use seed_runner::{Hunt, ScheduleResult};
use seeded_random::SeededRandom;
use world::World;

/// Runs the schedule of one seed to its end.
fn run_schedule(seed: u64, has_trace: bool) -> ScheduleResult {
    let random = SeededRandom::new(seed);
    let runtime = seed_runner::runtime(&random);
    let config = WorldConfig::of(seed, &random);
    let log = runtime.block_on(async { ScheduleLog::new(config, has_trace) });
    seed_runner::run_to_end(runtime, &log, async {
        let world = World::connect(config, random, log.clone()).await;
        let mut schedule = BridgeSchedule::new(world);
        schedule.run().await;
        schedule.finish().await;
    })
}

const HUNT: Hunt = Hunt {
    scene: |seed| BridgeScene::of(seed).name,
    scenes: SCENES.len(),
    run: run_schedule,
    command: "cargo xtask hunt --bridge",
};

/// Runs [`SCHEDULES_PER_SCENE`] seeds of a scene, up to the first violation.
fn hunt_in(scene: &str) {
    HUNT.run_scene(scene, SCHEDULES_PER_SCENE);
}

#[test]
fn the_invariants_hold_for_modern_clients_of_a_modern_server() {
    hunt_in("modern-to-modern");
}

#[test]
fn the_invariants_hold_for_modern_clients_of_a_legacy_server() {
    hunt_in("modern-to-legacy");
}

#[test]
fn the_invariants_hold_for_legacy_clients_of_a_modern_server() {
    hunt_in("legacy-to-modern");
}

#[test]
fn the_invariants_hold_for_legacy_clients_of_a_legacy_server() {
    hunt_in("legacy-to-legacy");
}

#[test]
fn the_invariants_hold_when_clients_close_and_pipes_break() {
    hunt_in("teardown");
}

#[test]
fn the_invariants_hold_when_the_server_restarts() {
    hunt_in("restart");
}

#[test]
fn a_seed_always_produces_the_same_schedule() {
    // After a fault, a subscription of a legacy client is opened again after a random delay.
    let seeds = (1_000_000..1_000_090).filter(|seed| !BridgeScene::of(*seed).has_faults());
    for seed in seeds {
        let [first, second] = [(); 2].map(|()| run_schedule(seed, true).trace);

        let difference = first.iter().zip(&second).find(|(one, other)| one != other);
        assert_eq!(difference, None, "seed {seed} produced two schedules");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

/// The entry point of `cargo xtask hunt --bridge`, which selects seeds and scenes by environment variables. Without them
/// it runs one seed of each scene.
#[test]
fn the_invariants_hold_for_the_selected_seeds() {
    HUNT.run_selected();
}

/// More than a thousand schedules for all scenes together.
const SCHEDULES_PER_SCENE: usize = 200;
