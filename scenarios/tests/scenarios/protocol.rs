//! Requests and answers: ids, notifications, errors and `_meta`.

use bowline::types::Meta;
use bowline::{CallToolResult, Context, Error, ErrorCode, Json, Server, Tool};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{anything, echo, hang, hanging, refusal, tools};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            no_two_requests_have_the_same_id,
            "protocol:request-id:unique"
        )
        .in_memory(),
        scenario!(
            a_caller_may_choose_the_id_of_a_request,
            "protocol:request-id:caller-supplied",
        ),
        scenario!(
            a_notification_is_never_answered,
            "protocol:notifications:no-response"
        )
        .in_memory(),
        scenario!(
            the_end_of_the_connection_fails_every_call,
            "protocol:error:connection-closed",
        )
        .in_memory(),
        scenario!(
            a_handler_that_panics_is_an_internal_error_without_its_words,
            "protocol:error:internal-error",
        ),
        scenario!(
            params_of_the_wrong_shape_are_refused,
            "protocol:error:invalid-params"
        ),
        scenario!(
            a_method_that_nobody_knows_is_refused,
            "protocol:error:method-not-found"
        ),
        scenario!(
            what_accompanies_a_result_reaches_the_caller,
            "meta:result-to-client"
        ),
    ]
}

async fn no_two_requests_have_the_same_id(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;

    for _ in 0..3 {
        tools(&client).await;
    }
    let (one, two) = (client.call_tool("echo", ()), client.call_tool("echo", ()));
    let (one, two) = tokio::join!(one, two);

    assert!(one.is_ok() && two.is_ok());
    let sent = world.tapped().unwrap().sent();
    let requests = sent.iter().filter(|frame| {
        frame["method"]
            .as_str()
            .is_some_and(|it| !it.starts_with("notifications/"))
    });
    let mut ids: Vec<String> = requests.map(|frame| frame["id"].to_string()).collect();
    let count = ids.len();
    assert!(ids.iter().all(|id| id != "null"), "{ids:?}");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

async fn a_caller_may_choose_the_id_of_a_request(world: World) {
    let id = Tool::raw("id", anything(), async |_, cx: Context| {
        Ok(CallToolResult::text(cx.request_id().to_string()))
    });
    let client = world.connect(&Server::new("s", "1").tool(id)).await;

    let call = client.call_tool("id", ()).id("chosen").start();
    let known_before = call.id().cloned();
    let reply = call.await.unwrap();

    assert_eq!(known_before, Some("chosen".into()));
    assert_eq!(reply.text(), r#""chosen""#);
}

async fn a_notification_is_never_answered(world: World) {
    let mut client = world
        .scripted_client(&Server::new("s", "1").tool(echo("echo")), json!({}))
        .await;

    client.notify("notifications/nobody-knows-this", json!({"a": 1}));
    client.notify("notifications/cancelled", json!({"requestId": 99}));
    client.notify("notifications/cancelled", json!({"nonsense": true}));
    client.request(world.dialect(), "next", "tools/list", json!({}));

    assert_eq!(client.hear().await["id"], "next");
    client.expect_nothing().await;
}

async fn the_end_of_the_connection_fails_every_call(world: World) {
    let client = world.connect(&hanging()).await;
    let (one, two) = (hang(&client).await, hang(&client).await);

    world.tapped().unwrap().cut();

    for call in [one, two] {
        let error = call.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Transport { .. } | Error::Closed),
            "{error:?}"
        );
    }
    let next = client.call_tool("echo", ()).await.unwrap_err();
    assert!(
        matches!(next, Error::Transport { .. } | Error::Closed),
        "{next:?}"
    );
}

async fn a_handler_that_panics_is_an_internal_error_without_its_words(world: World) {
    let panics = Tool::raw("panics", anything(), async |_, _| {
        panic!("the password is 1234")
    });
    let client = world
        .connect(&Server::new("s", "1").tool(panics).tool(echo("echo")))
        .await;

    let error = refusal(client.call_tool("panics", ()).await);
    let next = client.call_tool("echo", ()).await;

    assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);
    assert!(!format!("{error:?}").contains("1234"), "{error:?}");
    assert!(next.is_ok());
}

async fn params_of_the_wrong_shape_are_refused(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;

    for params in [
        json!({}),
        json!({"name": 7}),
        json!({"name": "echo", "arguments": [1]}),
    ] {
        let error = refusal(client.raw("tools/call", params.clone()).await);
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{params}");
    }
}

async fn a_method_that_nobody_knows_is_refused(world: World) {
    let client = world
        .connect(&Server::new("s", "1").tool(echo("echo")))
        .await;

    for method in ["nobody/knows", "prompts/list", "resources/read"] {
        let error = refusal(client.raw(method, json!({})).await);
        assert_eq!(error.code, ErrorCode::METHOD_NOT_FOUND, "{method}");
    }
}

async fn what_accompanies_a_result_reaches_the_caller(world: World) {
    let noted = Tool::raw("noted", anything(), async |_, _| {
        let mut result = CallToolResult::text("done");
        let mut meta = Meta::default();
        meta.insert("example.com/cost", Json::from(json!(3)));
        result.meta = Some(meta);
        Ok(result)
    });
    let client = world.connect(&Server::new("s", "1").tool(noted)).await;

    let reply = client.call_tool("noted", ()).await.unwrap();

    let cost: Value = reply
        .meta()
        .unwrap()
        .get("example.com/cost")
        .unwrap()
        .decode()
        .unwrap();
    assert_eq!(cost, json!(3));
}
