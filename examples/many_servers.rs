//! A client of several servers at once, some started by it and some reached over HTTP.
//!
//! ```sh
//! cargo build --examples
//! cargo run --example axum    # in another terminal: a server at http://127.0.0.1:8000/mcp
//! cargo run --example many_servers -- sum=target/debug/examples/calculator \
//!     db='target/debug/examples/sqlite --db notes.db' web=http://127.0.0.1:8000/mcp
//! ```
//!
//! It lists all tools with the name of their server, and performs the calls that the user types. `add {"a": 1, "b": 2}`
//! calls `add` on all servers concurrently, `sum.add {"a": 1, "b": 2}` on one; `db.execute {"sql": "DROP TABLE notes"}`
//! is confirmed by `true`. A call has ten seconds, and shows its progress. If a server ends, its calls fail, and the
//! next ones wait until it has started again. Ctrl-C, or the end of the input, drops calls, which cancels them, and ends
//! the servers.

use std::{sync::Arc, time::Duration};

use bowline::client::{Host, Reconnect};
use bowline::prelude::*;
use bowline::types::{ElicitAction, ElicitRequestFormParams, ElicitResult};
use bowline::wire::Command;
use futures_util::future::join_all;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, mpsc};

/// A server. If this program started it and it ends, the client starts it again.
struct Remote {
    name: String,
    client: Client,
}

impl Remote {
    /// Connects to `name=URL`, or to `name=PROGRAM ARGUMENTS`, which it starts.
    async fn connect(argument: String, terminal: Terminal) -> Option<Self> {
        let (name, target) = argument.split_once('=').unwrap_or((&argument, &argument));
        let mut words = target.split_whitespace();
        let connect = match target.starts_with("http") {
            true => Client::connect(target),
            false => Client::spawn(Command::new(words.next().unwrap_or_default()).args(words)),
        };
        let host = Host::new().elicitation(move |form| terminal.clone().fill_in(form));
        let connected = connect.host(host).reconnect(Reconnect::default()).await;
        let connected = connected.inspect_err(|error| println!("{name}: failed: {error}"));
        Some(Self {
            name: name.to_owned(),
            client: connected.ok()?,
        })
    }

    /// Prints the tools as `server.tool`.
    async fn list(&self) -> bowline::Result<()> {
        for tool in self.client.list_tools().await? {
            println!("{}.{}", self.name, tool.name);
        }
        Ok(())
    }

    /// Calls a tool, and prints its progress and its answer.
    async fn call(&self, tool: &str, arguments: &Value) -> bowline::Result<()> {
        let name = self.name.clone();
        let reply = self
            .client
            .call_tool(tool, arguments)
            .timeout(Duration::from_secs(10))
            .on_progress(move |report| println!("{name}: at {}", report.progress))
            .await;
        println!("{}: {}", self.name, reply?.text());
        Ok(())
    }

    fn print_error(&self, result: bowline::Result<()>) {
        if let Err(error) = result {
            println!("{}: failed: {error}", self.name);
        }
    }
}

/// The lines that the user types. A thread reads them, so that the program can end while it waits for one.
#[derive(Clone)]
struct Terminal(Arc<Mutex<mpsc::Receiver<String>>>);

impl Terminal {
    fn open() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            let mut lines = std::io::stdin().lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.blocking_send(line))
        });
        Self(Arc::new(Mutex::new(lines)))
    }

    /// Asks for each field of a form. An empty line declines.
    async fn fill_in(self, form: ElicitRequestFormParams) -> ElicitResult {
        let mut lines = self.0.lock().await; // one form at a time
        let mut content = Map::new();
        for (field, _) in form.requested_schema.properties.0 {
            println!("{} ({field})", form.message);
            let line = lines.recv().await.unwrap_or_default();
            if line.is_empty() {
                return ElicitResult::new(ElicitAction::Decline);
            }
            let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
            content.insert(field, value);
        }
        ElicitResult::accept(Value::Object(content))
    }
}

/// Performs the calls that the user types.
async fn perform_calls(remotes: &[Remote], terminal: &Terminal) {
    while let Some(line) = { terminal.0.lock().await.recv().await } {
        let (name, arguments) = line.split_once(' ').unwrap_or((&line, "{}"));
        let Ok(arguments) = serde_json::from_str(arguments) else {
            println!("expected `tool {{…}}` or `server.tool {{…}}`");
            continue;
        };
        let (server, tool) = name.split_once('.').unwrap_or(("", name));
        let is_called = |remote: &&Remote| server.is_empty() || server == remote.name;
        let call = async |remote: &Remote| remote.print_error(remote.call(tool, &arguments).await);
        join_all(remotes.iter().filter(is_called).map(call)).await;
    }
}

#[tokio::main]
async fn main() {
    let terminal = Terminal::open();
    let arguments = std::env::args().skip(1);
    let connect = |argument| Remote::connect(argument, terminal.clone());
    let connected = join_all(arguments.map(connect)).await;
    let remotes: Vec<_> = connected.into_iter().flatten().collect();
    let list = async |remote: &Remote| remote.print_error(remote.list().await);
    join_all(remotes.iter().map(list)).await;
    tokio::select! {
        () = perform_calls(&remotes, &terminal) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    join_all(remotes.into_iter().map(|remote| remote.client.close())).await;
    println!("all servers have ended");
}
