//! A server of the test's own: log messages, images, questions of every kind, and tasks.

use bowline::exchange::ElicitationOutcome;
use bowline::prelude::*;
use bowline::types::{ContentBlock, CreateMessageRequestParams, LoggingLevel};
use bowline::{CallToolResult, RpcError};
use bowline_tasks::Tasks;
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
                unanswered.stderr.contains("try: --accept-urls"),
                "{version}: {unanswered:?}"
            );
            let thought = call(&["think", "--reply", "Because."]).await;
            assert_eq!(thought.stdout, "\"Because.\"\n", "{version}: {thought:?}");
            let silent = call(&["think"]).await;
            assert_eq!(silent.code, Some(2), "{version}: {silent:?}");
            assert!(
                silent.stderr.contains("try: --reply TEXT"),
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
        assert_eq!(list.code, Some(1), "{list:?}");
    })
    .await;
}
