//! Requests, their answers and their notifications.

use std::sync::mpsc;
use std::time::Duration;

use bowline::types::LoggingLevel;
use bowline::{Error, ErrorCode};
use serde_json::{Value, json};

use crate::recorded::{ERAS, Era, PAIRS, Recorded, builder, call, connect, content};

#[tokio::test]
async fn a_call_is_answered_like_the_recorded_one_in_every_pair_of_eras() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        recorded.call("add", json!({"a": 1, "b": 2}), "3");
        recorded.call("add", json!({"a": 2, "b": 2}), "4");
        let mock = recorded.mock();

        let client = connect(&mock, era).await;
        let four = client
            .call_tool("add", json!({"b": 2, "a": 2}))
            .await
            .unwrap();
        let three = client
            .call_tool("add", json!({"a": 1, "b": 2}))
            .await
            .unwrap();

        assert_eq!(
            (four.text(), three.text()),
            ("4".into(), "3".into()),
            "{recorded_era:?} {era:?}"
        );
        assert!(mock.unmatched().is_empty());
    }
}

#[tokio::test]
async fn a_mock_introduces_itself_as_the_recorded_server() {
    for (recorded_era, era) in PAIRS {
        let mock = Recorded::new(recorded_era).mock();

        let client = connect(&mock, era).await;
        client.ping().await.ok();
        let server = client.server();

        // A modern client in process sends no request before it needs to.
        if let Some(server) = server {
            assert_eq!(server.instructions.as_deref(), Some("Be kind."));
            assert!(server.capabilities.tools.is_some());
        }
        let info = client.server_info();
        assert!(
            info.is_none_or(|info| info.name == "recorded"),
            "{recorded_era:?} {era:?}"
        );
        assert_eq!(client.dialect().version, era.version());
    }
}

#[tokio::test]
async fn an_unknown_version_is_negotiated_with_what_the_mock_serves() {
    let mut recorded = Recorded::new(Era::Legacy);
    recorded.call("now", json!({}), "noon");

    let client = bowline::Client::in_process(&recorded.mock()).await.unwrap();

    assert_eq!(client.dialect().version, "2026-07-28");
    let server = client.server().unwrap();
    assert_eq!(server.supported_versions.len(), 5);
    assert_eq!(client.server_info().unwrap().name, "recorded");
    assert_eq!(client.call_tool("now", ()).await.unwrap().text(), "noon");
}

#[tokio::test]
async fn equal_requests_are_answered_in_their_order_and_the_last_answer_repeats() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        for text in ["one", "two", "three"] {
            recorded.call("next", json!({}), text);
        }
        let mock = recorded.mock();

        for _connection in 0..2 {
            let client = connect(&mock, era).await;
            for expected in ["one", "two", "three", "three", "three"] {
                let next = client.call_tool("next", ()).await.unwrap();
                assert_eq!(next.text(), expected, "{recorded_era:?} {era:?}");
            }
        }
    }
}

#[tokio::test]
async fn errors_are_those_of_the_recording() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        let id = recorded.request("tools/call", call("boom", json!({})));
        recorded.refuse(
            id,
            json!({"code": -32000, "message": "boom", "data": {"why": "fixture"}}),
        );
        let failed = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
        recorded.exchange("tools/call", call("fail", json!({})), failed);
        let mock = recorded.mock();

        let client = connect(&mock, era).await;
        let Err(Error::Rpc(boom)) = client.call_tool("boom", ()).await else {
            panic!("expected a JSON-RPC error");
        };
        let fail = client.call_tool("fail", ()).await.unwrap();

        assert_eq!(
            (boom.code, boom.message.as_str()),
            (ErrorCode(-32000), "boom")
        );
        let data: Value = boom.data.unwrap().decode().unwrap();
        assert_eq!(data, json!({"why": "fixture"}));
        assert!(fail.is_error() && fail.text() == "no");
    }
}

#[tokio::test]
async fn a_missing_resource_has_the_code_of_the_clients_version() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        let id = recorded.request("resources/read", json!({"uri": "a://b"}));
        let code = match recorded_era {
            Era::Modern => -32602,
            Era::Legacy => -32002,
        };
        let error = json!({"code": code, "message": "not found", "data": {"uri": "a://b"}});
        recorded.refuse(id, error);

        // As on a wire: in process a client gets the internal code.
        let (near, far) = bowline::wire::memory();
        tokio::spawn(recorded.mock().wire().serve(far));
        let client = bowline::Client::from_wire(near).protocol_version(era.version());
        let client = client.connection().await.unwrap();
        let request = bowline::exchange::Request::new(
            "resources/read",
            bowline::Json::from(json!({"uri": "a://b"})),
            client.caller(),
        );
        let options = bowline::exchange::CallOptions::default();
        let answer = bowline::exchange::Channel::open(&client, request, options)
            .answer()
            .await;

        let Err(Error::Rpc(error)) = answer else {
            panic!("expected a JSON-RPC error, got {answer:?}");
        };
        // The client maps the code of its version back.
        assert_eq!(
            error.code,
            ErrorCode::RESOURCE_NOT_FOUND,
            "{recorded_era:?} {era:?}"
        );
    }
}

