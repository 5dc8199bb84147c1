//! Model test of sessions and their streams: random schedules, checked against invariants.
//!
//! A [`SessionSimulation`] has a table of sessions with their clients and engines. A seeded generator opens, posts,
//! answers, cancels, reads, drops, resumes and advances the time. Each [`Invariant`] has its own test and seeds.

mod retirement;

mod simulation;

use simulation::SessionSimulation;

use crate::limits::{Account, Limit};

/// An invariant that must hold in every schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invariant {
    OneStream,
    OwnStream,
    RejectionChangesNothing,
    EndedOnce,
    EarlyCancel,
    NoGaps,
    Bounds,
    LongestIdleFirst,
    NothingHeld,
    NoPanic,
}

/// Runs schedules, and fails if one of them violates the invariant.
fn check_schedules(invariant: Invariant) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("failed to build a runtime");
    runtime.block_on(async {
        let first = invariant as u64 * 1_000_000;
        for seed in first..first + SCHEDULES {
            let mut simulation = SessionSimulation::new(seed, invariant);
            for _ in 0..STEPS {
                simulation.step().await;
            }
            simulation.finish().await;
        }
    });
}

#[test]
fn each_message_is_on_exactly_one_stream() {
    check_schedules(Invariant::OneStream);
}

#[test]
fn answers_and_messages_within_a_request_are_on_the_stream_of_its_post() {
    check_schedules(Invariant::OwnStream);
}

#[test]
fn a_rejected_post_changes_no_state() {
    check_schedules(Invariant::RejectionChangesNothing);
}

#[test]
fn a_request_is_ended_exactly_once_whether_it_is_answered_or_cancelled() {
    check_schedules(Invariant::EndedOnce);
}

#[test]
fn an_early_cancel_stops_its_request_and_no_other() {
    check_schedules(Invariant::EarlyCancel);
}

#[test]
fn a_response_has_gaps_only_where_events_were_dropped_and_continues_where_it_was_resumed() {
    check_schedules(Invariant::NoGaps);
}

#[test]
fn sessions_and_events_stay_within_their_limits() {
    check_schedules(Invariant::Bounds);
}

#[test]
fn the_longest_idle_session_is_evicted_first() {
    check_schedules(Invariant::LongestIdleFirst);
}

#[test]
fn no_memory_is_held_without_requests_or_after_the_sessions_end() {
    check_schedules(Invariant::NothingHeld);
}

#[test]
fn no_operation_panics() {
    check_schedules(Invariant::NoPanic);
}

/// Returns whether a session had too many events. The response to a call goes on after those that were dropped.
fn has_dropped_events(account: &Account) -> bool {
    let usage = account.usage();
    let bounds = [
        Limit::SessionEvents,
        Limit::SessionEventBytes,
        Limit::EventBytes,
    ];
    bounds.iter().any(|bound| usage.refused(*bound) > 0)
}

const SCHEDULES: u64 = 150;
const STEPS: usize = 80;
