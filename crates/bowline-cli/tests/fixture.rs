//! The contract of the fixture, in both eras, in process and over a wire.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, too"
)]

use std::sync::{Arc, Mutex};

use bowline::client::{Change, ChangeFilter, Host};
use bowline::types::{
    ContentBlock, CreateMessageResult, ElicitAction, ElicitResult, LoggingLevel, PromptReference,
    ResourceContents, TextContent,
};
use bowline::{Client, Error, ErrorCode, wire};
use bowline_cli::fixture::Fixture;
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// Returns the user's answer to an elicitation.
type UserAnswer = fn() -> ElicitResult;

/// Connects a client in each era, in process and over a wire; its user is called Ada, and its model says yes.
async fn clients(fixture: &Fixture) -> Vec<Client> {
    clients_with_user(fixture, || ElicitResult::accept(json!({"name": "Ada"}))).await
}

async fn clients_with_user(fixture: &Fixture, answers: UserAnswer) -> Vec<Client> {
    let mut clients = Vec::new();
    for version in [MODERN, LEGACY] {
        let (near, far) = wire::memory();
        tokio::spawn(fixture.server().serve(far));
        for connect in [
            Client::in_process(&fixture.server()),
            Client::from_wire(near),
        ] {
            let host = Host::new()
                .elicitation(move |_| async move { answers() })
                .sampling(async |_| Ok(CreateMessageResult::new("m-1", TextContent::new("yes"))));
            clients.push(connect.protocol_version(version).host(host).await.unwrap());
        }
    }
    clients
}

async fn text(client: &Client, tool: &str, arguments: Value) -> String {
    let reply = client.call_tool(tool, arguments).await.unwrap();
    assert!(!reply.is_error(), "{reply:?}");
    reply.text()
}

#[tokio::test]
async fn everything_that_the_contract_names_is_listed() {
    for client in clients(&Fixture::new()).await {
        let tools = client.list_tools().await.unwrap();
        let resources = client.list_resources().await.unwrap();

        let mut names: Vec<String> = tools.into_iter().map(|tool| tool.name).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "add",
                "ask",
                "boom",
                "echo",
                "fail",
                "log",
                "progress",
                "reset",
                "sample",
                "set_extra",
                "slow",
                "stats",
                "touch"
            ]
        );
        let uris: Vec<String> = resources.into_iter().map(|it| it.uri).collect();
        assert_eq!(uris, ["fixture://counter", "fixture://static"]);
    }
}

#[tokio::test]
async fn echo_returns_its_argument_unchanged() {
    for client in clients(&Fixture::new()).await {
        for sent in ["", "two\nlines", "héllo 👋", &"x".repeat(100_000)] {
            assert_eq!(text(&client, "echo", json!({"text": sent})).await, sent);
        }
    }
}