#[tokio::test]
async fn progress_has_the_token_of_the_client() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        let mut params = call("count", json!({}));
        params["_meta"]["progressToken"] = json!("recorded token");
        let id = recorded.request("tools/call", params);
        for progress in 1..=3 {
            recorded.server(json!({
                "jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": "recorded token", "progress": progress, "total": 3},
            }));
        }
        recorded.answer(id, content("counted"));
        let mock = recorded.mock();

        let client = connect(&mock, era).await;
        let (sender, reports) = mpsc::channel();
        let counting = client.call_tool("count", ());
        let counting = counting.on_progress(move |report| {
            let _ = sender.send(report.progress);
        });
        let counted = counting.await.unwrap();
        let silent = client.call_tool("count", ()).await.unwrap();

        assert_eq!(
            (counted.text(), silent.text()),
            ("counted".into(), "counted".into())
        );
        let reports: Vec<f64> = reports.try_iter().collect();
        assert_eq!(reports, [1.0, 2.0, 3.0], "{recorded_era:?} {era:?}");
    }
}

#[tokio::test]
async fn log_messages_are_sent_by_their_level() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        let id = recorded.request("tools/call", call("work", json!({})));
        for level in ["debug", "warning"] {
            recorded.server(json!({
                "jsonrpc": "2.0", "method": "notifications/message",
                "params": {"level": level, "data": format!("a {level}")},
            }));
        }
        recorded.answer(id, content("done"));
        let mock = recorded.mock();

        let (sender, logs) = mpsc::channel();
        let client = builder(&mock, era)
            .log_level(LoggingLevel::Info)
            .on_log(move |log| drop(sender.send(log.data.as_str().to_owned())));
        let client = client.await.unwrap();
        client.call_tool("work", ()).await.unwrap();

        // Delivered by a task of the client.
        let log = tokio::task::spawn_blocking(move || {
            let first = logs.recv_timeout(Duration::from_secs(30));
            (first, logs.try_recv())
        });
        let (first, second) = log.await.unwrap();
        assert_eq!(
            first.as_deref(),
            Ok("\"a warning\""),
            "{recorded_era:?} {era:?}"
        );
        assert!(second.is_err());
    }
}

#[tokio::test]
async fn what_was_never_recorded_gets_an_error_that_names_the_nearest() {
    for era in ERAS {
        let mut recorded = Recorded::new(Era::Modern);
        recorded.call("add", json!({"a": 1, "b": 2}), "3");
        let mock = recorded.mock();

        let client = connect(&mock, era).await;
        let Err(Error::Rpc(error)) = client.call_tool("add", json!({"a": 1, "b": 7})).await else {
            panic!("expected a JSON-RPC error");
        };
        let Err(Error::Rpc(unknown)) = client.request_raw("resources/list", ()).await else {
            panic!("expected a JSON-RPC error");
        };

        assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
        assert!(
            error.message.ends_with("which differs in arguments.b"),
            "{}",
            error.message
        );
        assert_eq!(unknown.code, ErrorCode::METHOD_NOT_FOUND);
        let unmatched = mock.unmatched();
        assert_eq!(unmatched.len(), 2);
        assert_eq!(unmatched[0].message, error.message);
        assert_eq!(unmatched[0].method, "tools/call");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_not_answered() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        let id = recorded.request("tools/call", call("slow", json!({})));
        recorded.client(json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        }));
        recorded.request("tools/call", call("hung", json!({})));
        recorded.call("fast", json!({}), "done");
        let mock = recorded.mock();

        let client = connect(&mock, era).await;
        for tool in ["slow", "hung"] {
            let minute = Duration::from_secs(60);
            let slow = client.call_tool(tool, ()).timeout(minute).await;
            assert!(matches!(slow, Err(Error::Timeout { .. })), "{slow:?}");
        }
        assert_eq!(client.call_tool("fast", ()).await.unwrap().text(), "done");
    }
}

#[tokio::test]
async fn a_recording_that_begins_after_the_handshake_is_served() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::without_handshake(recorded_era);
        recorded.call("now", json!({}), "noon");

        let client = connect(&recorded.mock(), era).await;

        assert_eq!(client.call_tool("now", ()).await.unwrap().text(), "noon");
        let server = client.server();
        assert!(server.is_none_or(|server| server.capabilities.tools.is_some()));
    }
}
