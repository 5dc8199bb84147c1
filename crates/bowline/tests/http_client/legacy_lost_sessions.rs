//! A legacy server that answers 400 in a session that it does not know, as the examples of the official SDKs do: the
//! client opens another session and posts the request once more, but only if the server cannot have run it.

use std::time::Duration;

use bowline::client::{Change, ChangeFilter};
use bowline::types::LoggingLevel;
use bowline::{Client, Error};
use tokio::time::{sleep, timeout};

use crate::legacy::default_legacy_reply;
use crate::legacy_server::{BadRequest, GetBehavior, HoldStage, LegacyServer, run_until_idle};
use crate::scripted_server::{SSE_HEAD, ScriptedReply, ScriptedServer, bare};

const CALL: &str = "POST tools/call";
const PING: &str = "POST ping";
const INITIALIZE: &str = "POST initialize";
const INITIALIZED: &str = "POST notifications/initialized";
const NOTES: &str = "file:///notes.txt";

/// Longer than every delay between two attempts; the clock is paused.
const LONG: Duration = Duration::from_secs(120);

/// The answers of published servers to a request in an unknown session.
const UNKNOWN_SESSION: [BadRequest; 4] = [
    // The example server of the TypeScript SDK, and server-everything.
    BadRequest::OwnId(-32000),
    BadRequest::OwnId(-32600),
    // A transport of the TypeScript SDK that was not initialized.
    BadRequest::NullId,
    // The Python SDK until 1.12.
    BadRequest::Text,
];

/// Connects to a server that forgets sessions with `form`, and offers no GET stream.
async fn connect(form: BadRequest) -> (LegacyServer, Client) {
    let server = LegacyServer::start();
    server.state().unknown_session = Some(form);
    server.state().get_behavior = GetBehavior::Status(405);
    let client = server.connect().await;
    run_until_idle().await;
    server.take_processed();
    (server, client)
}

/// Returns and clears the processed POSTs.
fn take_posts(server: &LegacyServer) -> Vec<String> {
    let mut posts = server.take_processed();
    posts.retain(|label| label.starts_with("POST"));
    posts
}

