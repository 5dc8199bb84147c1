//! Our client and our server together: in process, over a wire and over HTTP, on a paused clock.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy exempts only `#[test]` functions, not their helpers"
)]

use std::future::{Ready, pending, ready};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::client::{Host, Reconnect};
use bowline::testing::{HandlerCounter, Matrix, TestTransport, matrix};
use bowline::types::ElicitResult;
use bowline::wire::{Memory, memory};
use bowline::{Client, Context, Error, ErrorCode, Progress, RpcError, Server, Tool, ToolError};
use bowline_tasks::store::{MemoryStore, TaskStatus, Timestamp};
use bowline_tasks::{TaskCall as _, TaskClient, TaskHandle, TaskSettings, Tasks};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// The transports in the version with the extension.
fn modern() -> Matrix {
    matrix().since("2026-07-28")
}

/// A store whose time is that of tokio's clock.
fn store() -> Arc<MemoryStore> {
    let start = Instant::now();
    let clock = move || Timestamp::from_millis(1_785_240_000_000).after(start.elapsed());
    Arc::new(MemoryStore::new().clock(clock))
}

fn server(tools: impl IntoIterator<Item = Tool>) -> Server {
    let server = Server::new("s", "1").extension(Tasks::new(store()));
    tools.into_iter().fold(server, Server::tool)
}

fn task_tool(tool: Tool) -> Tool {
    tool.with_settings(TaskSettings::new())
}

/// Works for 3 seconds and reports after each.
fn slow() -> Tool {
    task_tool(Tool::new("slow", async |cx: Context| {
        for second in 1..=3 {
            sleep(SECOND).await;
            cx.progress(Progress::new(second).message(format!("{second} of 3")));
        }
        "done"
    }))
}

