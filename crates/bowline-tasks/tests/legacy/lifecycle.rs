//! Tasks from their creation to their result.

use bowline::{Context, Server, Tool, ToolError};
use bowline_tasks::{TaskSettings, Tasks};
use bowline_types::{ErrorCode, RpcError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use crate::support::{RELATED_TASK, SECOND, TestClient, names, server, store, works_for};

fn settings() -> TaskSettings {
    TaskSettings::new()
}

#[tokio::test(start_paused = true)]
async fn a_call_with_task_becomes_a_task_whose_result_is_fetched() {
    let works = works_for(2 * SECOND).with_settings(settings());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;

    let created = client.call_as_task("works", json!({})).await.unwrap();
    assert_eq!(names(&created), ["task"]);
    let task = &created["task"];
    let id = task["taskId"].as_str().unwrap();
    let working = json!({
        "taskId": id,
        "status": "working",
        "createdAt": "2026-07-28T12:00:00.000Z",
        "lastUpdatedAt": "2026-07-28T12:00:00.000Z",
        "ttl": 3_600_000,
        "pollInterval": 1000,
    });
    assert_eq!(*task, working);
    assert_eq!(client.get(id).await.unwrap(), working);

    // Waits until the task is finished.
    let result = client.result(id).await.unwrap();
    assert_eq!(
        result,
        json!({
            "content": [{"type": "text", "text": "worked"}],
            "_meta": {RELATED_TASK: {"taskId": id}},
        })
    );
    let done = client.get(id).await.unwrap();
    assert_eq!(done["status"], "completed");
    assert_eq!(done["lastUpdatedAt"], "2026-07-28T12:00:02.000Z");
    assert_eq!(names(&done), names(&working));
    // It can be fetched again.
    assert_eq!(client.result(id).await.unwrap(), result);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_task_runs_as_usual() {
    let works = works_for(2 * SECOND).with_settings(settings());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;

    let result = client.call("works").await.unwrap();
    assert_eq!(
        result,
        json!({"content": [{"type": "text", "text": "worked"}]})
    );
    let params = json!({"name": "works", "task": null});
    let result = client.request("tools/call", params).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}

#[tokio::test(start_paused = true)]
async fn the_client_decides_and_not_the_settings_of_the_tool() {
    let works = works_for(SECOND).with_settings(settings().when(|_| false));
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;

    let id = client.start("works").await;

    let result = client.result(&id).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_settings_cannot_be_called_as_a_task() {
    let tasks = Tasks::new(store()).task_after(SECOND);
    let server = server(tasks, [works_for(2 * SECOND)]);
    let mut client = TestClient::connect(&server).await;

    let error = client.call_as_task("works", json!({})).await.unwrap_err();
    assert_eq!(error["code"], -32601, "{error}");
    // It does not become a task by itself either.
    let result = client.call("works").await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}

#[tokio::test(start_paused = true)]
async fn a_required_tool_can_only_be_called_as_a_task() {
    let works = works_for(SECOND).with_settings(settings().required());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;

    let error = client.call("works").await.unwrap_err();
    assert_eq!(error["code"], -32601, "{error}");
    let id = client.start("works").await;
    let result = client.result(&id).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}

#[tokio::test(start_paused = true)]
async fn a_required_tool_is_resumed_for_its_legacy_caller() {
    let works = works_for(3 * SECOND).with_settings(settings().required().resumable());
    let store = store();
    let process = |store| server(Tasks::new(store), [works.clone()]);
    let first = process(store.clone());
    let mut client = TestClient::connect(&first).await;
    let id = client.start("works").await;
    sleep(SECOND).await;
    drop((first, client));

    let second = process(store);
    let mut client = TestClient::connect(&second).await;

    let result = client.result(&id).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}

#[tokio::test(start_paused = true)]
async fn the_time_to_live_is_the_requested_one_up_to_a_limit() {
    let works = works_for(SECOND).with_settings(settings().ttl(7 * SECOND));
    let tasks = Tasks::new(store()).max_ttl(60 * SECOND);
    let server = server(tasks, [works]);
    let mut client = TestClient::connect(&server).await;

    for (task, ttl) in [
        (json!({}), 7000),
        (json!({"ttl": null}), 7000),
        (json!({"ttl": 0}), 7000),
        (json!({"ttl": 12_345}), 12_345),
        (json!({"ttl": 12_345.0}), 12_345),
        (json!({"ttl": 60_001}), 60_000),
        (json!({"ttl": u64::MAX}), 60_000),
    ] {
        let created = client.call_as_task("works", task.clone()).await.unwrap();
        assert_eq!(created["task"]["ttl"], ttl, "{task}");
    }
    for task in [json!(true), json!([]), json!([5]), json!({"ttl": "1"})] {
        let error = client.call_as_task("works", task).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_time_to_live_has_ended_fails_and_is_removed() {
    let works = works_for(600 * SECOND).with_settings(settings());
    let tasks = Tasks::new(store()).removal_delay(10 * SECOND);
    let server = server(tasks, [works]);
    let mut client = TestClient::connect(&server).await;
    let task = json!({"ttl": 5000});
    let created = client.call_as_task("works", task).await.unwrap();
    let id = created["task"]["taskId"].as_str().unwrap();

    let error = client.result(id).await.unwrap_err();

    assert_eq!(error["code"], -32603);
    let failed = client.get(id).await.unwrap();
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["statusMessage"], error["message"]);
    sleep(20 * SECOND).await;
    let error = client.get(id).await.unwrap_err();
    assert_eq!(error["code"], -32602);
    assert_eq!(client.result(id).await.unwrap_err(), error);
}

#[tokio::test(start_paused = true)]
async fn invalid_arguments_of_a_task_are_an_error_of_the_request() {
    #[derive(Deserialize, JsonSchema)]
    struct Size {
        pages: u32,
    }
    let prints = async |size: bowline::Args<Size>| format!("{} pages", size.0.pages);
    let prints = Tool::new("prints", prints).with_settings(settings());
    let server = server(Tasks::new(store()), [prints]);
    let mut client = TestClient::connect(&server).await;

    let error = client.call_as_task("prints", json!({})).await.unwrap_err();
    assert_eq!(error["code"], -32602, "{error}");
    let result = client.call("prints").await.unwrap();
    assert_eq!(result["isError"], true);
}

fn failing_server() -> Server {
    let fails = async || Err::<String, _>(ToolError::new("the printer is on fire"));
    let errs = async |_: Context| -> Result<String, RpcError> {
        Err(RpcError::new(ErrorCode(-32_001), "out of paper"))
    };
    server(
        Tasks::new(store()),
        [
            Tool::new("fails", fails).with_settings(settings()),
            Tool::new("errs", errs).with_settings(settings()),
        ],
    )
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_tool_failed_has_failed_and_its_result_says_why() {
    let server = failing_server();
    let mut client = TestClient::connect(&server).await;
    let id = client.start("fails").await;

    let result = client.result(&id).await.unwrap();

    assert_eq!(result["isError"], true);
    assert_eq!(result["content"][0]["text"], "the printer is on fire");
    assert_eq!(result["_meta"][RELATED_TASK]["taskId"], id);
    let failed = client.get(&id).await.unwrap();
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["statusMessage"], "the printer is on fire");
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_task_is_that_of_its_call() {
    let server = failing_server();
    let mut client = TestClient::connect(&server).await;
    let error_of_call = client.call("errs").await.unwrap_err();
    let id = client.start("errs").await;

    let error = client.result(&id).await.unwrap_err();

    assert_eq!(error, error_of_call);
    assert_eq!(error["code"], -32_001);
    assert_eq!(client.get(&id).await.unwrap()["status"], "failed");
}

#[tokio::test(start_paused = true)]
async fn status_messages_are_sent_to_a_client_that_waits() {
    let works = async |cx: Context| {
        sleep(SECOND).await;
        cx.progress(bowline::exchange::Progress::new(1.0).message("half done"));
        sleep(5 * SECOND).await;
        "worked"
    };
    let works = Tool::new("works", works).with_settings(settings());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;
    let id = client.start("works").await;
    let wait = client.send_result(&id);

    let status = client.receive("notifications/tasks/status").await;

    let params = &status["params"];
    assert_eq!(params["taskId"], id);
    assert_eq!(params["status"], "working");
    assert_eq!(params["statusMessage"], "half done");
    assert_eq!(params.get("_meta"), None);
    let polled = client.get(&id).await.unwrap();
    assert_eq!(*params, polled);
    let result = client.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
    client.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_preliminary_response_for_the_model_is_in_the_created_task() {
    let works = works_for(SECOND).with_settings(settings().immediate_response("Started."));
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;

    let created = client.call_as_task("works", json!({})).await.unwrap();

    assert_eq!(
        created["_meta"],
        json!({"io.modelcontextprotocol/model-immediate-response": "Started."})
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_outlives_its_connection() {
    let works = works_for(2 * SECOND).with_settings(settings());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::connect(&server).await;
    let id = client.start("works").await;
    client.send_result(&id);
    drop(client);

    let mut client = TestClient::connect(&server).await;

    let result = client.result(&id).await.unwrap();
    assert_eq!(result["content"][0]["text"], "worked");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_task_is_an_error_of_the_params() {
    let server = server(Tasks::new(store()), []);
    let mut client = TestClient::connect(&server).await;

    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        for params in [
            json!({"taskId": "AAAAAAAAAAAAAAAAAAAAAAAA"}),
            json!({"taskId": "x"}),
            json!({"taskId": 7}),
            json!({}),
        ] {
            let error = client.request(method, params.clone()).await.unwrap_err();
            assert_eq!(error["code"], -32602, "{method} {params}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_task_has_the_form_of_this_version() {
    let counts = async || {
        sleep(SECOND).await;
        bowline::Structured(vec![1, 2, 3])
    };
    let counts = Tool::new("counts", counts).with_settings(settings());
    let server = server(Tasks::new(store()), [counts]);
    let mut modern = TestClient::of_version(&server, "2026-07-28", None, json!({})).await;
    let created = modern.call("counts").await.unwrap();
    assert_eq!(created["resultType"], "task");
    let id = created["taskId"].as_str().unwrap();
    let mut client = TestClient::connect(&server).await;

    let task = client.get(id).await.unwrap();
    let expected = [
        "createdAt",
        "lastUpdatedAt",
        "pollInterval",
        "status",
        "taskId",
        "ttl",
    ];
    assert_eq!(names(&task), expected);
    let result = client.result(id).await.unwrap();

    assert_eq!(names(&result), ["_meta", "content", "structuredContent"]);
    assert_eq!(result["structuredContent"], json!({"result": [1, 2, 3]}));
    assert_eq!(result["_meta"], json!({RELATED_TASK: {"taskId": id}}));
    let of_modern = modern.get(id).await.unwrap();
    assert_eq!(of_modern["result"]["structuredContent"], json!([1, 2, 3]));
}
