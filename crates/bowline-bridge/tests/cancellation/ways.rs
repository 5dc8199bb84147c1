//! The ways to abandon a call.

use std::time::Duration;

use bowline::Error;
use bowline::testing::{HandlerCounter, eventually};

use crate::cell::{LEGACY, PARK_TIMEOUT};
use crate::in_each_cell;

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_polled_leaves_nothing_or_is_cancelled() {
    in_each_cell(async |cell| {
        drop(cell.client.call_tool("slow", ()).start());

        // Whether it was sent depends on the wire; what was sent is cancelled.
        cell.client.list_tools().await.unwrap();
        let counts = || cell.handlers.counts();
        assert!(eventually(|| counts().started == counts().dropped).await);
        cell.end().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_cancelled_once() {
    in_each_cell(async |cell| {
        let call = cell.in_flight("slow").await;

        drop(call);

        cell.expect_cancel("slow").await;
        cell.end().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_notifications_stream_is_cancelled_once() {
    in_each_cell(async |cell| {
        let seen = HandlerCounter::default();
        let counter = seen.clone();
        let call = cell.client.call_tool("noisy", ()).on_progress(move |_| {
            let mut counts = counter.counts();
            counts.started += 1;
            counter.set(counts);
        });
        let mut call = cell.poll_into_handler(call.start()).await;
        tokio::select! {
            reply = &mut call => panic!("the call ended: {reply:?}"),
            _ = seen.wait_for(|counts| counts.started >= 3) => {}
        }

        drop(call);

        cell.expect_cancel("noisy").await;
        cell.end().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_loses_against_a_timeout_of_the_program_is_cancelled_once() {
    in_each_cell(async |cell| {
        let call = cell.client.call_tool("slow", ()).start();

        let lost = tokio::time::timeout(Duration::from_secs(1), call).await;

        assert!(lost.is_err());
        cell.expect_cancel("slow").await;
        cell.end().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_own_timeout_elapses_is_cancelled_once_with_that_reason() {
    in_each_cell(async |cell| {
        let slow = || cell.client.call_tool("slow", ());

        let timed_out = slow().timeout(Duration::from_secs(1)).await;

        assert!(
            matches!(timed_out, Err(Error::Timeout { .. })),
            "{timed_out:?}"
        );
        let reason = cell.expect_cancel("slow").await;
        if cell.front.carries_reason() {
            assert_eq!(reason, "timed out after 1s");
        }
        cell.end().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_idle_timeout_elapses_is_cancelled_once() {
    in_each_cell(async |cell| {
        let slow = cell.client.call_tool("slow", ());

        let timed_out = slow.idle_timeout(Duration::from_secs(1)).await;

        assert!(
            matches!(timed_out, Err(Error::Timeout { .. })),
            "{timed_out:?}"
        );
        cell.expect_cancel("slow").await;
        cell.end().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_cancelled_with_a_reason_passes_it_on_where_the_wire_carries_one() {
    in_each_cell(async |cell| {
        let call = cell.in_flight("slow").await;

        call.cancel("changed my mind");

        let reason = cell.expect_cancel("slow").await;
        if cell.front.carries_reason() {
            assert_eq!(reason, "changed my mind");
        }
        cell.end().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_cancels_its_calls() {
    in_each_cell(async |cell| {
        let call = cell.in_flight("slow").await;

        cell.end_by_dropping_client(call).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_upstream_fails_its_calls_with_its_name_and_the_next_call_works() {
    in_each_cell(async |mut cell| {
        let call = cell.in_flight("slow").await;

        cell.cut();

        for error in [
            call.await.unwrap_err().to_string(),
            cell.concurrent_error().await,
        ] {
            assert!(error.contains("upstream `upstream`"), "{error}");
        }
        cell.end_after_loss().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_the_client_is_asked_is_cancelled_if_it_runs() {
    in_each_cell(async |cell| {
        if cell.front.version() == "2024-11-05" {
            return cell.end().await; // has no elicitation
        }
        let mut call = cell.client.call_tool("ask", ()).start();
        tokio::select! {
            reply = &mut call => panic!("the call ended: {reply:?}"),
            _ = cell.host.wait_for(|counts| counts.started == 1) => {}
        }

        drop(call);

        cell.host.wait_for(|counts| counts.dropped == 1).await;
        if cell.upstream == LEGACY {
            if cell.front.is_modern() {
                tokio::time::advance(PARK_TIMEOUT).await; // its client cannot be heard before
            }
            cell.expect_cancel("ask").await;
        } else {
            // The server has answered, and waits for nothing.
            assert!(cell.sent("notifications/cancelled").is_empty());
        }
        cell.end().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_handler_drops_is_withdrawn_from_a_legacy_client() {
    in_each_cell(async |cell| {
        let can_be_withdrawn = !cell.front.is_modern() && cell.upstream == LEGACY;
        if !can_be_withdrawn || cell.front.version() == "2024-11-05" {
            return cell.end().await;
        }

        let reply = cell.client.call_tool("gives up", ()).await.unwrap();

        assert_eq!(reply.text(), "gave up");
        cell.host.wait_for(|counts| counts.dropped == 1).await;
        cell.end().await;
    })
    .await;
}
