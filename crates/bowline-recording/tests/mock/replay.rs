//! Recordings that are sent to a server again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::prelude::*;
use bowline_recording::{Pacing, Recording, Replay, ReplayOutcome, ReplayReport};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::recorded::{ERAS, Era, PAIRS, Recorded, accept, call};

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// A server whose answers differ from the recorded ones in `greeting`.
fn server(greeting: &'static str) -> Server {
    let ask = move |cx: Context| async move {
        let name: Name = cx.elicit("name", "Who?").await?;
        Ok::<_, ToolError>(format!("{greeting} {}", name.name))
    };
    let read_only = |tool: Tool| tool.read_only(true);
    Server::new("recorded", "7")
        .tool(read_only(Tool::new(
            "echo",
            async |Args(text): Args<Text>| text.text,
        )))
        .tool(Tool::new("ask", ask))
}

async fn replay(replay: Replay, server: &Server, era: Era) -> ReplayReport {
    let builder: ClientBuilder = Client::in_process(server).protocol_version(era.version());
    replay.connect(builder).await.unwrap().run(|_| {}).await
}

fn calls(era: Era) -> Recording {
    let mut recorded = Recorded::without_handshake(era);
    recorded.call("echo", json!({"text": "a"}), "a");
    recorded.ask(json!({}), "Who?", accept("Ada"), "hello Ada");
    recorded.call("echo", json!({"text": "b"}), "b");
    recorded.recording()
}

#[tokio::test]
async fn the_same_server_answers_the_same() {
    for (recorded_era, era) in PAIRS {
        for pacing in [Pacing::OneAtATime, Pacing::AsRecorded] {
            let replaying = Replay::new(&calls(recorded_era)).pacing(pacing);
            let report = replay(replaying, &server("hello"), era).await;

            let outcomes: Vec<&ReplayOutcome> =
                report.requests.iter().map(|it| &it.outcome).collect();
            assert_eq!(
                outcomes,
                [&ReplayOutcome::Same; 3],
                "{recorded_era:?} {era:?}"
            );
            assert_eq!(report.version, era.version());
            assert!(!report.has_differences());
        }
    }
}

#[tokio::test]
async fn another_answer_is_a_difference_with_its_path_unless_it_is_ignored() {
    for (recorded_era, era) in PAIRS {
        let differing = replay(Replay::new(&calls(recorded_era)), &server("goodbye"), era).await;
        let ignoring =
            Replay::new(&calls(recorded_era)).ignore("result.content[*].text".parse().unwrap());
        let ignored = replay(ignoring, &server("goodbye"), era).await;

        assert!(differing.has_differences() && !ignored.has_differences());
        let request = &differing.requests[1];
        assert_eq!((request.number, request.method.as_str()), (2, "tools/call"));
        assert_eq!(request.name.as_deref(), Some("ask"));
        let ReplayOutcome::Different { changes } = &request.outcome else {
            panic!("expected a difference, got {:?}", request.outcome);
        };
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].path, "result.content[0].text");
        assert_eq!(changes[0].left, Some(json!("hello Ada")));
        assert_eq!(changes[0].right, Some(json!("goodbye Ada")));
    }
}

#[tokio::test]
async fn another_question_is_a_difference() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::without_handshake(recorded_era);
        recorded.ask(json!({}), "Who is there?", accept("Ada"), "hello Ada");
        recorded.call("ask", json!({}), "hello you");
        let report = replay(Replay::new(&recorded.recording()), &server("hello"), era).await;

        let ReplayOutcome::Different { changes } = &report.requests[0].outcome else {
            panic!("expected a difference, got {:?}", report.requests);
        };
        assert_eq!(
            changes[0].path, "questions[0].params.message",
            "{changes:?}"
        );
        // A question that the recorded server did not ask cannot be answered.
        assert!(
            report.requests[1].outcome.is_finding(),
            "{recorded_era:?} {era:?}"
        );
    }
}

#[tokio::test]
async fn an_error_is_compared_with_an_answer() {
    let mut recorded = Recorded::without_handshake(Era::Modern);
    recorded.call("gone", json!({}), "here");
    let report = replay(
        Replay::new(&recorded.recording()),
        &server("hello"),
        Era::Modern,
    )
    .await;

    let ReplayOutcome::Different { changes } = &report.requests[0].outcome else {
        panic!("expected a difference, got {:?}", report.requests);
    };
    let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["error", "result"]);
}

