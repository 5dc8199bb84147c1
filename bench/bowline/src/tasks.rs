//! `bench-tasks`: a short call and the same call as a task, with client and server in this process, and the memory of a
//! task. Tasks are in memory.
//!
//! ```text
//! bench-tasks load in-process|http call|task STORED WINDOW_MS     with this many other tasks stored
//! bench-tasks repeat in-process|http call|task COUNT              this many calls, for counting instructions
//! bench-tasks memory COUNT                                        bytes for each finished task
//! ```

use std::sync::Arc;
use std::time::Duration;

use bench_fixture::{Runtime, run_load};
use bowline::prelude::*;
use bowline_tasks::store::{MemoryStore, NewTask, StoreLimits, TaskChange, TaskStore as _};
use bowline_tasks::{ReplicaId, TaskClient, TaskId, TaskSettings, Tasks};
use bowline_types::Json;
use serde_json::json;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    bench_fixture::block_on(Runtime::CurrentThread, async {
        match words.as_slice() {
            ["load", transport, tool, stored, window] => {
                let window = Duration::from_millis(window.parse()?);
                load(transport, tool, stored.parse()?, window).await
            }
            ["repeat", transport, tool, count] => repeat(transport, tool, count.parse()?).await,
            ["memory", count] => memory(count.parse()?).await,
            _ => Err(format!("unknown arguments: {words:?}").into()),
        }
    })
}

/// Returns a server with the tool `call`, and `task`, which does the same as a task.
fn server(store: Arc<MemoryStore>) -> Server {
    let text = || async { "hello" };
    Server::new("bench-tasks", "0.0.0")
        .tool(Tool::new("call", text))
        .tool(Tool::new("task", text).with_settings(TaskSettings::new()))
        .extension(Tasks::new(store))
}

fn store() -> Arc<MemoryStore> {
    // The benchmark creates more in a second than a principal may in an hour.
    let limits = StoreLimits::new()
        .max_tasks(usize::MAX)
        .max_bytes(usize::MAX)
        .max_tasks_per_principal(usize::MAX)
        .max_bytes_per_principal(usize::MAX);
    Arc::new(MemoryStore::new().limits(limits))
}

async fn load(transport: &str, tool: &str, stored: usize, window: Duration) -> Outcome {
    let store = store();
    fill(&store, stored).await?;
    let server = server(store);
    let client = connect(&server, transport).await?;
    let (caller, tool) = (client.clone(), tool.to_owned());
    let call = move || {
        let call = caller.call_tool(&tool, json!({}));
        async move { call.await.is_ok_and(|reply| reply.text() == "hello") }
    };
    run_load(1, window, call).await;
    Ok(client.close().await?)
}

async fn connect(server: &Server, transport: &str) -> Result<Client, Box<dyn std::error::Error>> {
    let connect = match transport {
        "http" => {
            let bound = server.clone().http().bind("127.0.0.1:0").await?;
            let url = format!("http://{}/mcp", bound.local_addr());
            tokio::spawn(bound.serve());
            Client::connect(&url)
        }
        _ => Client::in_process(server),
    };
    Ok(connect.extension(TaskClient::new()).await?)
}

/// Calls the tool this many times. The instructions of a call are those of a long run without those of a short one.
async fn repeat(transport: &str, tool: &str, count: usize) -> Outcome {
    let server = server(store());
    let client = connect(&server, transport).await?;
    let (caller, tool) = (client.clone(), tool.to_owned());
    let calls = async move {
        for _ in 0..count {
            let reply = caller.call_tool(&tool, json!({})).await?;
            assert_eq!(reply.text(), "hello");
        }
        Ok::<(), bowline::Error>(())
    };
    // In a spawned task, as in most applications.
    tokio::spawn(calls).await??;
    Ok(client.close().await?)
}

/// Stores tasks that have completed.
async fn fill(store: &MemoryStore, count: usize) -> Outcome {
    let owner = ReplicaId::random()?;
    for _ in 0..count {
        let task = NewTask::new(TaskId::random()?, "task", owner, Duration::from_secs(6));
        let task = task.ttl(Duration::from_secs(3600));
        let record = store.create(task).await?;
        let result = Json::from_static(r#"{"content":[{"type":"text","text":"hello"}]}"#);
        let change = TaskChange::new().fence(record.fence()).complete(result);
        store.update(record.id, record.version, change).await?;
    }
    Ok(())
}

/// Prints the memory that each of these tasks needs after it has completed.
async fn memory(count: usize) -> Outcome {
    let server = server(store());
    let client = Client::in_process(&server);
    let client = client.extension(TaskClient::new()).await?;
    for _ in 0..100 {
        client.call_tool("task", json!({})).await?;
    }
    let before = resident_bytes()?;
    for _ in 0..count {
        client.call_tool("task", json!({})).await?;
    }
    let bytes = resident_bytes()?.saturating_sub(before) / count.max(1);
    println!("{}", json!({ "bytes_per_task": bytes }));
    Ok(client.close().await?)
}

fn resident_bytes() -> Result<usize, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS")?.parse::<usize>()? * 1024)
}