/// Lets this time pass, with all that happens in it.
async fn pass(time: Duration) {
    timeout(time, pending::<()>()).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_task_and_ends_with_it() {
    for case in modern() {
        for (tasks, most) in [
            (TaskClient::new(), 3.2),
            (TaskClient::new().polling_only(), 4.1),
        ] {
            let server = server([slow()]);
            let client = case.serve(&server).connect.extension(tasks).await.unwrap();
            let began = Instant::now();

            let reply = client.call_tool("slow", ()).await.unwrap();

            let took = began.elapsed().as_secs_f64();
            assert_eq!(reply.text(), "done", "{case}");
            assert!((3.0..most).contains(&took), "{case}: {took}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn progress_becomes_status_messages_and_these_become_progress() {
    for case in modern() {
        let server = server([slow()]);
        let client = case.serve(&server).connect.extension(TaskClient::new());
        let client = client.await.unwrap();
        let messages = Arc::new(Mutex::new(Vec::new()));
        let seen = messages.clone();

        let call = client.call_tool("slow", ());
        let call = call.on_progress(move |report| seen.lock().unwrap().extend(report.message));
        call.await.unwrap();

        let messages = messages.lock().unwrap();
        assert!(messages.len() >= 2, "{case}: {messages:?}");
        assert!(
            messages.iter().all(|text| text.ends_with(" of 3")),
            "{case}: {messages:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_drops_the_handler() {
    for case in modern() {
        let handlers = HandlerCounter::default();
        let counted = handlers.clone();
        let hangs = Tool::new("hangs", move || {
            let handlers = counted.clone();
            async move { handlers.run(pending::<String>()).await }
        });
        let server = server([task_tool(hangs)]);
        let client = case.serve(&server).connect.extension(TaskClient::new());
        let client = client.await.unwrap();
        let call = tokio::spawn(client.call_tool("hangs", ()));
        pass(2 * SECOND).await;
        let counts = handlers.counts();
        assert_eq!((counts.started, counts.dropped), (1, 0), "{case}");

        call.abort();
        pass(SECOND).await;

        assert_eq!(handlers.counts().dropped, 1, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_outlives_its_client() {
    for case in modern() {
        let server = server([slow()]);
        let connect = || case.serve(&server).connect.extension(TaskClient::new());
        let client = connect().await.unwrap();
        let task = client.call_tool("slow", ()).as_task().await.unwrap();
        let id = task.id().unwrap().to_owned();
        assert_eq!(
            task.status().await.unwrap().status,
            TaskStatus::Working,
            "{case}"
        );
        drop(task);
        client.close().await.unwrap();

        let client = connect().await.unwrap();
        let task = TaskHandle::attach(&client, id);

        assert_eq!(task.wait().await.unwrap().text(), "done", "{case}");
        let status = task.status().await.unwrap();
        assert_eq!(status.status, TaskStatus::Completed, "{case}");
        assert_eq!(status.ttl, Some(3600 * SECOND), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_cancels_its_task() {
    for case in modern() {
        let server = server([slow()]);
        let client = case.serve(&server).connect.extension(TaskClient::new());
        let client = client.await.unwrap();
        let task = client.call_tool("slow", ()).as_task().await.unwrap();

        task.cancel().await.unwrap();
        let error = task.wait().await.unwrap_err();

        assert!(
            matches!(error, Error::Cancelled { .. }),
            "{case}: {error:?}"
        );
    }
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Asks for two names, one after the other.
fn greets() -> Tool {
    task_tool(Tool::new("greet", async |cx: Context| {
        let first = cx.elicit::<Name>("first", "Your name?").await?;
        let second = cx.elicit::<Name>("second", "And yours?").await?;
        Ok::<_, ToolError>(format!("{} and {}", first.name, second.name))
    }))
}

#[tokio::test(start_paused = true)]
async fn the_host_answers_each_question_of_a_task_once() {
    for case in modern() {
        for tasks in [TaskClient::new(), TaskClient::new().polling_only()] {
            let server = server([greets()]);
            let asked = Arc::new(Mutex::new(Vec::new()));
            let seen = asked.clone();
            let host = Host::new().elicitation(move |form| {
                seen.lock().unwrap().push(form.message.clone());
                async move {
                    sleep(5 * SECOND).await; // the user types
                    ElicitResult::accept(json!({"name": form.message.len().to_string()}))
                }
            });
            let client = case.serve(&server).connect.extension(tasks).host(host);
            let client = client.await.unwrap();

            let reply = client.call_tool("greet", ()).await.unwrap();

            assert_eq!(reply.text(), "10 and 10", "{case}");
            assert_eq!(
                *asked.lock().unwrap(),
                ["Your name?", "And yours?"],
                "{case}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn errors_and_direct_answers_are_those_of_the_call() {
    for case in modern() {
        let fails = Tool::new("fails", async || -> Result<String, RpcError> {
            Err(RpcError::new(ErrorCode(-32050), "no such film"))
        });
        let unhappy = Tool::new("unhappy", async || {
            Err::<String, _>(ToolError::new("no disk"))
        });
        let direct = Tool::new("direct", async || "now");
        let server = server([task_tool(fails), task_tool(unhappy), direct]);
        let client = case.serve(&server).connect.extension(TaskClient::new());
        let client = client.await.unwrap();

        let failed = client.call_tool("fails", ()).await.unwrap_err();
        let unhappy = client.call_tool("unhappy", ()).await.unwrap();
        let direct = client.call_tool("direct", ()).as_task().await.unwrap();

        assert_eq!(failed.to_string(), "no such film (-32050)", "{case}");
        assert!(unhappy.is_error() && unhappy.text() == "no disk", "{case}");
        assert_eq!(direct.id(), None, "{case}");
        assert_eq!(direct.wait().await.unwrap().text(), "now", "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_task_is_a_clear_error() {
    let server = Server::new("s", "1").tool(slow());
    let tasks = Tasks::new(store()).ttl(10 * SECOND).removal_delay(SECOND);
    let server = server.extension(tasks);
    let client = Client::in_process(&server).protocol_version("2026-07-28");
    let client = client.extension(TaskClient::new()).await.unwrap();
    let task = client.call_tool("slow", ()).as_task().await.unwrap();

    pass(600 * SECOND).await;
    let error = task.wait().await.unwrap_err();

    assert!(
        error.to_string().contains("does not know the task"),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_task_takes_no_longer_than_its_work() {
    let quick = task_tool(Tool::new("quick", async || "done"));
    for case in modern() {
        let server = server([quick.clone()]);
        let connection = case.serve(&server);
        let record = connection.record;
        let client = connection
            .connect
            .extension(TaskClient::new())
            .await
            .unwrap();

        let began = Instant::now();
        client.call_tool("quick", ()).await.unwrap();

        assert!(
            began.elapsed() < SECOND / 20,
            "{case}: {:?}",
            began.elapsed()
        );
        if case.transport == TestTransport::Memory {
            let sent = record.unwrap().sent();
            let methods: Vec<_> = sent.iter().map(|frame| &frame["method"]).collect();
            assert_eq!(methods, ["tools/call", "tasks/get"], "no subscription");
        }
    }
}

/// A process that serves one connection, until it is killed.
struct Process {
    server: Server,
    serving: Vec<JoinHandle<()>>,
}

#[tokio::test(start_paused = true)]
async fn a_call_outlives_the_process_of_its_server() {
    let (store, runs) = (store(), Arc::new(Mutex::new(0)));
    let counted = runs.clone();
    let resumable = Tool::new("resumable", move || {
        let runs = counted.clone();
        async move {
            let run = {
                let mut runs = runs.lock().unwrap();
                *runs += 1;
                *runs
            };
            sleep(10 * SECOND).await;
            format!("run {run}")
        }
    });
    let resumable = resumable.with_settings(TaskSettings::new().resumable());
    let start = move || {
        let server = Server::new("s", "1").tool(resumable.clone());
        Process {
            server: server.extension(Tasks::new(store.clone())),
            serving: Vec::new(),
        }
    };
    let process = Arc::new(Mutex::new(Some(start())));
    let client = Client::from_wire_fn(connect_to(process.clone())).protocol_version("2026-07-28");
    let client = client
        .reconnect(Reconnect::default())
        .extension(TaskClient::new());
    let client = client.await.unwrap();

    let call = tokio::spawn(client.call_tool("resumable", ()).timeout(600 * SECOND));
    pass(5 * SECOND).await;
    for serving in process.lock().unwrap().take().unwrap().serving {
        serving.abort();
    }
    pass(90 * SECOND).await;
    assert!(!call.is_finished());
    *process.lock().unwrap() = Some(start());

    assert_eq!(call.await.unwrap().unwrap().text(), "run 2");
    assert_eq!(*runs.lock().unwrap(), 2);
}

/// Connects to the process that runs, if one does.
fn connect_to(
    process: Arc<Mutex<Option<Process>>>,
) -> impl FnMut() -> Ready<io::Result<Memory>> + Send + 'static {
    move || {
        let mut process = process.lock().unwrap();
        let Some(process) = &mut *process else {
            return ready(Err(io::ErrorKind::ConnectionRefused.into()));
        };
        let (near, far) = memory();
        let server = process.server.clone();
        process.serving.push(tokio::spawn(async move {
            let _ = server.serve(far).await;
        }));
        ready(Ok(near))
    }
}
