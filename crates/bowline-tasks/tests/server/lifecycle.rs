//! From a call to the result of its task.

use std::time::Duration;

use bowline::types::CreateMessageRequestParams;
use bowline::{Context, Progress, RpcError, Tool, ToolError};
use bowline_tasks::store::{StoreLimits, TaskOutcome, TaskStore as _};
use bowline_tasks::{TaskId, TaskSettings, Tasks};
use bowline_types::ErrorCode;
use serde_json::{Value, json};

use crate::faulty_store::FaultyStore;
use crate::support::{Counter, SECOND, TestClient, hangs, pass, server, store, store_with};

/// Works for 3 seconds.
fn slow() -> Tool {
    let work = async || {
        pass(3 * SECOND).await;
        "done"
    };
    Tool::new("slow", work).with_settings(TaskSettings::new())
}

#[tokio::test(start_paused = true)]
async fn a_call_becomes_a_task_and_its_result_is_inlined() {
    let server = server(Tasks::new(store()), [slow()]);
    let mut client = TestClient::new(&server);

    let created = client.call("slow", json!({})).await.unwrap();

    let id = created["taskId"].as_str().unwrap();
    assert_eq!(created["resultType"], "task");
    assert_eq!(created["status"], "working");
    assert_eq!(created["ttlMs"], 3_600_000);
    assert_eq!(created["pollIntervalMs"], 1000);
    assert_eq!(created["createdAt"], "2026-07-28T12:00:00.000Z");
    assert_eq!(created["lastUpdatedAt"], created["createdAt"]);
    for member in ["task", "result", "error", "inputRequests", "requestState"] {
        assert_eq!(created.get(member), None, "{member}");
    }

    let working = client.get(id).await.unwrap();
    assert_eq!(working["resultType"], "complete");
    assert_eq!(working["status"], "working");

    let done = client.wait_for(id, "completed").await;
    assert_eq!(done["resultType"], "complete");
    assert_eq!(done["lastUpdatedAt"], "2026-07-28T12:00:03.000Z");
    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert_eq!(done["result"]["resultType"], "complete");
    // It stays available.
    assert_eq!(client.get(id).await.unwrap()["result"], done["result"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_need_not_wait_has_ended_when_its_task_is_returned() {
    let store = store();
    let runs = Counter::default();
    let counted = runs.clone();
    let fast = Tool::new("fast", move || {
        counted.add();
        std::future::ready("done")
    });
    let fast = fast.with_settings(TaskSettings::new());
    let server = server(Tasks::new(store.clone()), [fast]);
    let mut client = TestClient::new(&server);

    let created = client.call("fast", json!({})).await.unwrap();
    let id: TaskId = created["taskId"].as_str().unwrap().parse().unwrap();
    let record = store.read(id).await.unwrap().unwrap();

    // The state in which it was created, as of every task.
    assert_eq!(created["status"], "working");
    assert!(matches!(record.outcome, Some(TaskOutcome::Completed(_))));
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_stored_at_once_does_not_delay_the_task() {
    let store = FaultyStore::new(&store());
    let (faulty, runs) = (store.clone(), Counter::default());
    let counted = runs.clone();
    let fast = Tool::new("fast", move || {
        counted.add();
        faulty.set_down(true);
        std::future::ready("done")
    });
    let fast = fast.with_settings(TaskSettings::new());
    let server = server(Tasks::new(store.clone()), [fast]);
    let mut client = TestClient::new(&server);

    let id = client.start("fast").await;
    // Longer than the lease.
    pass(30 * SECOND).await;
    store.set_down(false);
    let done = client.wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_did_not_declare_the_extension_gets_an_ordinary_result() {
    let server = server(Tasks::new(store()), [slow()]);
    let mut client = TestClient::new(&server);

    let params = json!({"name": "slow", "task": {"ttl": 5}});
    let result = client
        .request_undeclared("tools/call", params)
        .await
        .unwrap();

    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn methods_and_required_tools_are_refused_without_the_extension() {
    let insists = Tool::new("insists", async || "done");
    let insists = insists.with_settings(TaskSettings::new().required());
    let server = server(Tasks::new(store()), [insists]);
    let mut client = TestClient::new(&server);
    let id = client.start("insists").await;

    for (method, params) in [
        ("tools/call", json!({"name": "insists"})),
        ("tasks/get", json!({"taskId": id})),
        ("tasks/cancel", json!({"taskId": id})),
        ("tasks/update", json!({"taskId": id, "inputResponses": {}})),
        (
            "subscriptions/listen",
            json!({"notifications": {"taskIds": [id]}}),
        ),
    ] {
        let error = client.request_undeclared(method, params).await.unwrap_err();

        assert_eq!(error["code"], -32021, "{method}");
        let required = &error["data"]["requiredCapabilities"]["extensions"];
        assert_eq!(
            *required,
            json!({"io.modelcontextprotocol/tasks": {}}),
            "{method}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn methods_of_the_legacy_tasks_do_not_exist() {
    let server = server(Tasks::new(store()), [slow()]);
    let mut client = TestClient::new(&server);
    let id = client.start("slow").await;

    for method in ["tasks/result", "tasks/list"] {
        let error = client
            .request(method, json!({"taskId": id}))
            .await
            .unwrap_err();
        assert_eq!(error["code"], -32601, "{method}");
    }
    let discovered = client.request("server/discover", json!({})).await.unwrap();
    let capabilities = &discovered["capabilities"];
    assert_eq!(
        capabilities["extensions"],
        json!({"io.modelcontextprotocol/tasks": {}})
    );
    assert_eq!(capabilities.get("tasks"), None);
}

#[tokio::test(start_paused = true)]
async fn a_tool_error_completes_a_task_and_a_protocol_error_fails_it() {
    let refuses = Tool::new("refuses", async || {
        Err::<String, _>(ToolError::new("no such file"))
    });
    let breaks = async |_, _| -> Result<_, _> {
        let error = RpcError::new(ErrorCode(-32050), "broken");
        Err::<bowline::CallToolResult, _>(ToolError::from(error))
    };
    let breaks = Tool::raw("breaks", json!({"type": "object"}), breaks);
    let panics = Tool::new("panics", async || -> String { panic!("a handler panics") });
    let tools = [refuses, breaks, panics].map(|it| it.with_settings(TaskSettings::new()));
    let server = server(Tasks::new(store()), tools);
    let mut client = TestClient::new(&server);

    let id = client.start("refuses").await;
    let refused = client.wait_for(&id, "completed").await;
    assert_eq!(refused["result"]["isError"], true);
    assert_eq!(refused["result"]["content"][0]["text"], "no such file");

    let id = client.start("breaks").await;
    let broken = client.wait_for(&id, "failed").await;
    assert_eq!(
        broken["error"],
        json!({"code": -32050, "message": "broken"})
    );
    assert_eq!(broken["statusMessage"], "broken");
    assert_eq!(broken.get("result"), None);

    let id = client.start("panics").await;
    let panicked = client.wait_for(&id, "failed").await;
    assert_eq!(panicked["error"]["message"], "handler panicked");
}

#[tokio::test(start_paused = true)]
async fn a_predicate_decides_by_the_arguments() {
    #[derive(serde::Deserialize)]
    struct Size {
        pages: u32,
    }
    let settings = TaskSettings::new().when(|arguments| {
        arguments
            .decode::<Size>()
            .is_ok_and(|size| size.pages > 100)
    });
    let echo = Tool::raw("print", json!({"type": "object"}), async |_, _| {
        Ok(bowline::CallToolResult::text("printed"))
    });
    let server = server(Tasks::new(store()), [echo.with_settings(settings)]);
    let mut client = TestClient::new(&server);

    let small = client.call("print", json!({"pages": 1})).await.unwrap();
    let large = client.call("print", json!({"pages": 101})).await.unwrap();

    assert_eq!(small["resultType"], "complete");
    assert_eq!(large["resultType"], "task");
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_settings_does_not_become_a_task() {
    let plain = Tool::new("plain", async || pass(100 * SECOND).await);
    let server = server(Tasks::new(store()), [plain]);
    let mut client = TestClient::new(&server);

    let params = json!({"name": "plain"});
    let id = client.send("tools/call", params);
    pass(101 * SECOND).await;

    assert_eq!(client.answer(id).await.unwrap()["resultType"], "complete");
}

#[tokio::test(start_paused = true)]
async fn progress_messages_become_the_status_at_most_once_a_second() {
    let works = async |cx: Context| {
        for step in 0..30 {
            cx.log(bowline::types::LoggingLevel::Error, json!("not sent"));
            cx.progress(Progress::new(step).message(format!("step {step}")));
            pass(SECOND / 10).await;
        }
        cx.progress(Progress::new(30).message("last"));
        "done"
    };
    let works = Tool::new("works", works).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [works]);
    let mut client = TestClient::new(&server);
    let id = client.start("works").await;
    assert_eq!(client.listen(&[&id]).await, json!([id]));

    let mut messages = Vec::new();
    loop {
        let task = client.notification("notifications/tasks").await;
        messages.push(
            task["statusMessage"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
        if task["status"] == "completed" {
            break;
        }
    }
    messages.retain(|message| !message.is_empty());

    // At 0 s, 1 s and 2 s, and with the result.
    assert_eq!(messages, ["step 0", "step 10", "step 20", "last"]);
    client.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_time_to_live_has_ended_fails_and_is_deleted_later() {
    let dropped = Counter::default();
    let hangs = hangs(&dropped);
    let settings = TaskSettings::new().ttl(10 * SECOND);
    let tasks = Tasks::new(store()).removal_delay(30 * SECOND);
    let server = server(tasks, [hangs.with_settings(settings)]);
    let mut client = TestClient::new(&server);

    let id = client.start("hangs").await;
    pass(9 * SECOND).await;
    assert_eq!(client.get(&id).await.unwrap()["status"], "working");
    pass(2 * SECOND).await;

    let expired = client.get(&id).await.unwrap();
    assert_eq!(expired["status"], "failed");
    assert_eq!(
        expired["statusMessage"],
        "the time to live of the task has ended"
    );
    assert_eq!(dropped.get(), 1);
    pass(30 * SECOND).await;
    assert_eq!(client.get(&id).await.unwrap_err()["code"], -32602);
}

#[tokio::test(start_paused = true)]
async fn a_quota_refuses_the_call_and_names_the_limit() {
    let limits = StoreLimits::new().max_unfinished_per_principal(2);
    let server = server(Tasks::new(store_with(limits)), [slow()]);
    let mut client = TestClient::new(&server);
    client.start("slow").await;
    client.start("slow").await;

    let error = client.call("slow", json!({})).await.unwrap_err();

    assert_eq!(error["code"], -32603);
    assert_eq!(error["data"]["limit"], "unfinished_tasks");
    assert_eq!(error["data"]["isRetryable"], true);
    pass(4 * SECOND).await;
    client.start("slow").await;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_the_store_refuses_fails_the_task() {
    let large = Tool::new("large", async || "x".repeat(10_000)).with_settings(TaskSettings::new());
    let limits = StoreLimits::new().max_task_bytes(5_000);
    let server = server(Tasks::new(store_with(limits)), [large]);
    let mut client = TestClient::new(&server);

    let id = client.start("large").await;
    let failed = client.wait_for(&id, "failed").await;

    let message = failed["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("failed to store the outcome of the task: task of "),
        "{message}"
    );
    assert!(
        message.ends_with("exceeds the limit of 5000 bytes"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_before_its_answer_leaves_no_task() {
    let (store, dropped) = (store(), Counter::default());
    let slow_store = FaultyStore::new(&store);
    slow_store.delay_creation(SECOND);
    let hangs = hangs(&dropped).with_settings(TaskSettings::new());
    let server = server(Tasks::new(slow_store), [hangs]);
    let mut client = TestClient::of_principal(&server, "ada");

    let id = client.send("tools/call", json!({"name": "hangs"}));
    pass(SECOND / 2).await;
    let stored = store.list("ada", None, 10).await.unwrap();
    assert_eq!(stored.tasks.len(), 1);
    client.cancel_request(id);
    pass(SECOND / 10).await;

    let stored = store.list("ada", None, 10).await.unwrap();
    assert_eq!(stored.tasks, []);
    assert_eq!(dropped.get(), 0);
    client.expect_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_handler_lacks_a_capability_fails_with_a_protocol_error() {
    let asks = Tool::new("asks", async |cx: Context| -> Result<String, ToolError> {
        let params = CreateMessageRequestParams::new(Vec::new(), 10);
        cx.sample("prompt", &params).await?;
        Ok("sampled".to_owned())
    });
    let server = server(
        Tasks::new(store()),
        [asks.with_settings(TaskSettings::new())],
    );
    let mut client = TestClient::new(&server);

    let id = client.start("asks").await;
    let failed = client.wait_for(&id, "failed").await;

    assert_eq!(failed["error"]["code"], -32021);
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_on_when_its_connection_ends() {
    let server = server(Tasks::new(store()), [slow()]);
    let mut client = TestClient::new(&server);
    let id = client.start("slow").await;
    drop(client);

    let mut other = TestClient::new(&server);
    let done = other.wait_for(&id, "completed").await;

    assert_eq!(done["result"]["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_server_drops_its_running_tasks() {
    let dropped = Counter::default();
    let hangs = hangs(&dropped);
    let server = server(
        Tasks::new(store()),
        [hangs.with_settings(TaskSettings::new())],
    );
    let mut client = TestClient::new(&server);
    client.start("hangs").await;
    pass(SECOND).await;
    assert_eq!(dropped.get(), 0);

    drop(client);
    drop(server);
    pass(Duration::from_millis(1)).await;

    assert_eq!(dropped.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_id_is_invalid_whatever_it_looks_like() {
    let server = server(Tasks::new(store()), [slow()]);
    let mut client = TestClient::new(&server);
    let mut messages: Vec<Value> = Vec::new();

    for id in [
        "",
        "x",
        "AAAAAAAAAAAAAAAAAAAAAAAA",
        "786512e2-9e0d-44bd-8f29-789f320fe840",
    ] {
        for answer in [
            client.get(id).await,
            client.cancel(id).await,
            client.update(id, json!({})).await,
        ] {
            let error = answer.unwrap_err();
            assert_eq!(error["code"], -32602, "{id}");
            messages.push(error["message"].clone());
        }
    }

    messages.dedup();
    assert_eq!(messages, [json!("unknown task")]);
}

#[tokio::test(start_paused = true)]
async fn a_task_fails_once_if_its_principal_has_no_room_for_the_result() {
    let runs = Counter::default();
    let counted = runs.clone();
    let large = Tool::new("large", move || {
        counted.add();
        std::future::ready("x".repeat(10_000))
    });
    let large = large.with_settings(TaskSettings::new().resumable());
    // So that a new task fits, and hardly more.
    let store = store();
    let resumable = slow().with_settings(TaskSettings::new().resumable());
    let first = server(Tasks::new(store.clone()), [resumable, large.clone()]);
    let id = TestClient::new(&first).start("slow").await;
    let record = store.read(id.parse().unwrap()).await.unwrap().unwrap();
    let limits = StoreLimits::new().max_bytes_per_principal(record.size() + 10);
    let server = server(Tasks::new(store_with(limits)), [slow(), large]);
    let mut client = TestClient::new(&server);

    let id = client.start("large").await;
    let failed = client.wait_for(&id, "failed").await;

    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("too many bytes"), "{message}");
    assert_eq!(runs.get(), 1);
}
