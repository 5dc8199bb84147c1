//! Clients, and programs that are client and server.

use crate::support::{example, run};

#[tokio::test]
async fn sum_starts_the_calculator() {
    let printed = run("sum", &[&example("calculator")], "").await;

    assert_eq!(printed, "3\n");
}

#[tokio::test]
async fn ask_a_person_uses_the_answers() {
    let printed = run("ask_a_person", &[], "2\nyes\n").await;

    assert!(
        printed.starts_with("Table 7 is free.\nHow many guests are coming? "),
        "{printed}"
    );
    assert!(
        printed.ends_with("Table 7 at the window is booked for 2.\n"),
        "{printed}"
    );
}

#[tokio::test]
async fn ask_a_person_accepts_that_the_user_declines() {
    let printed = run("ask_a_person", &[], "\n").await;

    assert!(
        printed.ends_with("the user declined to answer\n"),
        "{printed}"
    );
}

#[tokio::test]
async fn let_go_drops_the_handler_in_both_eras() {
    let printed = run("let_go", &[], "").await;

    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    for (line, version) in lines.iter().zip(["2026-07-28", "2025-11-25"]) {
        assert!(
            line.starts_with(&format!("{version}: the handler was dropped ")),
            "{line}"
        );
    }
}

#[tokio::test]
async fn fan_out_keeps_the_first_answer_and_cancels_the_others() {
    let printed = run("fan_out", &[], "").await;

    let expected = "oslo: cancelled\nturin: cancelled\nfirst answer: 21 degrees, says lima\n";
    assert_eq!(printed, expected);
}

/// Takes 40 s, because it shows the defaults.
#[tokio::test]
async fn behind_a_proxy_every_call_is_answered() {
    let printed = run("behind_a_proxy", &[], "").await;

    assert_eq!(printed.matches("at last").count(), 4, "{printed}");
}

#[tokio::test]
async fn telemetry_prints_the_spans_of_both_sides_and_the_metrics() {
    let printed = run("telemetry", &[], "").await;

    for line in [
        "Client tools/call add",
        "Server tools/call add",
        "mcp.server.operation.duration [s]",
        "bowline.server.active_requests [{request}]",
    ] {
        assert!(printed.contains(line), "`{line}` is missing in: {printed}");
    }
}
