//! Questions of a task, which a client gets while it waits for the result.

use bowline::exchange::InputError;
use bowline::{Context, Server, Tool, ToolError};
use bowline_tasks::{TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{RELATED_TASK, SECOND, TestClient, accept, server, store};

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
    Tool::new("greet_both", greet).with_settings(TaskSettings::new())
}

/// Asks for a name, and goes on without one.
fn greet() -> Tool {
    let greet = async |cx: Context| match cx.elicit::<Name>("name", "Who?").await {
        Ok(name) => format!("Hello, {}!", name.name),
        Err(InputError::Rpc { key, error }) => format!("refused {key}: {}", error.message),
        Err(error) => format!("failed: {error}"),
    };
    Tool::new("greet", greet).with_settings(TaskSettings::new())
}

fn greeting_server() -> Server {
    server(Tasks::new(store()), [greet(), greet_both()])
}

fn answer_of(name: &str) -> Value {
    accept(json!({"name": name}))
}

/// Receives the questions of `greet_both`, in the order of the handler.
async fn both_questions(client: &mut TestClient) -> (Value, Value) {
    let one = client.receive("elicitation/create").await;
    let other = client.receive("elicitation/create").await;
    match one["params"]["message"] == "Who?" {
        true => (one, other),
        false => (other, one),
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_a_request_to_the_client_that_waits() {
    let server = greeting_server();
    let mut client = TestClient::connect(&server).await;
    let id = client.start("greet").await;
    client.wait_for(&id, "input_required").await;
    // Without a client that waits, nothing is sent.
    client.expect_nothing().await;

    let wait = client.send_result(&id);
    let question = client.receive("elicitation/create").await;
    let params = &question["params"];
    assert_eq!(params["message"], "Who?");
    assert_eq!(
        params["requestedSchema"]["properties"]["name"]["type"],
        "string"
    );
    assert_eq!(params["_meta"][RELATED_TASK], json!({"taskId": id}));
    assert_eq!(client.get(&id).await.unwrap()["status"], "input_required");
    client.reply(&question, &answer_of("Ada"));

    let result = client.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "Hello, Ada!");
    assert_eq!(result["_meta"][RELATED_TASK]["taskId"], id);
    assert_eq!(client.get(&id).await.unwrap()["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn questions_are_asked_at_the_same_time_and_answered_in_any_order() {
    let server = greeting_server();
    let mut client = TestClient::connect(&server).await;
    let id = client.start("greet_both").await;
    // Before the questions exist.
    let wait = client.send_result(&id);

    let (first, second) = both_questions(&mut client).await;
    client.reply(&second, &answer_of("Bo"));
    sleep(SECOND).await;
    assert_eq!(client.get(&id).await.unwrap()["status"], "input_required");
    client.reply(&first, &answer_of("Ada"));

    let result = client.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "Hello, Ada and Bo!");
}

#[tokio::test(start_paused = true)]
async fn a_question_stays_open_for_the_next_client_that_waits() {
    let server = greeting_server();
    let mut client = TestClient::connect(&server).await;
    let id = client.start("greet").await;
    let wait = client.send_result(&id);
    let question = client.receive("elicitation/create").await;

    client.cancel_request(wait);
    let withdrawn = client.receive("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(client.get(&id).await.unwrap()["status"], "input_required");
    drop(client);

    let mut client = TestClient::connect(&server).await;
    let wait = client.send_result(&id);
    let question = client.receive("elicitation/create").await;
    client.reply(&question, &answer_of("Ada"));
    let result = client.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_wins_and_other_clients_are_told() {
    let server = greeting_server();
    let mut ada = TestClient::connect(&server).await;
    let mut bo = TestClient::connect(&server).await;
    let id = ada.start("greet_both").await;
    let (wait, other_wait) = (ada.send_result(&id), bo.send_result(&id));
    let (first, second) = both_questions(&mut ada).await;
    let (same_first, _) = both_questions(&mut bo).await;

    ada.reply(&first, &answer_of("Ada"));

    // While it still waits for the other question.
    let withdrawn = bo.receive("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], same_first["id"]);
    bo.reply(&same_first, &answer_of("Eve"));
    ada.reply(&second, &answer_of("Bo"));
    let result = ada.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "Hello, Ada and Bo!");
    assert_eq!(bo.answer(other_wait).await.unwrap(), result);
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_can_answer_the_question_of_a_legacy_task() {
    let server = greeting_server();
    let mut client = TestClient::connect(&server).await;
    let mut modern = TestClient::of_version(&server, "2026-07-28", None, json!({})).await;
    let id = client.start("greet").await;
    let wait = client.send_result(&id);
    client.receive("elicitation/create").await;

    let answers = json!({"taskId": id, "inputResponses": {"name": answer_of("Ada")}});
    modern.request("tasks/update", answers).await.unwrap();

    let result = client.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_can_answer_the_question_of_a_modern_task() {
    let server = greeting_server();
    let mut modern = TestClient::of_version(&server, "2026-07-28", None, json!({})).await;
    let created = modern.call("greet").await.unwrap();
    let id = created["taskId"].as_str().unwrap();
    let mut client = TestClient::connect(&server).await;

    let wait = client.send_result(id);
    let question = client.receive("elicitation/create").await;
    client.reply(&question, &answer_of("Ada"));

    let result = client.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test(start_paused = true)]
async fn a_handler_learns_that_the_client_refused_a_question() {
    let server = greeting_server();
    let mut client = TestClient::connect(&server).await;
    let id = client.start("greet").await;
    let wait = client.send_result(&id);
    let question = client.receive("elicitation/create").await;

    client.refuse(&question, -32_603, "no screen");

    let result = client.answer(wait).await.unwrap();
    assert_eq!(result["content"][0]["text"], "refused name: no screen");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_the_capability_is_not_asked() {
    let server = greeting_server();
    let mut client = TestClient::connect(&server).await;
    let mut lacking = TestClient::connect_as(&server, None, json!({})).await;
    let id = client.start("greet").await;
    let waits_only = lacking.send_result(&id);
    lacking
        .expect_nothing_but("notifications/tasks/status")
        .await;

    let wait = client.send_result(&id);
    let question = client.receive("elicitation/create").await;
    client.reply(&question, &answer_of("Ada"));

    let result = client.answer(wait).await.unwrap();
    assert_eq!(lacking.answer(waits_only).await.unwrap(), result);
}
