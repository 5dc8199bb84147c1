//! The child programs: a Bowline server, and servers that behave as other implementations do.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::wire::Command;
use bowline::{CallToolResult, Server, Tool, wire};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// The environment variable that selects the program to run.
pub(crate) const VARIABLE: &str = "BOWLINE_TEST_PROGRAM";

/// A command that runs this executable as `program`.
pub(crate) fn command(program: &str) -> Command {
    std_command(program).into()
}

/// A command that runs a shell script, whose `$0` is this executable as `program`.
pub(crate) fn script(program: &str, script: &str) -> Command {
    let executable = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", script])
        .arg(executable)
        .env(VARIABLE, program)
}

pub(crate) fn std_command(program: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.env(VARIABLE, program);
    command
}

pub(crate) fn run(program: &str) -> ExitCode {
    match program {
        "server" => serve(),
        "http_server" => serve_http(),
        "unknown_error" => serve_lines(answer_probe_with_unknown_error),
        "ignores_probe" => serve_lines(answer_legacy),
        "exits_at_probe" => serve_lines(|message| {
            if message["method"] != "initialize" && message["id"] == 1 {
                eprintln!("not initialized");
                std::process::exit(3);
            }
            answer_legacy(message)
        }),
        "exits_at_call" => serve_lines(|message| match message["method"].as_str() {
            Some("tools/call") => std::process::exit(3),
            _ => answer_legacy(message),
        }),
        "hangs_after_probe" => hang_after_probe(|| {}),
        "exits_at_handshake" => hang_after_probe(|| std::process::exit(3)),
        "never_answers" => never_answer(),
        "lists_methods" => list_methods(),
        "prints_to_stdout" => {
            println!("Listening on stdio.");
            serve_lines(|message| {
                assert!(
                    message["method"].is_string(),
                    "unexpected response: {message}"
                );
                println!("[debug] {}", message["method"]);
                answer_legacy(message)
            });
        }
        "answers_probe_late" => {
            let mut probe = Value::Null;
            serve_lines(move |message| match message["method"].as_str() {
                Some("server/discover") => {
                    probe = message["id"].clone();
                    vec![]
                }
                Some("initialize") => {
                    let late = result(&probe, discovery());
                    [vec![late], answer_legacy(message)].concat()
                }
                _ => answer_legacy(message),
            });
        }
        "rejects_handshake" => {
            let mut probes = 0;
            serve_lines(move |message| match message["method"].as_str() {
                Some("server/discover") => {
                    probes += 1;
                    if probes == 1 {
                        vec![]
                    } else {
                        vec![result(&message["id"], discovery())]
                    }
                }
                Some("initialize") => vec![json!({
                    "jsonrpc": "2.0",
                    "id": message["id"],
                    "error": {
                        "code": -32022,
                        "message": "unsupported protocol version",
                        "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
                    },
                })],
                _ => answer_legacy(message),
            });
        }
        other => panic!("unknown program `{other}`"),
    }
    ExitCode::SUCCESS
}

/// Answers `tools/call` with the methods of all requests so far.
fn list_methods() {
    let mut methods = Vec::new();
    serve_lines(move |message| {
        let method = message["method"].as_str().unwrap_or_default();
        methods.push(method.to_owned());
        match method {
            "server/discover" => answer_probe_with_unknown_error(message),
            "tools/call" => {
                let content = json!([{"type": "text", "text": methods.join(" ")}]);
                vec![result(&message["id"], json!({"content": content}))]
            }
            _ => answer_legacy(message),
        }
    });
}

/// Answers nothing after a request that precedes `initialize`, as Python's `mcp` did until 1.7. Calls `at_handshake`
/// when it then receives `initialize`.
fn hang_after_probe(at_handshake: fn()) {
    let mut is_hanging = false;
    serve_lines(move |message| {
        let method = message["method"].as_str().unwrap_or_default();
        eprintln!("{method}");
        is_hanging |= method == "server/discover";
        if !is_hanging {
            return answer_legacy(message);
        }
        if method == "initialize" {
            at_handshake();
        }
        vec![]
    });
}

