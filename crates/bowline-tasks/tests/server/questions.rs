//! Questions of a task.

use bowline::exchange::InputError;
use bowline::{Context, Tool, ToolError};
use bowline_tasks::{TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::support::{SECOND, TestClient, accept, pass, server, store};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Asks for two names at once.
fn greet_both() -> Tool {
    let greet = async |cx: Context| -> Result<String, ToolError> {
        let first = cx.elicit::<Name>("first", "Who?");
        let second = cx.elicit::<Name>("second", "Who else?");
        let (first, second) = tokio::try_join!(first.into_future(), second.into_future())?;
        Ok(format!("Hello, {} and {}!", first.name, second.name))
    };
    Tool::new("greet", greet).with_settings(TaskSettings::new())
}

#[tokio::test(start_paused = true)]
async fn a_question_makes_the_task_wait_and_an_answer_continues_it() {
    let server = server(Tasks::new(store()), [greet_both()]);
    let mut client = TestClient::new(&server);
    let id = client.start("greet").await;

    let waiting = client.wait_for(&id, "input_required").await;
    let questions = waiting["inputRequests"].as_object().unwrap();
    assert_eq!(questions.len(), 2);
    assert_eq!(questions["first"]["method"], "elicitation/create");
    assert_eq!(questions["first"]["params"]["message"], "Who?");
    assert_eq!(waiting.get("requestState"), None);

    // Unknown keys are ignored, and a part of the answers is accepted.
    let answers = json!({"first": accept(json!({"name": "Ada"})), "third": accept(json!({}))});
    let ack = client.update(&id, answers).await.unwrap();
    assert_eq!(ack["resultType"], "complete");
    for member in ["taskId", "status", "inputRequests", "result"] {
        assert_eq!(ack.get(member), None);
    }
    let waiting = client.get(&id).await.unwrap();
    assert_eq!(waiting["status"], "input_required");
    assert_eq!(waiting["inputRequests"].as_object().unwrap().len(), 1);

    // An answered question stays answered.
    let again = json!({"first": accept(json!({"name": "Eve"}))});
    client.update(&id, again).await.unwrap();
    let rest = json!({"second": accept(json!({"name": "Bo"}))});
    client.update(&id, rest).await.unwrap();

    let done = client.wait_for(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada and Bo!");
    // A finished task acknowledges an update, too.
    client.update(&id, json!({"first": {}})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_another_process_receives_reaches_the_owner() {
    let store = store();
    let owner = server(Tasks::new(store.clone()), [greet_both()]);
    let other = server(Tasks::new(store), [greet_both()]);
    let mut client = TestClient::new(&owner);
    let id = client.start("greet").await;
    let mut elsewhere = TestClient::new(&other);
    elsewhere.wait_for(&id, "input_required").await;

    let name = |name| accept(json!({"name": name}));
    let answers = json!({"first": name("Ada"), "second": name("Bo")});
    elsewhere.update(&id, answers).await.unwrap();

    let done = elsewhere.wait_for(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Hello, Ada and Bo!");
}

#[tokio::test(start_paused = true)]
async fn keys_of_repeated_questions_are_unique() {
    let asks = async |cx: Context| -> Result<String, ToolError> {
        let mut names = Vec::new();
        for _ in 0..3 {
            names.push(cx.elicit::<Name>("name", "Who?").await?.name);
        }
        Ok(names.join(" "))
    };
    let asks = Tool::new("asks", asks).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [asks]);
    let mut client = TestClient::new(&server);
    let id = client.start("asks").await;

    for (key, name) in [("name", "Ada"), ("name#2", "Bo"), ("name#3", "Cy")] {
        let waiting = client.wait_for(&id, "input_required").await;
        let keys: Vec<_> = waiting["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(keys, [key]);
        let answers = json!({(key): accept(json!({"name": name}))});
        client.update(&id, answers).await.unwrap();
    }

    let done = client.wait_for(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Ada Bo Cy");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_handler_gives_up_is_withdrawn() {
    let gives_up = async |cx: Context| -> Result<String, ToolError> {
        let question = async { cx.elicit::<Name>("name", "Who?").await };
        if tokio::time::timeout(3 * SECOND, question).await.is_err() {
            pass(10 * SECOND).await;
        }
        Ok("no name".to_owned())
    };
    let gives_up = Tool::new("gives_up", gives_up).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [gives_up]);
    let mut client = TestClient::new(&server);
    let id = client.start("gives_up").await;
    client.wait_for(&id, "input_required").await;

    let working = client.wait_for(&id, "working").await;
    assert_eq!(working.get("inputRequests"), None);
    client.update(&id, json!({"name": {}})).await.unwrap();
    client.wait_for(&id, "completed").await;
}

#[tokio::test(start_paused = true)]
async fn a_declined_question_is_the_handlers_to_handle() {
    let asks = async |cx: Context| match cx.elicit::<Name>("name", "Who?").await {
        Err(InputError::Declined) => "declined",
        _ => "other",
    };
    let asks = Tool::new("asks", asks).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [asks]);
    let mut client = TestClient::new(&server);
    let id = client.start("asks").await;
    client.wait_for(&id, "input_required").await;

    client
        .update(&id, json!({"name": {"action": "decline"}}))
        .await
        .unwrap();

    let done = client.wait_for(&id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "declined");
}
