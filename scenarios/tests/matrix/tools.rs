//! The server of the matrix, whose handlers are counted.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::exchange::{Outcome, Request};
use bowline::layer::Next;
use bowline::{CallToolResult, Json, Server, Tool};
use bowline_tasks::{TaskClient, TaskSettings, Tasks};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::handler_monitor::HandlerMonitor;

/// The extensions of both ends.
#[derive(Clone, Debug)]
pub(crate) enum Extensions {
    None,
    /// Tasks in this SQLite database.
    Tasks(PathBuf),
}

impl Extensions {
    /// The arguments with which a child process gets the same extensions.
    pub(crate) fn to_arguments(&self) -> Option<OsString> {
        match self {
            Self::None => None,
            Self::Tasks(database) => Some(database.clone().into()),
        }
    }

    pub(crate) fn from_arguments(arguments: &[&str]) -> Self {
        let database = arguments.first();
        database.map_or(Self::None, |database| Self::Tasks(database.into()))
    }

    pub(crate) fn add_to_client(&self, connect: ClientBuilder) -> ClientBuilder {
        match self {
            Self::None => connect,
            Self::Tasks(_) => connect.extension(TaskClient::new()),
        }
    }
}

/// Adds to the server of `handlers` that pages of `tools/list` and subscriptions are counted as handlers.
pub(crate) fn server(handlers: &HandlerMonitor, extensions: &Extensions) -> Server {
    let intercepted = handlers.clone();
    let server = handlers.server().page_size(1);
    let server = server.layer(move |request, next| intercept(intercepted.clone(), request, next));
    match extensions {
        Extensions::None => server,
        Extensions::Tasks(database) => {
            let tasks = Tasks::sqlite(database).unwrap();
            // No client polls during a cell, and the lease is short for the cell that waits for its end.
            let tasks = tasks.poll_interval(Duration::from_secs(3600));
            let tasks = tasks.lease(LEASE).renew_every(LEASE / 4);
            let task = TaskSettings::new().resumable();
            server
                .tool(task_tool(handlers, "task").with_settings(task.clone()))
                .tool(task_tool(handlers, "brief task").with_settings(task.ttl(TTL)))
                .extension(tasks)
        }
    }
}

/// A tool whose handler waits until its `name` argument is released.
fn task_tool(handlers: &HandlerMonitor, tool: &str) -> Tool {
    let handlers = handlers.clone();
    let schema = json!({"type": "object"});
    Tool::raw(tool, schema, move |arguments: Json, _| {
        let handlers = handlers.clone();
        let NameArgument { name } = arguments.decode().unwrap();
        async move {
            let release = handlers.wait_for_release(&name);
            handlers.counter.run(release).await;
            Ok(CallToolResult::text(name))
        }
    })
}

#[derive(Deserialize)]
struct NameArgument {
    name: String,
}

/// Blocks every page of `tools/list` but the first, and counts resource subscriptions as running handlers.
async fn intercept(handlers: HandlerMonitor, request: Request, next: Next) -> Outcome {
    let params: Value = request.params.decode().unwrap();
    match &*request.method {
        "tools/list" if params["cursor"].is_string() => {
            let release = handlers.wait_for_release("pages");
            handlers.counter.run(release).await;
            next.run(request).await
        }
        "subscriptions/listen" if params["notifications"]["resourceSubscriptions"].is_array() => {
            handlers.counter.run(next.run(request)).await
        }
        _ => next.run(request).await,
    }
}

const LEASE: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_millis(500);
