//! Requests that need input where a server cannot ask: each round is a request of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::Host;
use bowline::testing::Scripted;
use bowline::types::{CreateMessageResult, ElicitResult, TextContent};
use bowline::{Client, Reply, Result, testing};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::elicitation::greeting;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            the_answers_go_back_with_the_state_as_it_came,
            "elicitation:form:mode-omitted-default",
            "elicitation:form:action:accept",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_question_that_the_host_did_not_declare_fails_the_call,
            "elicitation:capability:mode-mismatch",
            "elicitation:form:not-supported",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_use_of_a_tool_without_its_result_fails_the_call,
            "sampling:tool-use:result-balance",
            "sampling:tool-result:no-mixed-content",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_request_that_names_no_kind_of_question_is_asked_by_a_form,
            "elicitation:capability:empty-is-form",
        )
        .modern()
        .in_memory(),
        scenario!(
            a_probe_that_is_given_up_is_not_cancelled,
            "protocol:cancel:initialize-not-cancellable",
        )
        .modern()
        .in_memory(),
    ]
}

/// What a server answers that wants to know this first.
fn asks(method: &str, params: Value) -> Value {
    let question = json!({"method": method, "params": params});
    json!({"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "sealed/ü"})
}

fn form() -> Value {
    json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}})
}

/// Has a tool called whose first round asks this.
async fn first_round(
    client: &Client,
    server: &mut Scripted,
    asks: Value,
) -> tokio::task::JoinHandle<Result<Reply>> {
    let call = tokio::spawn(client.call_tool("t", json!({"a": 1})).into_future());
    server.expect("tools/call").await.answer(asks);
    call
}

async fn the_answers_go_back_with_the_state_as_it_came(world: World) {
    let host = Host::new().elicitation(async |form| {
        assert_eq!(form.message, "Who?");
        ElicitResult::accept(json!({"name": "Ada"}))
    });
    let (client, mut server) = world
        .scripted_server(json!({}), |connect| connect.host(host))
        .await;

    let call = first_round(&client, &mut server, asks("elicitation/create", form())).await;
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

async fn a_question_that_the_host_did_not_declare_fails_the_call(world: World) {
    let url = json!({"mode": "url", "message": "There", "url": "https://example.com"});
    let only_forms = Host::new().elicitation(async |_| panic!("the host was asked"));
    for (host, question) in [(Host::new(), form()), (only_forms, url)] {
        let (client, mut server) = world
            .scripted_server(json!({}), |connect| connect.host(host))
            .await;

        let call = first_round(&client, &mut server, asks("elicitation/create", question)).await;

        let outcome = call.await.unwrap();
        assert!(outcome.is_err(), "{outcome:?}");
        server.expect_nothing().await;
    }
}

async fn a_use_of_a_tool_without_its_result_fails_the_call(world: World) {
    let used = json!({"type": "tool_use", "id": "1", "name": "weather", "input": {}});
    let params = json!({
        "messages": [{"role": "assistant", "content": [used]}],
        "maxTokens": 10,
        "tools": [{"name": "weather", "inputSchema": {"type": "object"}}],
    });
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let host = Host::new().sampling_tools().sampling(move |_| {
        *count.lock().unwrap() += 1;
        async { Ok(CreateMessageResult::new("m-1", TextContent::new("x"))) }
    });
    let (client, mut server) = world
        .scripted_server(json!({}), |connect| connect.host(host))
        .await;

    let call = first_round(&client, &mut server, asks("sampling/createMessage", params)).await;

    let outcome = call.await.unwrap();
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(*asked.lock().unwrap(), 0);
    server.expect_nothing().await;
}

async fn a_request_that_names_no_kind_of_question_is_asked_by_a_form(world: World) {
    let mut client = world.scripted_client(&greeting(), json!({})).await;
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});

    let params = json!({"name": "greet", "_meta": meta});
    client.request(world.dialect(), "1", "tools/call", params.clone());
    let first = client.hear().await["result"].clone();
    let question = &first["inputRequests"]["name"];
    let mut retry = params;
    retry["requestState"] = first["requestState"].clone();
    retry["inputResponses"] = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    client.request(world.dialect(), "2", "tools/call", retry);

    assert_eq!(first["resultType"], "input_required");
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Who are you?");
    let second = client.hear().await;
    assert_eq!(
        second["result"]["content"][0]["text"], "Hello, Ada!",
        "{second}"
    );
}

async fn a_probe_that_is_given_up_is_not_cancelled(_: World) {
    let (wire, mut server) = testing::scripted();
    let connect = Client::over(wire).probe_timeout(Duration::from_secs(1));
    let connecting = tokio::spawn(connect.into_future());

    let _ = server.expect("server/discover").await.hold();
    server.shake_hands("2025-11-25", json!({})).await;

    assert!(connecting.await.unwrap().is_ok());
}
