//! The tasks fixture on rmcp, whose tasks live in memory.
//!
//! ```text
//! task-server --transport stdio
//! task-server --transport http --port 3000
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer};
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1).map(String::as_str)
    };
    let fixture = Fixture::default();
    if after("--transport") == Some("http") {
        let port: u16 = after("--port").unwrap_or("0").parse()?;
        return serve_http(fixture, port).await;
    }
    let running = fixture.serve(rmcp::transport::stdio()).await?;
    running.waiting().await?;
    Ok(())
}

async fn serve_http(fixture: Fixture, port: u16) -> Result<(), Box<dyn Error>> {
    let service = StreamableHttpService::new(
        move || Ok(fixture.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("READY http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

/// The state that all connections share.
#[derive(Clone, Default)]
struct Fixture {
    tasks: TaskManager,
    counters: Arc<Mutex<Counters>>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    started: u64,
    finished: u64,
    cancelled: u64,
}

impl Fixture {
    fn count(&self, change: impl FnOnce(&mut Counters)) -> Counters {
        let mut counters = self.counters.lock().expect("the lock is not poisoned");
        change(&mut counters);
        *counters
    }

    fn stats(&self) -> CallToolResult {
        let Counters {
            started,
            finished,
            cancelled,
        } = self.count(|_| ());
        let stats = json!({"started": started, "finished": finished, "cancelled": cancelled});
        CallToolResult::structured(stats)
    }

    /// The body of a task.
    async fn run(
        self,
        tool: String,
        arguments: Value,
        task: TaskContext,
    ) -> Result<CallToolResult, TaskExit> {
        let argument = |name: &str| arguments.get(name).cloned().unwrap_or_default();
        match tool.as_str() {
            "task_echo" => Ok(text(decode::<String>(argument("text"))?)),
            "task_slow" => self.slow(decode(argument("seconds"))?, task).await,
            "task_ask" => ask(task).await,
            "task_fail" => {
                let message: String = decode(argument("message"))?;
                Ok(CallToolResult::error(vec![ContentBlock::text(message)]))
            }
            _ => {
                let why = Some(json!({"why": "fixture"}));
                Err(ErrorData::new(ErrorCode(-32000), "boom, as asked", why).into())
            }
        }
    }

    /// Cancellation is cooperative: the body must wait for it.
    async fn slow(&self, seconds: f64, task: TaskContext) -> Result<CallToolResult, TaskExit> {
        self.count(|counters| counters.started += 1);
        tokio::select! {
            () = task.cancelled() => {
                self.count(|counters| counters.cancelled += 1);
                Err(TaskExit::Cancelled)
            }
            () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {
                self.count(|counters| counters.finished += 1);
                Ok(text("slept"))
            }
        }
    }
}

async fn ask(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let question: ElicitRequestParams = decode(json!({
        "mode": "form",
        "message": "What is your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    }))?;
    let question = InputRequest::Elicitation(ElicitRequest::new(question));
    let answer: ElicitResult = decode(task.request_input("name", question).await?)?;
    let content = answer.content.unwrap_or_default();
    Ok(match answer.action {
        ElicitationAction::Accept => text(format!(
            "accepted:{}",
            content["name"].as_str().unwrap_or_default()
        )),
        ElicitationAction::Decline => text("declined"),
        _ => text("cancelled"),
    })
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("rmcp-tasks", "1"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = TASK_TOOLS.iter().chain([&"task_stats"]);
        let listed = listed.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
        // A decoded `ListToolsResult` would lack its `resultType`.
        let tools: Vec<Tool> = decode(Value::Array(listed.collect()))?;
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = request.name.into_owned();
        if tool == "task_stats" {
            return Ok(self.stats().into());
        }
        let declared = context.client_capabilities();
        if !TASK_TOOLS.contains(&tool.as_str()) || !declared.is_some_and(|it| it.supports_tasks()) {
            return Err(ErrorData::invalid_params(
                format!("cannot call `{tool}`"),
                None,
            ));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let fixture = self.clone();
        // Our client polls at this interval, because this server does not notify.
        let options = TaskOptions::new().with_poll_interval_ms(50);
        let task = self.tasks.spawn(options, move |task| {
            Box::pin(fixture.run(tool, arguments, task))
        });
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let UpdateTaskParams {
            task_id,
            input_responses,
            ..
        } = request;
        self.tasks.update_task(&task_id, input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn decode<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::invalid_params(error.to_string(), None))
}

const TASK_TOOLS: [&str; 5] = [
    "task_echo",
    "task_slow",
    "task_ask",
    "task_fail",
    "task_boom",
];
