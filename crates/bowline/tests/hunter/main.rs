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

mod calling;
mod chance;
mod laws;
mod ledger;
mod listening;
mod network;
mod schedule;
mod tap;
mod work;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use chance::Chance;
use ledger::Ledger;
use schedule::Schedule;
use world::{Column, World};

/// What one seed led to.
struct Story {
    seed: u64,
    trace: Vec<String>,
    broken: Vec<String>,
}

/// Plays the schedule of one seed, to its end.
fn play(seed: u64) -> Story {
    let chance = Chance::seeded(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // How many tasks have a turn between two steps of the schedule.
        .event_interval(*chance.pick(&[1, 2, 5, 61]))
        .build()
        .unwrap();
    let column = Column::of(seed, &chance);
    let ledger = runtime.block_on(async { Ledger::open(column) });
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
    if played.is_err() {
        broken.push("nothing panics".to_owned());
    }
    Story {
        seed,
        trace: ledger.trace(),
        broken,
    }
}

/// Plays `count` schedules of one column, or of all in turn, and stops at the first that breaks a law.
fn hunt(from: u64, step: usize, count: usize) {
    for seed in (from..).step_by(step).take(count) {
        let story = play(seed);
        if !story.broken.is_empty() {
            let Story {
                seed,
                trace,
                broken,
            } = story;
            panic!(
                "\n{}\n\nseed {seed} breaks:\n  {}\n\nplay it again: cargo xtask hunt --from {seed} --seeds 1\n",
                trace.join("\n"),
                broken.join("\n  "),
            );
        }
    }
}

/// Plays as many schedules of the column that this seed belongs to as every run of the tests does.
fn hunt_in_column_of(seed: u64) {
    hunt(seed, Column::COUNT as usize, PER_COLUMN);
}

#[test]
fn the_laws_hold_over_lines_in_the_modern_era() {
    hunt_in_column_of(0);
}

#[test]
fn the_laws_hold_over_lines_in_the_legacy_era() {
    hunt_in_column_of(1);
}

#[test]
fn the_laws_hold_over_http_1_in_the_modern_era() {
    hunt_in_column_of(2);
}

#[test]
fn the_laws_hold_over_http_1_in_the_legacy_era() {
    hunt_in_column_of(3);
}

#[test]
fn the_laws_hold_over_http_2_in_the_modern_era() {
    hunt_in_column_of(4);
}

#[test]
fn the_laws_hold_over_http_2_in_the_legacy_era() {
    hunt_in_column_of(5);
}

#[test]
fn a_seed_always_plays_the_same_schedule() {
    for seed in 1_000_000..1_000_060 {
        let (first, second) = (play(seed), play(seed));

        let parted = first
            .trace
            .iter()
            .zip(&second.trace)
            .find(|(one, other)| one != other);
        assert_eq!(parted, None, "seed {seed} was played in two ways");
        assert_eq!(first.trace.len(), second.trace.len(), "seed {}", first.seed);
    }
}

/// `cargo xtask hunt` says from where and how far; without being told, it is a few beyond the rest.
#[test]
fn the_laws_hold_for_as_long_as_it_is_told() {
    let told = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let from: u64 = told("BOWLINE_HUNT_FROM").unwrap_or(2_000_000);
    let end = from + told("BOWLINE_HUNT_SEEDS").unwrap_or(60);

    for first in (from..end).step_by(A_WHILE) {
        let next = end.min(first + A_WHILE as u64);
        hunt(first, 1, (next - first) as usize);
        eprintln!("the laws hold for seeds {first} to {}", next - 1);
    }
}

/// How many schedules are played before anybody is told.
const A_WHILE: usize = 1_000;
/// Six columns make more than ten thousand schedules.
const PER_COLUMN: usize = 1_680;