#[tokio::test]
async fn cursors_of_the_server_replace_the_recorded_ones() {
    let mut recorded = Recorded::without_handshake(Era::Legacy);
    let tool =
        |name: &str| json!({"name": name, "inputSchema": {"type": "object", "properties": {}}});
    recorded.exchange(
        "tools/list",
        json!({}),
        json!({"tools": [tool("a")], "nextCursor": "old"}),
    );
    recorded.exchange(
        "tools/list",
        json!({"cursor": "old"}),
        json!({"tools": [tool("b")]}),
    );
    let recording = recorded.recording();
    let server = Server::new("recorded", "7")
        .tool(Tool::new("a", async || ""))
        .tool(Tool::new("b", async || ""))
        .page_size(1);

    for era in ERAS {
        let replaying =
            Replay::new(&recording).ignore("result.tools[*].outputSchema".parse().unwrap());
        let replaying = replaying.ignore("result.tools[*].inputSchema".parse().unwrap());
        let report = replay(replaying, &server, era).await;
        assert!(!report.has_differences(), "{:?}", report.requests);
    }
}

#[tokio::test]
async fn a_cancelled_request_is_cancelled_again() {
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::without_handshake(recorded_era);
        let slow = recorded.request("tools/call", call("slow", json!({})));
        recorded.call("echo", json!({"text": "meanwhile"}), "meanwhile");
        recorded.client(json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow},
        }));
        recorded.call("echo", json!({"text": "after"}), "after");
        let dropped = Arc::new(AtomicUsize::new(0));
        let guarded = dropped.clone();
        let slow = move || {
            let guard = Guard(guarded.clone());
            async move {
                let _guard = guard;
                std::future::pending::<String>().await
            }
        };
        let server = server("hello").tool(Tool::new("slow", slow));

        let report = replay(Replay::new(&recorded.recording()), &server, era).await;

        let outcomes: Vec<&ReplayOutcome> = report.requests.iter().map(|it| &it.outcome).collect();
        let same = &ReplayOutcome::Same;
        assert_eq!(
            outcomes,
            [&ReplayOutcome::Cancelled, same, same],
            "{recorded_era:?} {era:?}"
        );
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_fails_at_its_deadline() {
    let mut recorded = Recorded::without_handshake(Era::Modern);
    recorded.call("hang", json!({}), "done");
    let hang = async || std::future::pending::<String>().await;
    let server = server("hello").tool(Tool::new("hang", hang));

    let replaying = Replay::new(&recorded.recording()).timeout(Duration::from_secs(5));
    let report = replay(replaying, &server, Era::Modern).await;

    let ReplayOutcome::Failed { why } = &report.requests[0].outcome else {
        panic!("expected a failure, got {:?}", report.requests);
    };
    assert!(why.contains("5s"), "{why}");
}

#[tokio::test]
async fn requests_that_were_in_flight_together_are_again() {
    let mut recorded = Recorded::without_handshake(Era::Legacy);
    let first = recorded.request("tools/call", call("meet", json!({})));
    let second = recorded.request("tools/call", call("meet", json!({"again": true})));
    recorded.answer(second, crate::recorded::content("met"));
    recorded.answer(first, crate::recorded::content("met"));
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let meet = move || {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            "met"
        }
    };
    let server = Server::new("recorded", "7").tool(Tool::new("meet", meet));

    let replaying = Replay::new(&recorded.recording()).pacing(Pacing::AsRecorded);
    let report = replay(replaying, &server, Era::Modern).await;

    assert!(!report.has_differences(), "{:?}", report.requests);
}

#[tokio::test]
async fn tools_that_may_change_something_are_named() {
    for era in ERAS {
        let builder = Client::in_process(&server("hello")).protocol_version(era.version());
        let connected = Replay::new(&calls(Era::Modern))
            .connect(builder)
            .await
            .unwrap();

        let writing = connected.writing_tools().await.unwrap();

        assert_eq!(writing.into_iter().collect::<Vec<_>>(), ["ask"]);
    }
}

#[tokio::test]
async fn what_has_no_recorded_answer_or_no_such_method_is_skipped() {
    let mut recorded = Recorded::without_handshake(Era::Legacy);
    recorded.exchange("tasks/list", json!({}), json!({"tasks": []}));
    recorded.request("tools/call", call("echo", json!({"text": "a"})));

    let report = replay(
        Replay::new(&recorded.recording()),
        &server("hello"),
        Era::Modern,
    )
    .await;

    let skipped = report.count(|outcome| matches!(outcome, ReplayOutcome::Skipped { .. }));
    assert_eq!(skipped, 2, "{:?}", report.requests);
    assert!(!report.has_differences());
}
