//! A task that outlives the process of its server.

use std::path::Path;

use bowline::Client;
use bowline_tasks::store::TaskStatus;
use bowline_tasks::{TaskCall as _, TaskClient, TaskHandle};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{TemporaryFolder, command, example, in_time, signal};

/// Starts the server. Returns a client of it, and the lines that it prints: first its process id.
async fn serve(database: &Path) -> (Client, UnboundedReceiver<String>) {
    let (lines, stderr) = unbounded_channel();
    let program = example("durable_job");
    let served = bowline::wire::Command::new("sh")
        .args(["-c", "echo $$ >&2; exec \"$0\" \"$1\""])
        .args([program.as_os_str(), database.as_os_str()])
        .on_stderr(move |line| {
            let _ = lines.send(line.to_owned());
        });
    let client = Client::spawn(served).extension(TaskClient::new());
    (client.await.unwrap(), stderr)
}

#[tokio::test]
async fn durable_job_goes_on_after_kill_9() {
    let folder = TemporaryFolder::new("durable-job");
    let database = folder.path("jobs.db");
    in_time(async {
        let (client, mut stderr) = serve(&database).await;
        let pid = stderr.recv().await.unwrap();
        let scenes = json!({"scenes": 6, "milliseconds": 500});
        let task = client.call_tool("render", scenes).as_task().await.unwrap();
        let id = task.id().unwrap().to_owned();
        for scene in 1..=3 {
            let printed = stderr.recv().await.unwrap();
            assert_eq!(printed, format!("rendered scene {scene}"));
        }
        signal("-KILL", pid.trim()).await;
        drop((task, client));
        // On a busy machine the kill comes late.
        let mut rendered = 3;
        while let Some(printed) = stderr.recv().await {
            rendered += 1;
            assert_eq!(printed, format!("rendered scene {rendered}"));
        }
        assert!(rendered < 6, "the task had ended before the kill");

        let (client, mut stderr) = serve(&database).await;
        let task = TaskHandle::attach(&client, id);
        let reply = task.wait().await.unwrap();

        assert_eq!(reply.text(), "504 frames");
        let status = task.status().await.unwrap().status;
        assert_eq!(status, TaskStatus::Completed);
        drop(task);
        client.close().await.unwrap();
        let _pid = stderr.recv().await.unwrap();
        let mut printed = Vec::new();
        while let Some(line) = stderr.recv().await {
            printed.push(line);
        }
        // The kill may come between the end of a scene and its journal entry.
        let scenes = (rendered..=6).map(|scene| format!("rendered scene {scene}"));
        let rest: Vec<String> = scenes.collect();
        assert!(printed == rest[1..] || printed == rest, "{printed:?}");
    })
    .await;
}

#[tokio::test]
async fn durable_job_waits_for_its_task_in_an_ordinary_call() {
    let folder = TemporaryFolder::new("durable-job-call");
    in_time(async {
        let served = command("durable_job").arg(folder.path("jobs.db"));
        let client = Client::spawn(served).extension(TaskClient::new());
        let client = client.await.unwrap();

        let scenes = json!({"scenes": 2, "milliseconds": 0});
        let reply = client.call_tool("render", scenes).await.unwrap();

        assert_eq!(reply.text(), "72 frames");
        client.close().await.unwrap();
    })
    .await;
}
