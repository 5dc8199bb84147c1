//! A legacy server whose session expires: the client opens another and reports changes it may have missed.

use std::time::Duration;

use bowline::client::{Change, ChangeFilter, Subscription};
use bowline::types::LoggingLevel;
use bowline::{Call, Client, Error};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::legacy_server::{
    GetBehavior, HoldStage, LEGACY, LegacyServer, ProcessedRequest, run_until_idle,
};

const NOTES: &str = "file:///notes.txt";
const CALL: &str = "POST tools/call";
const INITIALIZE: &str = "POST initialize";
const INITIALIZED: &str = "POST notifications/initialized";

/// Longer than every delay between two attempts; the clock is paused.
const LONG: Duration = Duration::from_secs(120);

async fn connect(server: &LegacyServer) -> Client {
    let client = server.connect().await;
    run_until_idle().await;
    client
}

/// Collects the changes that the subscription reports.
async fn changes(subscription: &mut Subscription) -> Vec<Change> {
    let mut all = Vec::new();
    while let Ok(change) = timeout(LONG, subscription.next()).await {
        all.push(change.unwrap().unwrap());
    }
    all
}

fn find(server: &LegacyServer, label: &str, session: &str) -> Vec<ProcessedRequest> {
    let state = server.state();
    let is_it = |processed: &&ProcessedRequest| {
        processed.label == label && processed.session.as_deref() == Some(session)
    };
    state.processed.iter().filter(is_it).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn a_client_resubscribes_after_a_server_restart_and_reports_possible_changes() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let wanted = ChangeFilter::new().tools().resource(NOTES);
    let mut subscription = client.subscribe(wanted).await.unwrap();
    client.set_log_level(LoggingLevel::Error).await.unwrap();
    server.change_tools(); // its event id is invalid in the next session
    assert_eq!(changes(&mut subscription).await, [Change::Tools]);

    server.restart();

    let missed = [Change::Tools, Change::Resource(NOTES.into())];
    assert_eq!(changes(&mut subscription).await, missed);
    let gets = find(&server, "GET", "s2");
    assert_eq!(gets.len(), 1);
    assert_eq!(gets[0].last_event, None);
    {
        let state = server.state();
        let session = &state.sessions["s2"];
        assert!(session.is_initialized);
        assert!(session.subscriptions.contains(NOTES));
        assert_eq!(session.level.as_deref(), Some("error"));
    }
    server.change_resource(NOTES);
    let changed = [Change::Resource(NOTES.into())];
    assert_eq!(changes(&mut subscription).await, changed);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gets_404_reopens_the_session_and_its_subscriptions() {
    let server = LegacyServer::start();
    server.state().get_behavior = GetBehavior::Status(405);
    let client = connect(&server).await;
    let wanted = ChangeFilter::new().resource(NOTES);
    let mut subscription = client.subscribe(wanted).await.unwrap();

    server.restart();
    client.call_tool("quick", ()).await.unwrap();

    let missed = [Change::Resource(NOTES.into())];
    assert_eq!(changes(&mut subscription).await, missed);
    assert!(server.state().sessions["s2"].subscriptions.contains(NOTES));
}

#[tokio::test(start_paused = true)]
async fn a_get_stream_is_reopened_after_an_outage() {
    for down_for in [1, 60, 3600] {
        let server = LegacyServer::start();
        server.state().has_event_ids = false;
        let client = connect(&server).await;
        let mut subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

        // The sessions survive, as in a database; only the stream ends.
        server.state().is_down = true;
        server.cut_streams();
        sleep(Duration::from_secs(down_for)).await;
        server.state().is_down = false;

        assert_eq!(
            changes(&mut subscription).await,
            [Change::Tools],
            "{down_for} s"
        );
        server.change_tools();
        assert_eq!(changes(&mut subscription).await, [Change::Tools]);
        assert!(find(&server, INITIALIZE, "s2").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_get_stream_rejected_with_503_is_retried() {
    let server = LegacyServer::start();
    server.state().get_behavior = GetBehavior::Status(503);
    let client = connect(&server).await;
    let mut subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();
    sleep(LONG).await;

    server.state().get_behavior = GetBehavior::Stream;

    assert_eq!(
        changes(&mut subscription).await,
        [Change::Tools],
        "changes may have been missed"
    );
    server.change_tools();
    assert_eq!(changes(&mut subscription).await, [Change::Tools]);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_stream_reports_no_missed_changes() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let mut subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();
    server.change_tools();
    assert_eq!(changes(&mut subscription).await, [Change::Tools]);

    server.cut_streams();

    assert_eq!(changes(&mut subscription).await, []);
    let gets = find(&server, "GET", "s1");
    assert_eq!(gets.last().unwrap().last_event.as_deref(), Some("1"));
}

/// Expects that the subscription fails within `limit`.
async fn expect_transport_error(subscription: &mut Subscription, limit: Duration) {
    let end = timeout(limit, async {
        loop {
            match subscription.next().await {
                Ok(Some(_)) => {}
                end => break end,
            }
        }
    });
    let end = end.await.expect("the subscription ends");
    assert!(matches!(end, Err(Error::Transport { .. })), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_fail_when_the_get_stream_is_abandoned() {
    for get_behavior in [GetBehavior::EmptyStream, GetBehavior::Status(400)] {
        let server = LegacyServer::start();
        let client = connect(&server).await;
        let mut subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

        server.state().get_behavior = get_behavior;
        server.cut_streams();
        expect_transport_error(&mut subscription, LONG).await;
        let next = client.subscribe(ChangeFilter::new().tools()).await;
        assert!(matches!(next, Err(Error::Transport { .. })), "{next:?}");
        assert!(
            client.call_tool("quick", ()).await.is_ok(),
            "calls still work"
        );

        server.state().get_behavior = GetBehavior::Stream;
        server.restart();
        client.call_tool("quick", ()).await.unwrap();
        let anew = client.subscribe(ChangeFilter::new().tools()).await;
        assert!(anew.is_ok(), "a new session has a new stream: {anew:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_to_every_get_does_not_reopen_the_session() {
    let server = LegacyServer::start();
    server.state().get_behavior = GetBehavior::Status(404);
    let _client = connect(&server).await;

    sleep(LONG).await;

    let handshake = format!("{INITIALIZED} s1");
    assert_eq!(
        server.processed(),
        [INITIALIZE, &handshake, "GET s1", "POST ping s1"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_get_stream_that_fails_in_every_new_session_is_abandoned_and_reported() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let mut subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

    server.state().get_behavior = GetBehavior::Status(404);
    server.cut_streams();
    expect_transport_error(&mut subscription, 10 * LONG).await;
    sleep(LONG).await;
    server.take_processed();
    sleep(10 * LONG).await;
    assert_eq!(server.processed(), [""; 0], "no further attempt");
}

#[tokio::test(start_paused = true)]
async fn an_outage_while_reopening_the_session_fails_the_call_and_not_the_client() {
    let server = LegacyServer::start();
    server.state().get_behavior = GetBehavior::Status(405);
    let client = connect(&server).await;
    server.restart();
    server.hold(HoldStage::Transit, INITIALIZE);
    let first = client.call_tool("quick", ()).start();
    run_until_idle().await;
    server.state().is_down = true;
    server.release(HoldStage::Transit, INITIALIZE);

    let failed = first.await;
    server.state().is_down = false;
    let second = client.call_tool("quick", ()).await;

    assert!(matches!(failed, Err(Error::Transport { .. })), "{failed:?}");
    assert!(second.is_ok(), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_waiting_for_a_stalled_handshake_time_out() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    server.restart();
    server.hold(HoldStage::Head, INITIALIZE);

    let call = timeout(LONG, client.call_tool("quick", ()).into_future()).await;

    assert!(matches!(call, Ok(Err(Error::Timeout { .. }))), "{call:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_request_of_an_expired_session_is_not_answered_in_the_next_session() {
    let server = LegacyServer::start();
    let (request_sender, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let host = bowline::client::Host::new().roots(move || {
        let _ = request_sender.send(());
        std::future::pending()
    });
    let connect = Client::connect("http://legacy.invalid/mcp").http_client(server.clone());
    let connect = connect.protocol_version(LEGACY).host(host);
    let client = connect.await.unwrap();
    run_until_idle().await;
    server.send_request(7, "roots/list", &json!({}));
    requests.recv().await.unwrap();

    server.restart();
    client.call_tool("quick", ()).await.unwrap();
    run_until_idle().await;

    let server = client.peer().unwrap();
    assert_eq!(
        server.sizes().in_flight,
        0,
        "the server request was dropped"
    );
}

// --- Calls dropped while their session is reopened ---

/// Starts a call whose session the server has dropped, and holds `label` at `stage`.
async fn start_held_call(server: &LegacyServer, stage: HoldStage, label: &str) -> (Client, Call) {
    let client = connect(server).await;
    server.restart();
    server.hold(stage, label);
    server.state().processed.clear();
    let call = client.call_tool("slow", ()).start();
    run_until_idle().await;
    (client, call)
}

/// The POSTs of calls and cancels, and the number of calls that still run.
async fn outcome(server: &LegacyServer) -> (Vec<String>, usize) {
    sleep(LONG).await;
    let mut processed = server.processed();
    processed.retain(|label| label.contains("tools/call") || label.contains("cancelled"));
    let state = server.state();
    let running = state.sessions.values().map(|session| session.running.len());
    (processed, running.sum())
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_404_is_neither_posted_again_nor_cancelled() {
    for stage in [HoldStage::Transit, HoldStage::Head] {
        let server = LegacyServer::start();
        let (_client, call) = start_held_call(&server, stage, CALL).await;

        drop(call);
        run_until_idle().await;
        server.release(stage, CALL);

        let refused = vec![format!("{CALL} s1")];
        assert_eq!(outcome(&server).await, (refused, 0), "{stage:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_sent_before_the_404_names_the_old_session_and_its_call_is_not_posted_again() {
    let server = LegacyServer::start();
    let (_client, call) = start_held_call(&server, HoldStage::Head, CALL).await;

    drop(call);
    sleep(Duration::from_millis(150)).await;
    server.release(HoldStage::Head, CALL);

    let (processed, running) = outcome(&server).await;
    let cancel = "POST notifications/cancelled s1";
    assert_eq!(processed, [format!("{CALL} s1"), cancel.to_owned()]);
    assert_eq!(running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_its_session_is_reopened_is_neither_posted_again_nor_cancelled() {
    for (stage, label) in [
        (HoldStage::Connect, INITIALIZE),
        (HoldStage::Transit, INITIALIZE),
        (HoldStage::Head, INITIALIZE),
        (HoldStage::Connect, INITIALIZED),
        (HoldStage::Head, INITIALIZED),
    ] {
        let server = LegacyServer::start();
        let (client, call) = start_held_call(&server, stage, label).await;
        let other = client.call_tool("quick", ()).start();
        run_until_idle().await;

        drop(call);
        run_until_idle().await;
        server.release(stage, label);

        assert!(
            other.await.is_ok(),
            "another call waited for the same session"
        );
        let posted = vec![format!("{CALL} s1"), format!("{CALL} s2")];
        assert_eq!(outcome(&server).await, (posted, 0), "{stage:?} {label}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_it_is_posted_again_is_withdrawn() {
    let server = LegacyServer::start();
    let (_client, call) = start_held_call(&server, HoldStage::Head, INITIALIZED).await;
    server.hold(HoldStage::Connect, CALL);
    server.release(HoldStage::Head, INITIALIZED);
    run_until_idle().await;

    drop(call);
    run_until_idle().await;
    server.release(HoldStage::Connect, CALL);

    let refused = vec![format!("{CALL} s1")];
    assert_eq!(outcome(&server).await, (refused, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_after_it_was_posted_again_is_cancelled_in_the_new_session() {
    for stage in [HoldStage::Transit, HoldStage::Head] {
        let server = LegacyServer::start();
        let (_client, call) = start_held_call(&server, HoldStage::Head, INITIALIZED).await;
        server.hold(stage, CALL);
        server.release(HoldStage::Head, INITIALIZED);
        run_until_idle().await;

        drop(call);
        sleep(Duration::from_millis(50)).await;
        server.release(stage, CALL);

        let (processed, running) = outcome(&server).await;
        let cancel = "POST notifications/cancelled s2";
        let order = [
            format!("{CALL} s1"),
            format!("{CALL} s2"),
            cancel.to_owned(),
        ];
        assert_eq!(processed, order, "{stage:?}");
        assert_eq!(running, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_names_the_session_of_its_request_even_if_that_is_not_the_current_one() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let old = client.call_tool("slow", ()).start();
    run_until_idle().await;
    // The server drops the session, but the response of the old call stays open.
    let kept = server.state().sessions.remove("s1");
    client.call_tool("quick", ()).await.unwrap();

    drop(old);
    run_until_idle().await;

    let cancels = find(&server, "POST notifications/cancelled", "s1");
    assert_eq!(cancels.len(), 1, "{:?}", server.processed());
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn the_first_call_waits_for_the_get_stream_so_that_no_notification_is_missed() {
    let server = LegacyServer::start();
    server.hold(HoldStage::Connect, "GET");
    let client = server.connect().await;
    let call = client.call_tool("quick", ()).start();

    run_until_idle().await;
    assert_eq!(find(&server, CALL, "s1").len(), 0);
    server.release(HoldStage::Connect, "GET");

    assert!(call.await.is_ok());
    let processed = server.processed();
    let place = |label: &str| {
        processed
            .iter()
            .position(|processed| processed == label)
            .unwrap()
    };
    assert!(
        place("GET s1") < place("POST tools/call s1"),
        "{processed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_get_delays_the_first_call_by_at_most_600_ms() {
    let server = LegacyServer::start();
    server.hold(HoldStage::Head, "GET");
    let client = server.connect().await;
    let start = tokio::time::Instant::now();

    let call = client.call_tool("quick", ()).await;

    assert!(call.is_ok(), "{call:?}");
    assert!(start.elapsed() <= Duration::from_millis(600));
}

#[tokio::test(start_paused = true)]
async fn a_resubscription_waits_for_the_previous_unsubscription() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let wanted = || ChangeFilter::new().resource(NOTES);
    let first = client.subscribe(wanted()).await.unwrap();
    server.hold(HoldStage::Transit, "POST resources/unsubscribe");
    drop(first);
    run_until_idle().await;

    let subscribing = client.subscribe(wanted());
    let (second, ()) = tokio::join!(subscribing.into_future(), async {
        run_until_idle().await;
        server.release(HoldStage::Transit, "POST resources/unsubscribe");
    });
    let mut second = second.unwrap();
    run_until_idle().await; // every message in transit has arrived
    server.change_resource(NOTES);

    assert_eq!(changes(&mut second).await, [Change::Resource(NOTES.into())]);
}

#[tokio::test(start_paused = true)]
async fn a_call_made_during_a_failed_reopening_starts_its_own_reopening() {
    let server = LegacyServer::start();
    server.state().get_behavior = GetBehavior::Status(405);
    let client = connect(&server).await;
    server.restart();
    server.hold(HoldStage::Transit, INITIALIZE);
    let _first = client.call_tool("quick", ()).start();
    run_until_idle().await;
    let joined = client.call_tool("quick", ()).start();
    run_until_idle().await;

    server.state().is_down = true;
    server.release(HoldStage::Transit, INITIALIZE);
    server.hold(HoldStage::Connect, INITIALIZE);
    run_until_idle().await;
    server.state().is_down = false;
    server.release(HoldStage::Connect, INITIALIZE);

    assert!(joined.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_id_of_a_lost_request_is_free_in_the_next_session() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    server.hold(HoldStage::Transit, CALL);
    let lost = client.call_tool("slow", ()).id("x").start();
    run_until_idle().await;
    drop(lost);
    server.restart();
    sleep(Duration::from_secs(6)).await;
    server.release(HoldStage::Transit, CALL);

    let start = tokio::time::Instant::now();
    let call = client.call_tool("quick", ()).id("x").await;

    assert!(call.is_ok(), "{call:?}");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_get_rejected_with_409_is_retried() {
    let server = LegacyServer::start();
    server.state().has_event_ids = false;
    let client = connect(&server).await;
    let mut subscription = client.subscribe(ChangeFilter::new().tools()).await.unwrap();
    server.state().get_behavior = GetBehavior::Status(409);
    server.cut_streams();
    sleep(Duration::from_secs(5)).await;

    server.state().get_behavior = GetBehavior::Stream;

    assert_eq!(changes(&mut subscription).await, [Change::Tools]);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_its_session_expires_sends_no_cancel_in_the_next_session() {
    for yields in 0..20 {
        let server = LegacyServer::start();
        let client = connect(&server).await;
        let call = client.call_tool("slow", ()).id("x").start();
        run_until_idle().await;

        let mut dropped = std::mem::take(&mut server.state().sessions);
        let running = std::mem::take(&mut dropped.get_mut("s1").unwrap().running);
        server.hold(HoldStage::Transit, INITIALIZE);
        let _next = client.call_tool("quick", ()).start();
        run_until_idle().await;
        running["\"x\""].end(&json!("x"));
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        drop(call);
        run_until_idle().await;
        server.release(HoldStage::Transit, INITIALIZE);
        sleep(Duration::from_secs(1)).await;

        let state = server.state();
        let early_cancels = state
            .sessions
            .values()
            .map(|session| session.early_cancels.len());
        assert_eq!(early_cancels.sum::<usize>(), 0, "after {yields} yields");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_whose_connection_ends_before_it_arrives_is_posted_again() {
    let server = LegacyServer::start();
    let host = bowline::client::Host::new().roots(|| async { Vec::new() });
    let connect = Client::connect("http://legacy.invalid/mcp").http_client(server.clone());
    let _client = connect.protocol_version(LEGACY).host(host).await.unwrap();
    run_until_idle().await;
    server.hold(HoldStage::Transit, "POST");
    server.send_request(7, "roots/list", &json!({}));
    run_until_idle().await;

    server.state().is_down = true;
    server.release(HoldStage::Transit, "POST");
    run_until_idle().await;
    server.state().is_down = false;
    sleep(Duration::from_secs(1)).await;

    assert_eq!(server.state().lost.len(), 1, "the first response");
    let answers = find(&server, "POST", "s1");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].body["id"], 7);
}
