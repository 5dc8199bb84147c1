//! `#[tool(task)]` and its options.

use bowline::{Context, tool};
use bowline_tasks::{TaskSettings, Tasks};
use serde_json::json;
use tokio::time::sleep;

use crate::support::{SECOND, TestClient, store};

/// A task.
#[tool(task)]
async fn plain() -> &'static str {
    "done"
}

/// A task, or refused.
#[tool(task(required, resumable))]
async fn insists() -> &'static str {
    "done"
}

/// A task after two seconds.
#[tool(task(at_most_once, after = "2s", ttl = "1m"))]
async fn takes(cx: Context, seconds: u32) -> &'static str {
    sleep(seconds * SECOND).await;
    drop(cx);
    "done"
}

/// The same, for any extension.
#[tool(settings(TaskSettings::new().after(2 * SECOND)))]
async fn takes_as_long(seconds: u32) -> &'static str {
    sleep(seconds * SECOND).await;
    "done"
}

#[tokio::test(start_paused = true)]
async fn the_options_of_a_task_are_those_of_its_settings() {
    let server = bowline::Server::new("s", "1")
        .tool(plain)
        .tool(insists)
        .tool(takes)
        .tool(takes_as_long)
        .extension(Tasks::new(store()));
    server.check().unwrap();
    let mut client = TestClient::new(&server);

    for (tool, seconds, expected) in [
        ("plain", 0, "task"),
        ("insists", 0, "task"),
        ("takes", 1, "complete"),
        ("takes", 3, "task"),
        ("takes_as_long", 1, "complete"),
        ("takes_as_long", 3, "task"),
    ] {
        let arguments = json!({"seconds": seconds});
        let result = client.call(tool, arguments).await.unwrap();
        assert_eq!(result["resultType"], expected, "{tool} {seconds}");
        if (tool, expected) == ("takes", "task") {
            assert_eq!(result["ttlMs"], 60_000);
        }
    }
    let params = json!({"name": "insists"});
    let error = client.request_undeclared("tools/call", params).await;
    assert_eq!(error.unwrap_err()["code"], -32021);
}

#[test]
fn settings_need_their_extension() {
    let server = bowline::Server::new("s", "1").tool(plain);

    let error = server.check().unwrap_err().to_string();

    assert!(error.contains("io.modelcontextprotocol/tasks"), "{error}");
}
