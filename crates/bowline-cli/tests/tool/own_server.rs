//! A server of the test's own: log messages, images, questions of every kind, and tasks.

use bowline::exchange::ElicitationOutcome;
use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::CompletionInput;
use bowline::types::{Completion, ContentBlock, CreateMessageRequestParams, LoggingLevel};
use bowline::{CallToolResult, RpcError};
use bowline_tasks::Tasks;
use serde::Deserialize;
use serde_json::json;

use crate::support::{TempDir, VERSIONS, in_time, run};

/// Returns an image.
#[tool]
async fn chart() -> CallToolResult {
    CallToolResult::new(vec![
        ContentBlock::text("a chart:"),
        ContentBlock::image(b"not really a PNG", "image/png"),
    ])
}

/// Sends log messages.
#[tool]
async fn chatty(cx: Context) -> &'static str {
    cx.log(LoggingLevel::Debug, json!("too fine"));
    cx.log_as(
        "disk",
        LoggingLevel::Warning,
        json!("almost full\u{1b}[31m"),
    );
    "done\u{1b}[2J"
}

/// Asks the user to visit an address.
#[tool]
async fn visit(cx: Context) -> Result<&'static str, ToolError> {
    let visit = cx.elicit_url("visit", "Sign in, please.", "https://example.com/sign-in");
    Ok(match visit.outcome().await? {
        ElicitationOutcome::Accept(()) => "welcome",
        ElicitationOutcome::Decline => "declined",
        ElicitationOutcome::Cancel => "dismissed",
    })
}

/// Asks a model.
#[tool]
async fn think(cx: Context) -> Result<String, RpcError> {
    let params = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}], "maxTokens": 9});
    let params: CreateMessageRequestParams =
        serde_json::from_value(params).map_err(|error| RpcError::internal(error.to_string()))?;
    let reply = cx.sample("think", &params).await.map_err(RpcError::from)?;
    Ok(serde_json::to_value(reply.content).unwrap_or_default()["text"].to_string())
}

/// Lists the roots of the client.
#[tool]
async fn roots(cx: Context) -> Result<String, RpcError> {
    let roots = cx.roots().await.map_err(RpcError::from)?.roots;
    Ok(roots
        .into_iter()
        .map(|root| root.uri)
        .collect::<Vec<_>>()
        .join(" "))
}

/// Converts something.
#[tool(task(resumable))]
async fn convert() -> &'static str {
    "converted"
}

/// Asks for a name.
#[tool(task(resumable))]
async fn name(cx: Context) -> Result<String, ToolError> {
    Ok(match cx.elicit("name", "Your name?").outcome().await? {
        ElicitationOutcome::Accept(Name { name }) => format!("Hello, {name}!"),
        ElicitationOutcome::Decline | ElicitationOutcome::Cancel => "Hello!".to_owned(),
    })
}

/// The form of `name`.
#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Orders a dish.
#[prompt]
async fn order(cuisine: String, dish: String) -> String {
    format!("One {cuisine} {dish}, please.")
}

/// Suggests dishes of a cuisine.
#[completion(prompt = "order", argument = "dish")]
async fn dishes(input: CompletionInput) -> Completion {
    match input.arguments.get("cuisine").map(String::as_str) {
        Some("danish") => input.matching(["smørrebrød", "stegt flæsk"]),
        _ => input.matching((0..200).map(|number| format!("dish {number}"))),
    }
}

/// Never ends.
#[tool(task(resumable))]
async fn endless() -> &'static str {
    std::future::pending().await
}

/// Serves until the test ends, and returns the URL.
async fn serve() -> String {
    let server = Server::new("own", "1.0.0")
        .logging()
        .tool(chart)
        .tool(chatty)
        .tool(visit)
        .tool(think)
        .tool(roots)
        .tool(convert)
        .tool(endless)
        .tool(name)
        .prompt(order)
        .completer(dishes)
        .extension(Tasks::in_memory());
    let bound = server.http().bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", bound.local_addr());
    tokio::spawn(bound.serve());
    url
}

#[tokio::test]
async fn images_are_saved_where_the_terminal_cannot_show_them() {
    in_time(async {
        let (url, folder) = (serve().await, TempDir::new("images"));
        let folder_text = folder.0.to_str().unwrap();

        let ended = run(&["call", &url, "chart", "--save-to", folder_text]).await;

        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.starts_with("a chart:\nsaved "), "{ended:?}");
        let saved = std::fs::read(folder.0.join("chart.png")).unwrap();
        assert_eq!(saved, b"not really a PNG");
    })
    .await;
}

#[tokio::test]
async fn log_messages_go_to_stderr_and_escape_codes_of_servers_are_made_visible() {
    in_time(async {
        let url = serve().await;
        for version in VERSIONS {
            let ended = run(&["call", &url, "chatty", "--protocol-version", version]).await;

            assert_eq!(ended.stdout, "done␛[2J\n", "{version}: {ended:?}");
            assert_eq!(
                ended.stderr, "[warning disk] almost full␛[31m\n",
                "{version}: {ended:?}"
            );
            let quiet = [
                "call",
                &url,
                "chatty",
                "--protocol-version",
                version,
                "--log-level",
                "none",
            ];
            assert_eq!(run(&quiet).await.stderr, "", "{version}");
        }
    })
    .await;
}

