//! A legacy server that forgets its session: the client opens another, and says what it may have missed.

use std::time::Duration;

use bowline::client::{Change, Changes};
use bowline::types::LoggingLevel;
use bowline::{Call, Client, Error};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::legacy_server::{LEGACY, LegacyServer, OnGet, Seen, Stage, idle};

const NOTES: &str = "file:///notes.txt";
const CALL: &str = "POST tools/call";
const INITIALIZE: &str = "POST initialize";
const INITIALIZED: &str = "POST notifications/initialized";

/// Long enough for every pause between two attempts; the clock is paused.
const LONG: Duration = Duration::from_secs(120);

async fn connect(server: &LegacyServer) -> Client {
    let client = server.connect().await;
    idle().await;
    client
}

/// Everything that the subscription has to tell by now.
async fn changes(subscription: &mut bowline::client::Subscription) -> Vec<Change> {
    let mut all = Vec::new();
    while let Ok(change) = timeout(LONG, subscription.next()).await {
        all.push(change.unwrap().unwrap());
    }
    all
}

fn find(server: &LegacyServer, what: &str, session: &str) -> Vec<Seen> {
    let world = server.world();
    let is_it = |seen: &&Seen| seen.what == what && seen.session.as_deref() == Some(session);
    world.seen.iter().filter(is_it).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_server_was_restarted_subscribes_again_and_says_what_it_may_have_missed() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let wanted = Changes::new().tools().resource(NOTES);
    let mut subscription = client.subscribe(wanted).await.unwrap();
    client.set_log_level(LoggingLevel::Error).await.unwrap();
    server.change_tools(); // its event has an id, which means nothing in the next session
    assert_eq!(changes(&mut subscription).await, [Change::Tools]);

    server.restart();

    let missed = [Change::Tools, Change::Resource(NOTES.into())];
    assert_eq!(changes(&mut subscription).await, missed);
    let gets = find(&server, "GET", "s2");
    assert_eq!(gets.len(), 1);
    assert_eq!(gets[0].last_event, None);
    {
        let world = server.world();
        let session = &world.sessions["s2"];
        assert!(session.is_initialized);
        assert!(session.subscriptions.contains(NOTES));
        assert_eq!(session.level.as_deref(), Some("error"));
    }
    server.change_resource(NOTES);
    let told = [Change::Resource(NOTES.into())];
    assert_eq!(changes(&mut subscription).await, told);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_the_session_gone_restores_the_subscriptions_too() {
    let server = LegacyServer::start();
    server.world().on_get = OnGet::Status(405);
    let client = connect(&server).await;
    let wanted = Changes::new().resource(NOTES);
    let mut subscription = client.subscribe(wanted).await.unwrap();

    server.restart();
    client.call_tool("quick", ()).await.unwrap();

    let missed = [Change::Resource(NOTES.into())];
    assert_eq!(changes(&mut subscription).await, missed);
    assert!(server.world().sessions["s2"].subscriptions.contains(NOTES));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_opened_is_opened_when_the_server_is_back() {
    for down_for in [1, 60, 3600] {
        let server = LegacyServer::start();
        server.world().numbers_events = false;
        let client = connect(&server).await;
        let mut subscription = client.subscribe(Changes::new().tools()).await.unwrap();

        // The sessions stay, as where they are kept in a database; only the stream is cut.
        server.world().is_down = true;
        server.cut_streams();
        sleep(Duration::from_secs(down_for)).await;
        server.world().is_down = false;

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
async fn a_stream_that_is_refused_for_a_while_is_opened_later() {
    let server = LegacyServer::start();
    server.world().on_get = OnGet::Status(503);
    let client = connect(&server).await;
    let mut subscription = client.subscribe(Changes::new().tools()).await.unwrap();
    sleep(LONG).await;

    server.world().on_get = OnGet::Stream;

    assert_eq!(
        changes(&mut subscription).await,
        [Change::Tools],
        "anything may have changed"
    );
    server.change_tools();
    assert_eq!(changes(&mut subscription).await, [Change::Tools]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_can_be_resumed_has_missed_nothing() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let mut subscription = client.subscribe(Changes::new().tools()).await.unwrap();
    server.change_tools();
    assert_eq!(changes(&mut subscription).await, [Change::Tools]);

    server.cut_streams();

    assert_eq!(changes(&mut subscription).await, []);
    let gets = find(&server, "GET", "s1");
    assert_eq!(gets.last().unwrap().last_event.as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn listeners_are_told_when_listening_is_given_up() {
    for on_get in [OnGet::EmptyStream, OnGet::Status(400)] {
        let server = LegacyServer::start();
        let client = connect(&server).await;
        let mut subscription = client.subscribe(Changes::new().tools()).await.unwrap();

        server.world().on_get = on_get;
        server.cut_streams();
        let end = timeout(LONG, async {
            loop {
                match subscription.next().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            }
        });

        let end = end.await.expect("the subscription ends");
        assert!(matches!(end, Err(Error::Transport { .. })), "{end:?}");
        let next = client.subscribe(Changes::new().tools()).await;
        assert!(matches!(next, Err(Error::Transport { .. })), "{next:?}");
        assert!(client.call_tool("quick", ()).await.is_ok(), "calls go on");

        server.world().on_get = OnGet::Stream;
        server.restart();
        client.call_tool("quick", ()).await.unwrap();
        let anew = client.subscribe(Changes::new().tools()).await;
        assert!(anew.is_ok(), "a new session has a new stream: {anew:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_every_get_with_404_is_not_taken_for_one_that_forgets_its_sessions() {
    let server = LegacyServer::start();
    server.world().on_get = OnGet::Status(404);
    let _client = connect(&server).await;

    sleep(LONG).await;

    let handshake = format!("{INITIALIZED} s1");
    assert_eq!(
        server.seen(),
        [INITIALIZE, &handshake, "GET s1", "POST ping s1"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_gone_in_every_new_session_is_given_up_and_said() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let mut subscription = client.subscribe(Changes::new().tools()).await.unwrap();

    server.world().on_get = OnGet::Status(404);
    server.cut_streams();
    let end = timeout(10 * LONG, async {
        loop {
            match subscription.next().await {
                Ok(Some(_)) => {}
                end => break end,
            }
        }
    });

    let end = end.await.expect("the subscription ends");
    assert!(matches!(end, Err(Error::Transport { .. })), "{end:?}");
    sleep(LONG).await;
    server.take_seen();
    sleep(10 * LONG).await;
    assert_eq!(server.seen(), [""; 0], "and nothing more is tried");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_when_the_session_is_reopened_costs_the_call_and_not_the_wire() {
    let server = LegacyServer::start();
    server.world().on_get = OnGet::Status(405);
    let client = connect(&server).await;
    server.restart();
    server.hold(Stage::Transit, INITIALIZE);
    let first = client.call_tool("quick", ()).start();
    idle().await;
    server.world().is_down = true;
    server.release(Stage::Transit, INITIALIZE);

    let failed = first.await;
    server.world().is_down = false;
    let second = client.call_tool("quick", ()).await;

    assert!(matches!(failed, Err(Error::Transport { .. })), "{failed:?}");
    assert!(second.is_ok(), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_is_never_answered_fails_the_calls_that_wait_for_it() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    server.restart();
    server.hold(Stage::Head, INITIALIZE);

    let call = timeout(LONG, client.call_tool("quick", ()).into_future()).await;

    assert!(matches!(call, Ok(Err(Error::Timeout { .. }))), "{call:?}");
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_forgotten_session_is_not_answered_in_the_next_one() {
    let server = LegacyServer::start();
    let (asked, mut asking) = tokio::sync::mpsc::unbounded_channel();
    let host = bowline::client::Host::new().roots(move || {
        let _ = asked.send(());
        std::future::pending()
    });
    let connect = Client::connect("http://legacy.invalid/mcp").http(server.clone());
    let connect = connect.speaking(LEGACY).host(host);
    let client = connect.await.unwrap();
    idle().await;
    server.ask(7, "roots/list", &json!({}));
    asking.recv().await.unwrap();

    server.restart();
    client.call_tool("quick", ()).await.unwrap();
    idle().await;

    let peer = client.peer().unwrap();
    assert_eq!(peer.sizes().in_flight, 0, "nobody waits for the answer");
}

// --- a call that is dropped while its session is reopened ---

/// A call whose session the server has forgotten, held at `stage` of `what`.
async fn held(server: &LegacyServer, stage: Stage, what: &str) -> (Client, Call) {
    let client = connect(server).await;
    server.restart();
    server.hold(stage, what);
    server.world().seen.clear();
    let call = client.call_tool("slow", ()).start();
    idle().await;
    (client, call)
}

/// What was posted of calls and cancels, and what still runs.
async fn outcome(server: &LegacyServer) -> (Vec<String>, usize) {
    sleep(LONG).await;
    let mut seen = server.seen();
    seen.retain(|what| what.contains("tools/call") || what.contains("cancelled"));
    let world = server.world();
    let running = world.sessions.values().map(|session| session.running.len());
    (seen, running.sum())
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_session_was_found_gone_is_not_posted_again_nor_cancelled() {
    for stage in [Stage::Transit, Stage::Head] {
        let server = LegacyServer::start();
        let (_client, call) = held(&server, stage, CALL).await;

        drop(call);
        idle().await;
        server.release(stage, CALL);

        let refused = vec![format!("{CALL} s1")];
        assert_eq!(outcome(&server).await, (refused, 0), "{stage:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_went_out_before_the_404_names_the_old_session_and_its_call_is_not_posted_again()
 {
    let server = LegacyServer::start();
    let (_client, call) = held(&server, Stage::Head, CALL).await;

    drop(call);
    sleep(Duration::from_millis(150)).await;
    server.release(Stage::Head, CALL);

    let (seen, running) = outcome(&server).await;
    let cancel = "POST notifications/cancelled s1";
    assert_eq!(seen, [format!("{CALL} s1"), cancel.to_owned()]);
    assert_eq!(running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_its_session_is_reopened_is_never_posted_again_nor_cancelled() {
    for (stage, what) in [
        (Stage::Connect, INITIALIZE),
        (Stage::Transit, INITIALIZE),
        (Stage::Head, INITIALIZE),
        (Stage::Connect, INITIALIZED),
        (Stage::Head, INITIALIZED),
    ] {
        let server = LegacyServer::start();
        let (client, call) = held(&server, stage, what).await;
        let other = client.call_tool("quick", ()).start();
        idle().await;

        drop(call);
        idle().await;
        server.release(stage, what);

        assert!(
            other.await.is_ok(),
            "another call waited for the same session"
        );
        let posted = vec![format!("{CALL} s1"), format!("{CALL} s2")];
        assert_eq!(outcome(&server).await, (posted, 0), "{stage:?} {what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_right_before_it_is_handed_over_again_is_withdrawn() {
    let server = LegacyServer::start();
    let (_client, call) = held(&server, Stage::Head, INITIALIZED).await;
    server.hold(Stage::Connect, CALL);
    server.release(Stage::Head, INITIALIZED);
    idle().await;

    drop(call);
    idle().await;
    server.release(Stage::Connect, CALL);

    let refused = vec![format!("{CALL} s1")];
    assert_eq!(outcome(&server).await, (refused, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_right_after_it_was_handed_over_again_is_cancelled_in_the_new_session() {
    for stage in [Stage::Transit, Stage::Head] {
        let server = LegacyServer::start();
        let (_client, call) = held(&server, Stage::Head, INITIALIZED).await;
        server.hold(stage, CALL);
        server.release(Stage::Head, INITIALIZED);
        idle().await;

        drop(call);
        sleep(Duration::from_millis(50)).await;
        server.release(stage, CALL);

        let (seen, running) = outcome(&server).await;
        let cancel = "POST notifications/cancelled s2";
        let order = [
            format!("{CALL} s1"),
            format!("{CALL} s2"),
            cancel.to_owned(),
        ];
        assert_eq!(seen, order, "{stage:?}");
        assert_eq!(running, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_names_the_session_of_its_request_even_if_that_is_not_the_current_one() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let old = client.call_tool("slow", ()).start();
    idle().await;
    // The server forgets the session, but the response of the old call stays open.
    let kept = server.world().sessions.remove("s1");
    client.call_tool("quick", ()).await.unwrap();

    drop(old);
    idle().await;

    let cancels = find(&server, "POST notifications/cancelled", "s1");
    assert_eq!(cancels.len(), 1, "{:?}", server.seen());
    drop(kept);
}

#[tokio::test(start_paused = true)]
async fn the_first_call_waits_for_the_get_stream_so_that_nothing_it_causes_is_missed() {
    let server = LegacyServer::start();
    server.hold(Stage::Connect, "GET");
    let client = server.connect().await;
    let call = client.call_tool("quick", ()).start();

    idle().await;
    assert_eq!(find(&server, CALL, "s1").len(), 0);
    server.release(Stage::Connect, "GET");

    assert!(call.await.is_ok());
    let seen = server.seen();
    let place = |what: &str| seen.iter().position(|seen| seen == what).unwrap();
    assert!(place("GET s1") < place("POST tools/call s1"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_get_stream_that_is_not_answered_holds_the_first_call_up_for_a_moment_only() {
    let server = LegacyServer::start();
    server.hold(Stage::Head, "GET");
    let client = server.connect().await;
    let start = tokio::time::Instant::now();

    let call = client.call_tool("quick", ()).await;

    assert!(call.is_ok(), "{call:?}");
    assert!(start.elapsed() <= Duration::from_millis(600));
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_subscribed_to_only_after_the_unsubscription_before_has_arrived() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    let wanted = || Changes::new().resource(NOTES);
    let first = client.subscribe(wanted()).await.unwrap();
    server.hold(Stage::Transit, "POST resources/unsubscribe");
    drop(first);
    idle().await;

    let subscribing = client.subscribe(wanted());
    let (second, ()) = tokio::join!(subscribing.into_future(), async {
        idle().await;
        server.release(Stage::Transit, "POST resources/unsubscribe");
    });
    let mut second = second.unwrap();
    idle().await; // whatever is on its way has arrived
    server.change_resource(NOTES);

    assert_eq!(changes(&mut second).await, [Change::Resource(NOTES.into())]);
}

#[tokio::test(start_paused = true)]
async fn a_call_made_during_an_attempt_to_reopen_that_fails_gets_an_attempt_of_its_own() {
    let server = LegacyServer::start();
    server.world().on_get = OnGet::Status(405);
    let client = connect(&server).await;
    server.restart();
    server.hold(Stage::Transit, INITIALIZE);
    let _first = client.call_tool("quick", ()).start();
    idle().await;
    let joined = client.call_tool("quick", ()).start();
    idle().await;

    server.world().is_down = true;
    server.release(Stage::Transit, INITIALIZE);
    server.hold(Stage::Connect, INITIALIZE);
    idle().await;
    server.world().is_down = false;
    server.release(Stage::Connect, INITIALIZE);

    assert!(joined.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_id_whose_request_may_not_have_arrived_is_free_in_the_next_session() {
    let server = LegacyServer::start();
    let client = connect(&server).await;
    server.hold(Stage::Transit, CALL);
    let lost = client.call_tool("slow", ()).id("x").start();
    idle().await;
    drop(lost);
    server.restart();
    sleep(Duration::from_secs(6)).await;
    server.release(Stage::Transit, CALL);

    let start = tokio::time::Instant::now();
    let call = client.call_tool("quick", ()).id("x").await;

    assert!(call.is_ok(), "{call:?}");
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_get_that_the_server_takes_for_a_second_one_is_tried_again() {
    let server = LegacyServer::start();
    server.world().numbers_events = false;
    let client = connect(&server).await;
    let mut subscription = client.subscribe(Changes::new().tools()).await.unwrap();
    server.world().on_get = OnGet::Status(409);
    server.cut_streams();
    sleep(Duration::from_secs(5)).await;

    server.world().on_get = OnGet::Stream;

    assert_eq!(changes(&mut subscription).await, [Change::Tools]);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_as_its_session_is_forgotten_leaves_no_cancel_for_the_next_session() {
    for yields in 0..20 {
        let server = LegacyServer::start();
        let client = connect(&server).await;
        let call = client.call_tool("slow", ()).id("x").start();
        idle().await;

        let mut forgotten = std::mem::take(&mut server.world().sessions);
        let running = std::mem::take(&mut forgotten.get_mut("s1").unwrap().running);
        server.hold(Stage::Transit, INITIALIZE);
        let _next = client.call_tool("quick", ()).start();
        idle().await;
        running["\"x\""].end(&json!("x"));
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        drop(call);
        idle().await;
        server.release(Stage::Transit, INITIALIZE);
        sleep(Duration::from_secs(1)).await;

        let world = server.world();
        let early = world.sessions.values().map(|session| session.early.len());
        assert_eq!(early.sum::<usize>(), 0, "after {yields} yields");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_connection_ends_before_it_arrives_is_posted_again() {
    let server = LegacyServer::start();
    let host = bowline::client::Host::new().roots(|| async { Vec::new() });
    let connect = Client::connect("http://legacy.invalid/mcp").http(server.clone());
    let _client = connect.speaking(LEGACY).host(host).await.unwrap();
    idle().await;
    server.hold(Stage::Transit, "POST");
    server.ask(7, "roots/list", &json!({}));
    idle().await;

    server.world().is_down = true;
    server.release(Stage::Transit, "POST");
    idle().await;
    server.world().is_down = false;
    sleep(Duration::from_secs(1)).await;

    assert_eq!(server.world().lost.len(), 1, "the first one");
    let answers = find(&server, "POST", "s1");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].body["id"], 7);
}
