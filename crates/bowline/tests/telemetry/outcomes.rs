//! The span status, the error attributes and the durations of every outcome.

use bowline::telemetry::names::{attribute as names, metric};
use bowline::telemetry::{PayloadKind, Redaction};
use bowline::testing::matrix;
use bowline::{Client, ErrorCode, RpcError};
use opentelemetry::trace::{SpanKind, Status};
use serde_json::json;

use super::recorder::{Recorder, attribute};
use super::server;

/// What a span says about its end: `error.type`, `rpc.response.status_code`, and whether its status is an error.
type End<'a> = (&'a str, &'a str, bool);

#[tokio::test]
async fn each_outcome_has_its_error_type_on_both_sides_of_every_transport() {
    let tool_error: End<'_> = ("tool_error", "", true);
    let unknown_to_client: End<'_> = ("-32602", "-32602", true);
    // The caller is at fault: for the server it is no error.
    let unknown_to_server: End<'_> = ("", "-32602", false);
    for case in matrix() {
        let recorder = Recorder::new();
        let server = server().telemetry(recorder.telemetry());
        let connect = case.serve(&server).connect;
        let client = connect.telemetry(recorder.telemetry()).await.unwrap();
        for (tool, sent, handled) in [
            ("fail", tool_error, tool_error),
            ("missing", unknown_to_client, unknown_to_server),
            (
                "panic",
                ("-32603", "-32603", true),
                ("panic", "-32603", true),
            ),
        ] {
            let _ = client.call_tool(tool, ()).await;

            let name = format!("tools/call {tool}");
            for (kind, expected) in [(SpanKind::Client, sent), (SpanKind::Server, handled)] {
                let span = recorder.span(kind.clone(), &name).await;
                let error_type = attribute(&span, names::ERROR_TYPE);
                let code = attribute(&span, names::RPC_RESPONSE_STATUS_CODE);
                let is_error = matches!(span.status, Status::Error { .. });
                let end = (error_type.as_str(), code.as_str(), is_error);
                assert_eq!(end, expected, "{case}: {kind:?} {name}");
            }
        }
    }
}

#[tokio::test]
async fn an_error_of_a_server_is_one_for_it_and_its_message_is_the_status() {
    let recorder = Recorder::new();
    let telemetry = recorder.telemetry();
    let refuse = |_, _| async { Err(RpcError::new(ErrorCode::INTERNAL_ERROR, "no disk")) };
    let client = Client::in_process(&refuse).telemetry(telemetry);
    let client = client.protocol_version("2026-07-28").await.unwrap();

    client.request_raw("com.example/x", ()).await.unwrap_err();

    let sent = recorder.span(SpanKind::Client, "com.example/x").await;
    assert_eq!(sent.status, Status::error("no disk"));
    assert_eq!(attribute(&sent, names::ERROR_TYPE), "-32603");
}

#[tokio::test]
async fn the_durations_are_recorded_once_for_each_operation() {
    for case in matrix() {
        let recorder = Recorder::new();
        let server = server().telemetry(recorder.telemetry());
        let connect = case.serve(&server).connect;
        let client = connect.telemetry(recorder.telemetry()).await.unwrap();

        client
            .call_tool("add", json!({"a": 1, "b": 2}))
            .await
            .unwrap();
        client.call_tool("fail", ()).await.unwrap();
        recorder.span(SpanKind::Server, "tools/call fail").await;

        for name in [
            metric::CLIENT_OPERATION_DURATION,
            metric::SERVER_OPERATION_DURATION,
        ] {
            let points = recorder.points(name);
            let calls: Vec<_> = points
                .iter()
                .filter(|(it, _)| it[names::MCP_METHOD_NAME] == "tools/call")
                .map(|(it, count)| (it.get(names::ERROR_TYPE).map(String::as_str), *count))
                .collect();
            assert_eq!(calls.len(), 2, "{case}: {points:?}");
            assert!(calls.contains(&(None, 1.0)), "{case}: {points:?}");
            assert!(
                calls.contains(&(Some("tool_error"), 1.0)),
                "{case}: {points:?}"
            );
        }
    }
}

#[tokio::test]
async fn names_that_a_server_does_not_know_create_no_time_series() {
    let recorder = Recorder::new();
    let server = server().telemetry(recorder.telemetry());
    let client = Client::in_process(&server)
        .protocol_version("2026-07-28")
        .await
        .unwrap();

    for n in 0..3 {
        client
            .call_tool(format!("missing-{n}"), ())
            .await
            .unwrap_err();
        let method = format!("com.example/{n}");
        client.request_raw(method, ()).await.unwrap_err();
    }

    let points = recorder.points(metric::SERVER_OPERATION_DURATION);
    let methods = points
        .iter()
        .map(|(it, count)| (it[names::MCP_METHOD_NAME].as_str(), *count));
    let mut methods: Vec<_> = methods.collect();
    methods.sort_by(|a, b| a.0.cmp(b.0));
    assert_eq!(
        methods,
        [("_OTHER", 3.0), ("tools/call", 3.0)],
        "{points:?}"
    );
}

#[tokio::test]
async fn arguments_and_results_are_recorded_only_if_asked_for() {
    let recorder = Recorder::new();
    let silent = Client::in_process(&server())
        .telemetry(recorder.telemetry())
        .await
        .unwrap();
    let shown = recorder
        .telemetry()
        .record_payloads(Redaction::custom(|payload| {
            let is_known = payload.kind == PayloadKind::Result || payload.tool == "add";
            is_known.then(|| format!("{:?}: {}", payload.kind, payload.json.as_str().len()))
        }));
    let server = server().telemetry(shown);
    let client = Client::in_process(&server).await.unwrap();

    silent
        .call_tool("add", json!({"a": 1, "b": 2}))
        .await
        .unwrap();
    client
        .call_tool("add", json!({"a": 1, "b": 2}))
        .await
        .unwrap();

    let sent = recorder.span(SpanKind::Client, "tools/call add").await;
    assert_eq!(attribute(&sent, names::GEN_AI_TOOL_CALL_ARGUMENTS), "");
    let handled = recorder.span(SpanKind::Server, "tools/call add").await;
    let arguments = attribute(&handled, names::GEN_AI_TOOL_CALL_ARGUMENTS);
    assert_eq!(arguments, r#"Arguments: 13"#);
    assert!(attribute(&handled, names::GEN_AI_TOOL_CALL_RESULT).starts_with("Result: "));
}