#[tokio::test]
async fn every_kind_of_question_can_be_answered_by_options() {
    in_time(async {
        let url = serve().await;
        for version in VERSIONS {
            let call = async |words: &[&str]| {
                let words = [&["call", &url, "--protocol-version", version], words].concat();
                run(&words).await
            };
            let visited = call(&["visit", "--accept-urls"]).await;
            assert_eq!(visited.stdout, "welcome\n", "{version}: {visited:?}");
            assert!(
                visited.stderr.contains("https://example.com/sign-in"),
                "{version}: {visited:?}"
            );
            let declined = call(&["visit", "--refuse"]).await;
            assert_eq!(declined.stdout, "declined\n", "{version}: {declined:?}");
            let unanswered = call(&["visit"]).await;
            assert_eq!(unanswered.code, Some(2), "{version}: {unanswered:?}");
            assert!(
                unanswered.stderr.contains("--accept-urls"),
                "{version}: {unanswered:?}"
            );
            let thought = call(&["think", "--reply", "Because."]).await;
            assert_eq!(thought.stdout, "\"Because.\"\n", "{version}: {thought:?}");
            let silent = call(&["think"]).await;
            assert_eq!(silent.code, Some(2), "{version}: {silent:?}");
            assert!(
                silent.stderr.contains("--reply TEXT"),
                "{version}: {silent:?}"
            );
            let rooted = call(&["roots", "--root", "/tmp"]).await;
            assert_eq!(rooted.stdout, "file:///tmp\n", "{version}: {rooted:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn tasks_are_started_shown_awaited_and_cancelled_by_their_ids() {
    in_time(async {
        let url = serve().await;
        let start = async |tool: &str| {
            let started = run(&["call", &url, tool, "--as-task"]).await;
            assert_eq!(started.code, Some(0), "{started:?}");
            started.stdout.trim().to_owned()
        };

        let id = start("convert").await;
        let waited = run(&["tasks", "wait", &url, &id]).await;
        let endless = start("endless").await;
        let working = run(&["tasks", "get", &url, &endless, "--json"]).await;
        let given_up = run(&["tasks", "wait", &url, &endless, "--timeout", "50ms"]).await;
        let cancelled = run(&["tasks", "cancel", &url, &endless]).await;
        let ended = run(&["tasks", "wait", &url, &endless]).await;
        let unknown = run(&["tasks", "get", &url, "nonsense"]).await;
        let with_hyphen = run(&["tasks", "get", &url, "--id=-sense"]).await;
        let list = run(&["tasks", "list", &url]).await;

        assert_eq!(
            (waited.code, waited.stdout.as_str()),
            (Some(0), "converted\n"),
            "{waited:?}"
        );
        assert_eq!(working.json()["status"], "working", "{working:?}");
        assert_eq!(given_up.code, Some(7), "{given_up:?}");
        assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("cancelled"), "{ended:?}");
        assert_eq!(unknown.code, Some(4), "{unknown:?}");
        assert_eq!(with_hyphen.code, Some(4), "{with_hyphen:?}");
        assert_eq!(list.code, Some(1), "{list:?}");
    })
    .await;
}

#[tokio::test]
async fn the_question_of_a_task_is_shown_and_answered_by_its_key() {
    in_time(async {
        let url = serve().await;
        let started = run(&["call", &url, "name", "--as-task"]).await;
        let id = started.stdout.trim();
        let asked = loop {
            let shown = run(&["tasks", "get", &url, id, "--json"]).await.json();
            if shown["status"] == "input_required" {
                break shown;
            }
        };
        let (key, question) = asked["inputRequests"]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        assert_eq!(question["params"]["message"], "Your name?", "{asked}");

        let answer = json!({"action": "accept", "content": {"name": "Ada"}});
        let update = ["tasks", "update", &url, id, &format!("{key}:={answer}")];
        let updated = run(&update).await;
        let waited = run(&["tasks", "wait", &url, id]).await;
        let nonsense = run(&["tasks", "update", &url, id, "name=Ada"]).await;

        assert_eq!(updated.code, Some(0), "{updated:?}");
        assert_eq!(waited.stdout, "Hello, Ada!\n", "{waited:?}");
        assert_eq!(nonsense.code, Some(2), "{nonsense:?}");
        assert!(
            nonsense.stderr.contains("expected key:=json"),
            "{nonsense:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn completions_depend_on_the_beginning_and_on_other_arguments() {
    in_time(async {
        let url = serve().await;
        for version in VERSIONS {
            let complete = async |words: &[&str]| {
                let words = [&["complete", &url, "--protocol-version", version], words].concat();
                run(&words).await
            };
            let danish = complete(&["order", "dish", "sm", "cuisine=danish"]).await;
            assert_eq!(danish.stdout, "smørrebrød\n", "{version}: {danish:?}");
            let all = complete(&["order", "dish", "cuisine=danish"]).await;
            assert_eq!(all.stdout.lines().count(), 2, "{version}: {all:?}");
            let many = complete(&["order", "dish"]).await;
            assert_eq!(many.stdout.lines().count(), 100, "{version}: {many:?}");
            assert_eq!(many.stderr, "bowline: the first 100 of 200\n", "{version}");
            let json = complete(&["order", "dish", "st", "cuisine=danish", "--json"]).await;
            assert_eq!(json.json()["values"], json!(["stegt flæsk"]), "{version}");
            let unknown = complete(&["disorder", "dish"]).await;
            assert_eq!(unknown.code, Some(4), "{version}: {unknown:?}");
        }
    })
    .await;
}
