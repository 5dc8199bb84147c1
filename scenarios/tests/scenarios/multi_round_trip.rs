//! Multi round-trip requests: `input_required` results and their input responses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::Host;
use bowline::testing::ScriptedPeer;
use bowline::types::{CreateMessageResult, ElicitResult, TextContent};
use bowline::{Client, Reply, Result, testing};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::elicitation::greeting_server;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            input_responses_are_sent_with_the_unchanged_request_state,
            "elicitation:form:mode-omitted-default",
            "elicitation:form:action:accept",
        )
        .modern()
        .in_memory(),
        scenario!(
            an_input_request_that_the_host_did_not_declare_fails_the_call,
            "elicitation:capability:mode-mismatch",
            "elicitation:form:not-supported",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_tool_use_without_a_tool_result_fails_the_call,
            "sampling:tool-use:result-balance",
            "sampling:tool-result:no-mixed-content",
        )
        .modern()
        .in_memory(),
        scenario!(
            an_empty_elicitation_capability_gets_a_form,
            "elicitation:capability:empty-is-form",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_timed_out_probe_is_not_cancelled,
            "protocol:cancel:initialize-not-cancellable",
        )
        .modern()
        .in_memory(),
    ]
}

/// An `input_required` result with this input request.
fn input_required(method: &str, params: Value) -> Value {
    let question = json!({"method": method, "params": params});
    json!({"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "sealed/ü"})
}

fn form() -> Value {
    json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}})
}

/// Calls a tool whose first round returns this result.
async fn first_round(
    client: &Client,
    server: &mut ScriptedPeer,
    result: Value,
) -> tokio::task::JoinHandle<Result<Reply>> {
    let call = tokio::spawn(client.call_tool("t", json!({"a": 1})).into_future());
    server.expect("tools/call").await.answer(result);
    call
}

async fn input_responses_are_sent_with_the_unchanged_request_state(env: ScenarioEnv) {
    let host = Host::new().elicitation(async |form| {
        assert_eq!(form.message, "Who?");
        ElicitResult::accept(json!({"name": "Ada"}))
    });
    let (client, mut server) = env.scripted_server(|connect| connect.host(host)).await;

    let call = first_round(
        &client,
        &mut server,
        input_required("elicitation/create", form()),
    )
    .await;
    let second = server.expect("tools/call").await;
    let params = second.params().clone();
    second
        .answer(json!({"resultType": "complete", "content": [{"type": "text", "text": "Hello."}]}));

    assert_eq!(call.await.unwrap().unwrap().text(), "Hello.");
    assert_eq!(
        (&params["name"], &params["arguments"]),
        (&json!("t"), &json!({"a": 1}))
    );
    assert_eq!(params["requestState"], "sealed/ü");
    let answer = json!({"q": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(params["inputResponses"], answer);
}

async fn an_input_request_that_the_host_did_not_declare_fails_the_call(env: ScenarioEnv) {
    let url = json!({"mode": "url", "message": "There", "url": "https://example.com"});
    let only_forms = Host::new().elicitation(async |_| panic!("the host received a request"));
    for (host, question) in [(Host::new(), form()), (only_forms, url)] {
        let (client, mut server) = env.scripted_server(|connect| connect.host(host)).await;

        let call = first_round(
            &client,
            &mut server,
            input_required("elicitation/create", question),
        )
        .await;

        let outcome = call.await.unwrap();
        assert!(outcome.is_err(), "{outcome:?}");
        server.expect_nothing().await;
    }
}

async fn a_tool_use_without_a_tool_result_fails_the_call(env: ScenarioEnv) {
    let used = json!({"type": "tool_use", "id": "1", "name": "weather", "input": {}});
    let params = json!({
        "messages": [{"role": "assistant", "content": [used]}],
        "maxTokens": 10,
        "tools": [{"name": "weather", "inputSchema": {"type": "object"}}],
    });
    let calls = Arc::new(Mutex::new(0));
    let count = calls.clone();
    let host = Host::new().sampling_tools().sampling(move |_| {
        *count.lock().unwrap() += 1;
        async { Ok(CreateMessageResult::new("m-1", TextContent::new("x"))) }
    });
    let (client, mut server) = env.scripted_server(|connect| connect.host(host)).await;

    let call = first_round(
        &client,
        &mut server,
        input_required("sampling/createMessage", params),
    )
    .await;

    let outcome = call.await.unwrap();
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(*calls.lock().unwrap(), 0);
    server.expect_nothing().await;
}

async fn an_empty_elicitation_capability_gets_a_form(env: ScenarioEnv) {
    let mut client = env.scripted_client(&greeting_server(), json!({})).await;
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});

    let params = json!({"name": "greet", "_meta": meta});
    client.request(env.dialect(), "1", "tools/call", params.clone());
    let first = client.next_message().await["result"].clone();
    let question = &first["inputRequests"]["name"];
    let mut retry = params;
    retry["requestState"] = first["requestState"].clone();
    retry["inputResponses"] = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    client.request(env.dialect(), "2", "tools/call", retry);

    assert_eq!(first["resultType"], "input_required");
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Who are you?");
    let second = client.next_message().await;
    assert_eq!(
        second["result"]["content"][0]["text"], "Hello, Ada!",
        "{second}"
    );
}

async fn a_timed_out_probe_is_not_cancelled(_: ScenarioEnv) {
    let (wire, mut server) = testing::scripted_peer();
    let connect = Client::from_wire(wire).probe_timeout(Duration::from_secs(1));
    let connecting = tokio::spawn(connect.into_future());

    let _ = server.expect("server/discover").await.hold();
    server.accept_handshake("2025-11-25", json!({})).await;

    assert!(connecting.await.unwrap().is_ok());
}
