//! Random schedules over sessions and their streams, checked against the laws.
//!
//! A world has a table of sessions, the clients that use them and the engines that drive them. Chance decides what is
//! opened, posted, answered, cancelled, read, lost and resumed, and how time passes. Each law is a test that plays
//! schedules of its own.

mod world;

use world::World;

/// What must hold in every schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    OneStream,
    OwnStream,
    RefusedLeavesNothing,
    EndedOnce,
    EarlyCancel,
    NoGaps,
    Bounds,
    IdlestFirst,
    NothingHeld,
    NoPanic,
}

/// Plays schedules, and fails if one of them breaks the law.
fn hold(law: Law) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let first = law as u64 * 1_000_000;
        for seed in first..first + SCHEDULES {
            let mut world = World::new(seed, law);
            for _ in 0..STEPS {
                world.step().await;
            }
            world.finish().await;
        }
    });
}

#[test]
fn each_message_is_on_exactly_one_stream() {
    hold(Law::OneStream);
}

#[test]
fn an_answer_is_on_the_stream_of_its_post_and_what_belongs_to_a_request_too() {
    hold(Law::OwnStream);
}

#[test]
fn a_refused_post_leaves_nothing_behind() {
    hold(Law::RefusedLeavesNothing);
}

#[test]
fn a_request_is_ended_exactly_once_whether_it_is_answered_or_cancelled() {
    hold(Law::EndedOnce);
}

#[test]
fn a_request_that_was_cancelled_early_never_starts_and_no_other_is_hit() {
    hold(Law::EarlyCancel);
}

#[test]
fn a_response_has_no_gaps_and_goes_on_where_it_was_resumed() {
    hold(Law::NoGaps);
}

#[test]
fn sessions_and_events_stay_within_their_limits() {
    hold(Law::Bounds);
}

#[test]
fn the_session_that_can_be_missed_most_easily_is_ended_first() {
    hold(Law::IdlestFirst);
}

#[test]
fn nothing_is_held_when_nothing_is_going_on_and_an_ended_session_frees_all() {
    hold(Law::NothingHeld);
}

#[test]
fn no_operation_panics() {
    hold(Law::NoPanic);
}

const SCHEDULES: u64 = 150;
const STEPS: usize = 80;