#[tokio::test]
async fn numbers_are_added_and_only_numbers() {
    for client in clients(&Fixture::new()).await {
        let sum = client.call_tool("add", json!({"a": 2, "b": -5})).await;
        let wrong = client.call_tool("add", json!({"a": "two", "b": 5})).await;

        let sum = sum.unwrap();
        assert_eq!(sum.text(), "-3");
        assert_eq!(sum.structured::<i64>().unwrap(), -3);
        let structured = sum.tool_result().unwrap().structured_content.unwrap();
        assert_eq!(structured.as_str(), r#"{"result":-3}"#);
        match wrong {
            Ok(reply) => assert!(reply.is_error()),
            Err(Error::Rpc(error)) => assert_eq!(error.code, ErrorCode::INVALID_PARAMS),
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_calls_are_counted_once_each_and_reset_on_demand() {
    for version in [MODERN, LEGACY] {
        let fixture = Fixture::new();
        let client = Client::in_process(&fixture.server()).protocol_version(version);
        let client = client.await.unwrap();
        let mut call = client.call_tool("slow", json!({"seconds": 5})).start();
        let mut counts = fixture.counters().watch();
        tokio::select! {
            reply = &mut call => panic!("{reply:?}"),
            started = counts.wait_for(|counts| counts.started == 1) => drop(started),
        }

        drop(call);
        assert_eq!(
            text(&client, "slow", json!({"seconds": 0.5})).await,
            "slept"
        );

        let stats = client.call_tool("stats", ()).await.unwrap();
        let counted: Value = stats.structured().unwrap();
        let mirrored: Value = serde_json::from_str(&stats.text()).unwrap();
        assert_eq!(counted, mirrored);
        assert_eq!(counted["started"], 2);
        assert_eq!(counted["finished"], 1);
        assert_eq!(counted["cancelled"], 1);
        assert_eq!(counted["active"], 0);
        assert_eq!(text(&client, "reset", json!({})).await, "ok");
        assert_eq!(fixture.counters().counts().started, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn progress_arrives_before_the_result_and_only_if_requested() {
    for client in clients(&Fixture::new()).await {
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = received.clone();

        let wanted = client
            .call_tool("progress", json!({"n": 3}))
            .on_progress(move |report| {
                let report = (report.progress, report.total, report.message);
                sink.lock().unwrap().push(report);
            })
            .await
            .unwrap();
        let received = std::mem::take(&mut *received.lock().unwrap());
        let unwanted = text(&client, "progress", json!({"n": 3})).await;

        let step = |at: f64| (at, Some(3.0), Some(format!("step {at}")));
        assert_eq!(received, [step(1.0), step(2.0), step(3.0)]);
        assert!(wanted.text().contains('3'));
        assert_eq!(unwanted, wanted.text());
    }
}

#[tokio::test]
async fn the_user_may_accept_decline_or_cancel() {
    let answers: [(UserAnswer, &str); 3] = [
        (
            || ElicitResult::accept(json!({"name": "Ada"})),
            "accepted:Ada",
        ),
        (|| ElicitResult::new(ElicitAction::Decline), "declined"),
        (|| ElicitResult::new(ElicitAction::Cancel), "cancelled"),
    ];
    for (answer, expected) in answers {
        for client in clients_with_user(&Fixture::new(), answer).await {
            assert_eq!(text(&client, "ask", json!({})).await, expected);
        }
    }
}

#[tokio::test]
async fn ask_fails_promptly_without_the_elicitation_capability() {
    let fixture = Fixture::new();
    for version in [MODERN, LEGACY, "2025-03-26", "2024-11-05"] {
        let client = Client::in_process(&fixture.server()).protocol_version(version);
        let client = client.await.unwrap();

        match client.call_tool("ask", json!({"prompt": "Who?"})).await {
            Ok(reply) => assert!(reply.is_error(), "{version}"),
            Err(error) => assert!(matches!(error, Error::Rpc(_)), "{version}: {error}"),
        }
    }
}

#[tokio::test]
async fn sample_returns_the_message_of_the_model() {
    for client in clients(&Fixture::new()).await {
        let sampled = text(&client, "sample", json!({"prompt": "Well?"})).await;

        assert_eq!(sampled, "sampled:yes");
    }
}

#[tokio::test]
async fn log_messages_below_the_level_of_the_client_are_not_sent() {
    for version in [MODERN, LEGACY] {
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = received.clone();
        let client = Client::in_process(&Fixture::new().server())
            .protocol_version(version)
            .on_log(move |message| {
                let data: String = message.data.decode().unwrap();
                sink.lock().unwrap().push((message.logger.unwrap(), data));
            })
            .await
            .unwrap();

        for (level, expected) in [
            (
                LoggingLevel::Info,
                &["at info", "at warning", "at error"][..],
            ),
            (LoggingLevel::Error, &["at error"]),
        ] {
            client.set_log_level(level).await.unwrap();
            text(&client, "log", json!({})).await;

            let received = std::mem::take(&mut *received.lock().unwrap());
            let expected = expected.iter().map(|data| ("fixture", *data));
            let received = received.iter().map(|(logger, data)| (&**logger, &**data));
            assert!(received.eq(expected), "{version} {level:?}");
        }
    }
}

#[tokio::test]
async fn set_extra_changes_the_list_of_tools_and_announces_it() {
    for client in clients(&Fixture::new()).await {
        let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

        for present in [true, false] {
            text(&client, "set_extra", json!({"present": present})).await;

            assert_eq!(changes.next().await.unwrap(), Some(Change::Tools));
            let tools = client.list_tools().await.unwrap();
            assert_eq!(tools.iter().any(|tool| tool.name == "extra"), present);
            let called = client.call_tool("extra", ()).skip_capability_check().await;
            assert_eq!(called.is_ok_and(|reply| reply.text() == "extra"), present);
        }
    }
}

#[tokio::test]
async fn the_argument_of_greet_is_completed() {
    for client in clients(&Fixture::new()).await {
        let completion = client.complete(PromptReference::new("greet"), "name", "A");

        assert_eq!(completion.await.unwrap().values, ["Ada", "Alan"]);
    }
}

#[tokio::test]
async fn touch_notifies_the_subscribers_of_that_resource_only() {
    for client in clients(&Fixture::new()).await {
        let mut changes = client
            .subscribe(ChangeFilter::new().resource("fixture://counter"))
            .await
            .unwrap();
        let before: u64 = read(&client, "fixture://counter").await.parse().unwrap();

        text(&client, "touch", json!({"uri": "fixture://static"})).await;
        let touched = text(&client, "touch", json!({})).await;

        assert_eq!(touched, (before + 2).to_string());
        assert_eq!(
            changes.next().await.unwrap(),
            Some(Change::Resource("fixture://counter".to_owned()))
        );
        assert_eq!(read(&client, "fixture://counter").await, touched);
    }
}

#[tokio::test]
async fn fail_returns_a_tool_error_and_boom_a_json_rpc_error() {
    for client in clients(&Fixture::new()).await {
        let failed = client.call_tool("fail", json!({"message": "why not"}));
        let failed = failed.await.unwrap();
        let boom = client.call_tool("boom", ()).await.unwrap_err();
        let unknown = client.request_raw("no/such/method", ()).await.unwrap_err();

        assert!(failed.is_error() && failed.text().contains("why not"));
        let Error::Rpc(boom) = boom else {
            panic!("{boom}")
        };
        assert_eq!(boom.code, ErrorCode(-32000));
        assert!(boom.message.contains("boom"));
        let why: Value = boom.data.unwrap().decode().unwrap();
        assert_eq!(why, json!({"why": "fixture"}));
        let Error::Rpc(unknown) = unknown else {
            panic!("{unknown}")
        };
        assert_eq!(unknown.code, ErrorCode::METHOD_NOT_FOUND);
    }
}

#[tokio::test]
async fn resources_and_prompts_have_the_contents_of_the_contract() {
    for client in clients(&Fixture::new()).await {
        assert_eq!(read(&client, "fixture://static").await, "static");
        assert_eq!(read(&client, "fixture://item/7").await, "item 7");
        assert!(client.read_resource("fixture://none").await.is_err());
        let prompt = client.get_prompt("greet", json!({"name": "Ada"}));
        let prompt = prompt.await.unwrap();
        let ContentBlock::Text(greeting) = &prompt.messages[0].content else {
            panic!("{prompt:?}")
        };
        assert_eq!(greeting.text, "Hello, Ada!");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_run_concurrently_and_get_their_own_results() {
    for client in clients(&Fixture::new()).await {
        let begun = tokio::time::Instant::now();
        let slow: Vec<_> = (0..8)
            .map(|_| client.call_tool("slow", json!({"seconds": 0.5})).start())
            .map(tokio::spawn)
            .collect();
        let echoes: Vec<_> = (0..200)
            .map(|at| client.call_tool("echo", json!({"text": at.to_string()})))
            .map(|call| tokio::spawn(call.start()))
            .collect();

        for (at, echo) in echoes.into_iter().enumerate() {
            assert_eq!(echo.await.unwrap().unwrap().text(), at.to_string());
        }
        for slow in slow {
            assert_eq!(slow.await.unwrap().unwrap().text(), "slept");
        }
        assert!(begun.elapsed().as_secs_f64() < 2.5);
    }
}

async fn read(client: &Client, uri: &str) -> String {
    let read = client.read_resource(uri).bypass_cache().await.unwrap();
    match &read.contents[0] {
        ResourceContents::Text(contents) => contents.text.clone(),
        other @ ResourceContents::Blob(_) => panic!("{other:?}"),
    }
}