/// Answers nothing.
fn never_answer() {
    serve_lines(|message| {
        eprintln!("{}", message["method"].as_str().unwrap_or_default());
        vec![]
    });
}

/// A Bowline server over HTTP, which prints its process id and its URL.
fn serve_http() {
    let server = Server::new("child", "1.0.0").tool(await_signal());
    let serving = async {
        // No load balancer has to notice.
        let service = server.http().drain_delay(Duration::from_millis(50));
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let (id, addr) = (std::process::id(), bound.local_addr());
        println!("{id} http://{addr}/mcp");
        bound.serve_until_signal().await
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(serving).unwrap();
}

/// Returns a tool that finishes when the process gets SIGTERM.
fn await_signal() -> Tool {
    Tool::raw("await signal", json!({"type": "object"}), async |_, _| {
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        let mut interrupt = signal(SignalKind::interrupt()).unwrap();
        eprintln!("{} awaits", std::process::id());
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tokio::task::yield_now().await;
        Ok(CallToolResult::text("finished"))
    })
}

/// A Bowline server with tools that print, hang or start processes.
fn serve() {
    let object = || json!({"type": "object"});
    let server = Server::new("child", "1.0.0")
        .tool(Tool::raw("echo", object(), async |arguments, _| {
            Ok(CallToolResult::text(arguments.to_string()))
        }))
        .tool(Tool::raw("print", object(), async |_, _| {
            println!("a stray line");
            Ok(CallToolResult::text("printed"))
        }))
        .tool(Tool::raw("nest", object(), async |_, _| {
            let mut nested = tokio::process::Command::new("sh");
            nested.args(["-c", r#"read line; echo "nested read <$line>""#]);
            let status = nested.status().await.unwrap();
            Ok(CallToolResult::text(status.to_string()))
        }))
        .tool(Tool::raw("take again", object(), async |_, _| {
            Ok(CallToolResult::text(wire::stdio().unwrap_err().to_string()))
        }))
        .tool(Tool::raw("hang", object(), async |_, _| {
            let _guard = CountDrop;
            eprintln!("{} hangs", std::process::id());
            std::future::pending().await
        }))
        .tool(Tool::raw("await drop", object(), async |_, _| {
            WAS_DROPPED.notified().await;
            Ok(CallToolResult::text(
                DROPPED.load(Ordering::SeqCst).to_string(),
            ))
        }))
        .tool(await_signal())
        .tool(Tool::raw("variables", object(), async |_, _| {
            let names = std::env::vars_os().map(|(name, _)| name.into_string().unwrap());
            Ok(CallToolResult::text(names.collect::<Vec<_>>().join("\n")))
        }));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(server.serve_stdio()).unwrap();
}

struct CountDrop;

impl Drop for CountDrop {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
        WAS_DROPPED.notify_one();
    }
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);
static WAS_DROPPED: Notify = Notify::const_new();

/// Reads messages and writes the replies of `answer`, until the input ends.
fn serve_lines(mut answer: impl FnMut(&Value) -> Vec<Value>) {
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        for message in answer(&message) {
            println!("{message}");
        }
        std::io::stdout().flush().unwrap();
    }
}

fn answer_probe_with_unknown_error(message: &Value) -> Vec<Value> {
    if message["method"] != "server/discover" {
        return answer_legacy(message);
    }
    let error = json!({"code": 12345, "message": "who are you?"});
    vec![json!({"jsonrpc": "2.0", "id": message["id"], "error": error})]
}

/// Answers `initialize` and `tools/call`, and ignores everything else.
fn answer_legacy(message: &Value) -> Vec<Value> {
    let answer = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "old", "version": "0.1.0"},
        }),
        Some("tools/call") => json!({
            "resultType": "complete",
            "content": [{"type": "text", "text": "done"}],
        }),
        _ => return vec![],
    };
    vec![result(&message["id"], answer)]
}

fn discovery() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    })
}

#[allow(clippy::needless_pass_by_value, reason = "the argument is a literal")]
fn result(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}
