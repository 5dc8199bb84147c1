//! stdio with real processes at both ends.
//!
//! This program runs the tests; with an environment variable set, it is the child that a test starts.

#![cfg_attr(not(unix), allow(unused, reason = "these tests need Unix processes"))]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests fail by panicking, and some children print"
)]

mod runner;

#[cfg(unix)]
mod eras;
#[cfg(unix)]
mod failed_starts;
#[cfg(unix)]
mod programs;
#[cfg(unix)]
mod reconnecting;
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
        eras::a_modern_server_is_detected,
        eras::a_server_that_answers_the_probe_with_an_unknown_error_is_legacy,
        eras::a_server_that_does_not_answer_the_probe_is_legacy,
        eras::a_server_that_exits_at_the_probe_is_restarted,
        eras::a_server_that_answers_nothing_after_the_probe_is_restarted,
        eras::a_server_that_exits_at_the_handshake_after_the_probe_is_restarted,
        eras::a_server_that_never_answers_is_restarted_once,
        eras::a_server_is_not_restarted_if_that_is_disabled,
        eras::a_server_that_answers_the_probe_late_is_modern,
        eras::a_server_that_rejects_the_handshake_with_modern_versions_is_modern,
        eras::a_modern_only_client_probes_a_legacy_child_and_sends_nothing_else,
        eras::a_modern_only_client_waits_for_a_slow_child,
        eras::a_server_that_is_slow_to_start_is_started_once,
        eras::a_child_serves_every_version,
        failed_starts::a_program_that_prints_its_usage_and_exits_is_reported_at_once,
        failed_starts::what_a_program_printed_before_its_messages_is_in_the_error_of_its_exit,
        failed_starts::a_silent_program_is_reported_at_the_connect_timeout,
        failed_starts::the_lines_of_a_silent_program_are_reported,
        failed_starts::a_program_that_prints_without_end_is_ended,
        failed_starts::control_characters_of_a_program_are_escaped,
        failed_starts::silence_is_a_warning_after_5_s_and_an_error_after_30_s,
        failed_starts::a_missing_program_is_reported_with_the_path_that_was_searched,
        failed_starts::the_exit_of_a_program_that_must_be_modern_is_in_the_error,
        failed_starts::frequent_mistakes_in_commands_are_named,
        spawning::lines_that_a_child_prints_to_its_output_are_ignored,
        serving::printing_does_not_reach_the_wire,
        serving::a_child_that_inherits_input_and_output_does_not_reach_the_wire,
        serving::stdio_can_be_taken_once_per_process,
        serving::stdio_can_be_one_socket,
        serving::stdio_can_be_two_sockets,
        serving::stdio_can_be_files_and_every_response_is_written,
        serving::stdio_can_be_a_terminal,
        serving::printing_does_not_reach_a_wire_that_is_also_stderr,
        serving::sigterm_and_sigint_let_running_handlers_finish,
        serving::sigterm_and_sigint_let_running_handlers_of_an_http_server_finish,
        serving::a_server_that_drains_refuses_new_calls_and_takes_cancels,
        spawning::a_server_exits_when_its_input_ends,
        spawning::dropping_a_call_drops_the_handler_in_the_child,
        spawning::calls_return_at_their_deadlines_while_the_child_does_not_read_its_pipe,
        spawning::a_killed_child_fails_its_calls_with_the_tail_of_its_stderr,
        spawning::a_child_that_exits_fails_its_calls_with_its_status,
        spawning::a_child_whose_output_stays_open_in_another_process_fails_its_calls,
        spawning::a_child_that_closes_its_input_fails_its_calls,
        spawning::a_child_that_closes_its_output_fails_its_calls,
        spawning::a_child_that_ignores_every_request_to_exit_is_killed_with_its_children,
        spawning::a_child_exits_when_its_client_is_dropped,
        spawning::a_child_that_ignores_sigterm_is_killed_when_its_client_is_dropped,
        spawning::a_child_is_killed_when_the_runtime_is_dropped,
        spawning::a_child_inherits_only_safe_variables_and_gets_those_of_its_command,
        spawning::inherit_env_passes_all_variables_but_removed_ones,
        reconnecting::a_killed_child_is_started_again_for_later_calls,
        reconnecting::a_child_that_exits_at_each_call_is_ended_after_the_maximum_of_attempts,
        reconnecting::a_program_that_exits_at_once_when_it_is_started_again_fails_each_attempt,
        reconnecting::closing_reaps_the_child_that_was_started_last,
        reconnecting::dropping_the_client_before_the_next_start_starts_nothing,
        spawning::restart_replaces_a_dead_child,
        spawning::restart_ends_a_running_child_first,
        spawning::a_connection_without_a_client_restarts_its_child,
        spawning::restart_remembers_the_version_of_the_child,
        spawning::a_failed_restart_can_be_retried,
        spawning::a_client_without_a_child_cannot_be_restarted,
    ])
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    runner::run(&[])
}