#[tokio::test(start_paused = true)]
async fn calls_after_a_restart_succeed_whatever_the_400_looks_like() {
    for form in UNKNOWN_SESSION {
        let (server, client) = connect(form).await;
        server.restart();

        for _ in 0..5 {
            client.call_tool("quick", ()).await.unwrap();
        }

        let first = [
            format!("{CALL} s1"),
            format!("{PING} s1"),
            INITIALIZE.into(),
            format!("{INITIALIZED} s2"),
        ];
        let calls = std::iter::repeat_n(format!("{CALL} s2"), 5);
        let expected: Vec<_> = first.into_iter().chain(calls).collect();
        assert_eq!(take_posts(&server), expected, "{form:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_one_new_session() {
    for form in UNKNOWN_SESSION {
        let (server, client) = connect(form).await;
        server.restart();

        let calls: Vec<_> = (0..20)
            .map(|_| client.call_tool("quick", ()).start())
            .collect();
        for call in calls {
            call.await.unwrap();
        }

        let posts = take_posts(&server);
        let count = |label: &str| posts.iter().filter(|it| *it == label).count();
        assert_eq!(count(INITIALIZE), 1, "{form:?}");
        assert_eq!(count(&format!("{CALL} s2")), 20, "{form:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_and_the_log_level_are_restored() {
    for get_behavior in [GetBehavior::Stream, GetBehavior::Status(405)] {
        for form in UNKNOWN_SESSION {
            let (server, _) = connect(form).await;
            server.state().get_behavior = get_behavior;
            let client = server.connect().await;
            let wanted = ChangeFilter::new().resource(NOTES);
            let mut subscription = client.subscribe(wanted).await.unwrap();
            client.set_log_level(LoggingLevel::Error).await.unwrap();
            run_until_idle().await;

            server.restart();
            if get_behavior != GetBehavior::Stream {
                client.call_tool("quick", ()).await.unwrap();
            }

            let change = timeout(LONG, subscription.next()).await;
            let change = change.expect("it is reported that changes may have been missed");
            assert_eq!(change.unwrap(), Some(Change::Resource(NOTES.into())));
            sleep(LONG).await;
            let state = server.state();
            assert_eq!(state.sessions.len(), 1, "{form:?}");
            let session = state.sessions.values().next().unwrap();
            assert!(session.subscriptions.contains(NOTES), "{form:?}");
            assert_eq!(session.level.as_deref(), Some("error"), "{form:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_400_that_answers_the_request_is_its_answer() {
    let (server, client) = connect(BadRequest::Text).await;
    server.state().refused_calls = Some(BadRequest::OwnId(-32602));

    let refused = client.call_tool("quick", ()).await;

    assert!(matches!(&refused, Err(Error::Rpc(error)) if error.code.0 == -32602));
    assert_eq!(take_posts(&server), [format!("{CALL} s1")]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_in_a_session_that_answers_a_ping_is_not_posted_again() {
    for form in UNKNOWN_SESSION {
        let (server, client) = connect(BadRequest::Text).await;
        server.state().refused_calls = Some(form);

        let refused = client.call_tool("quick", ()).await;

        match form {
            BadRequest::OwnId(code) => {
                assert!(matches!(&refused, Err(Error::Rpc(error)) if error.code.0 == code));
            }
            // An error without an id can only refer to the posted request.
            BadRequest::NullId => {
                assert!(matches!(&refused, Err(Error::Rpc(error)) if error.code.0 == -32000));
            }
            BadRequest::Text => assert_eq!(refused.unwrap_err().http_status(), Some(400)),
        }
        let posts = [format!("{CALL} s1"), format!("{PING} s1")];
        assert_eq!(take_posts(&server), posts, "{form:?}");
        assert!(server.state().sessions.contains_key("s1"), "{form:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_in_the_new_session_too_is_not_posted_a_third_time() {
    for form in UNKNOWN_SESSION {
        let (server, client) = connect(form).await;
        server.restart();
        server.state().refused_calls = Some(form);

        assert!(client.call_tool("quick", ()).await.is_err());

        let calls = take_posts(&server);
        let calls = calls.iter().filter(|label| label.starts_with(CALL));
        assert_eq!(calls.count(), 2, "{form:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_the_new_session_is_open_is_not_posted_again() {
    let stages = [
        (HoldStage::Head, CALL),
        (HoldStage::Connect, PING),
        (HoldStage::Head, PING),
        (HoldStage::Transit, INITIALIZE),
        (HoldStage::Head, INITIALIZED),
    ];
    for (stage, label) in stages {
        for wait in [1, 200] {
            let (server, client) = connect(BadRequest::OwnId(-32000)).await;
            server.restart();
            server.hold(stage, label);
            let call = client.call_tool("slow", ()).start();
            run_until_idle().await;

            drop(call);
            sleep(Duration::from_millis(wait)).await;
            server.release(stage, label);
            sleep(LONG).await;

            let calls = take_posts(&server);
            let calls = calls.iter().filter(|label| label.starts_with(CALL));
            assert_eq!(calls.count(), 1, "{stage:?} {label} {wait}");
            client.call_tool("quick", ()).await.unwrap();
            let state = server.state();
            assert!(state.sessions.values().all(|it| it.running.is_empty()));
        }
    }
}

/// A call whose stream has begun may have run.
#[tokio::test]
async fn a_400_to_a_resumed_stream_fails_its_call_without_posting_it_again() {
    let mut server = ScriptedServer::start(|request| {
        match (&*request.label(), request.header("last-event-id")) {
            ("POST tools/call", _) => {
                ScriptedReply::BytesThenClose(format!("{SSE_HEAD}id: e1\nretry: 1\ndata:\n\n"))
            }
            ("GET", Some("e1")) | ("POST ping", _) => ScriptedReply::Bytes(bare("400 Bad Request")),
            _ => default_legacy_reply(request),
        }
    })
    .await;
    let client = server.connect("2025-11-25").await;

    let broken = client.call_tool("slow", ()).await.unwrap_err();

    assert_eq!(broken.http_status(), Some(400), "{broken}");
    let mut posts = server.drain_events();
    posts.retain(|label| label.starts_with("POST"));
    assert_eq!(posts, [INITIALIZE, INITIALIZED, CALL]);
}
