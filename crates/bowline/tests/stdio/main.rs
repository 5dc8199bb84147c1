//! Standard input and output with real processes at both ends.
//!
//! This program is the tests and, if it is told so by a variable, the child that a test starts.

#![cfg_attr(
    not(unix),
    allow(unused, reason = "the children of these tests are Unix")
)]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may panic, and some children must print"
)]

mod runner;

#[cfg(unix)]
mod eras;
#[cfg(unix)]
mod programs;
#[cfg(unix)]
mod serving;
#[cfg(unix)]
mod spawning;

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    if let Ok(program) = std::env::var(programs::VARIABLE) {
        return programs::run(&program);
    }
    runner::run(&runner::tests![
        eras::a_modern_server_is_spoken_to_in_the_modern_way,
        eras::a_server_that_answers_the_probe_with_an_odd_error_is_legacy,
        eras::a_server_that_is_silent_at_the_probe_is_legacy,
        eras::a_server_that_exits_at_the_probe_is_started_again,
        eras::a_server_that_answers_nothing_after_the_probe_is_started_again,
        eras::a_server_that_exits_at_the_handshake_after_the_probe_is_started_again,
        eras::a_server_that_never_answers_is_started_again_once,
        eras::a_server_is_not_started_again_where_that_is_switched_off,
        eras::a_server_that_answers_the_probe_late_is_modern_after_all,
        eras::a_server_that_refuses_the_handshake_by_naming_modern_versions_is_modern,
        eras::a_client_of_modern_versions_only_asks_an_older_child_and_nothing_else,
        eras::a_child_serves_every_version,
        spawning::a_child_that_prints_to_its_output_is_understood_and_not_answered,
        serving::printing_does_not_reach_the_wire,
        serving::a_child_that_inherits_input_and_output_does_not_reach_the_wire,
        serving::standard_input_and_output_are_taken_once,
        serving::one_socket_for_both_directions_is_a_wire,
        serving::a_socket_for_each_direction_is_a_wire,
        serving::files_are_read_to_their_end_and_every_answer_is_written,
        serving::a_terminal_is_a_wire,
        serving::an_output_that_is_also_stderr_is_a_wire_that_printing_does_not_reach,
        serving::a_server_that_is_asked_to_end_lets_its_handlers_finish,
        spawning::a_server_exits_when_its_input_ends,
        spawning::dropping_a_call_drops_the_handler_in_the_child,
        spawning::calls_return_at_their_deadlines_while_the_child_does_not_read_its_pipe,
        spawning::a_killed_child_fails_its_calls_and_shows_its_last_words,
        spawning::a_child_that_exits_fails_its_calls_with_its_status,
        spawning::a_child_that_leaves_its_output_open_to_another_fails_its_calls,
        spawning::a_child_that_closes_its_input_fails_its_calls,
        spawning::a_child_that_closes_its_output_fails_its_calls,
        spawning::a_child_that_ignores_every_request_to_exit_is_killed_with_its_children,
        spawning::a_child_ends_with_its_client,
        spawning::a_stubborn_child_ends_with_its_client,
        spawning::a_child_is_killed_at_once_when_the_runtime_ends,
        spawning::a_child_knows_only_safe_variables_and_those_it_is_given,
        spawning::a_child_knows_everything_if_it_is_told_everything,
        spawning::a_child_that_died_is_started_again_on_request,
        spawning::a_child_that_lives_is_ended_before_it_is_started_again,
        spawning::what_a_child_speaks_is_remembered_when_it_is_started_again,
        spawning::a_child_that_cannot_be_started_again_can_be_tried_again,
        spawning::what_was_not_started_is_not_started_again,
        spawning::a_program_that_does_not_exist_cannot_be_started,
    ])
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    runner::run(&[])
}
