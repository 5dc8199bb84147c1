//! A client that checks a server of any SDK which provides the interop fixture.
//!
//! ```text
//! interop-client auto http://127.0.0.1:3000/mcp
//! interop-client legacy:2025-06-18 python3 server.py --transport stdio
//! interop-client auto --tool get-sum '{"a": 2, "b": 40}' 42 mcp-server-everything stdio
//! interop-client auto --tasks http://127.0.0.1:3000/mcp
//! ```
//!
//! The mode is `auto`, `2026`, `legacy` or `legacy:VERSION`, followed by a URL, or a command and its arguments. Each
//! check prints a line, `ok NAME`, `FAILED NAME: why` or `skipped NAME: why`, and the last line counts them. `ok NAME: how`
//! is a check that passes because it works around a failure of the server.
//!
//! A server without the fixture is checked with `--tool NAME ARGUMENTS EXPECTED`: this tool is listed, and returns text
//! that contains the expected one; a call is dropped, that of `--slow NAME ARGUMENTS` if it is given; and the server
//! exits when its input is closed. With `--tasks` the tasks fixture is checked instead.

#![allow(
    clippy::print_stdout,
    reason = "the program reports on stdout; its servers have separate pipes"
)]

mod checks;
mod mode;
mod scripted_host;
mod tasks;
mod tool_case;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bowline::Client;
use bowline::wire::Command;
use bowline_tasks::TaskClient;
use checks::{CHECKS, Outcome};
use mode::Mode;
use scripted_host::ScriptedHost;
use tasks::TaskCheck;
use tool_case::ToolCase;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mode, checked, target) = match parse(&words) {
        Ok(parsed) => parsed,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut counts = CheckCounts::default();
    let host = ScriptedHost::default();
    match within(open(&mode, target, &host)).await {
        Err(error) => counts.count("open", Err(error)),
        Ok(client) => {
            counts.count("open", Ok(Outcome::Ok));
            println!("# {}", client.dialect().version);
            match checked {
                Checked::Fixture => check_fixture(&mut counts, &host, client).await,
                Checked::Tasks => check_tasks(&mut counts, &host, client).await,
                Checked::Tool(case) => check_case(&mut counts, &case, client).await,
            }
        }
    }
    println!("{} passed, {} failed", counts.passed, counts.failed);
    match counts.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// What is checked of the server.
#[derive(Debug)]
enum Checked {
    Fixture,
    Tasks,
    Tool(ToolCase),
}

/// Parses the command line: the mode, what is checked, and the server.
fn parse(words: &[String]) -> Result<(Mode, Checked, &[String]), String> {
    let (mode, rest) = words.split_first().ok_or("no mode given")?;
    let (checked, target) = match rest {
        [option, target @ ..] if option == "--tasks" => (Checked::Tasks, target),
        _ => match ToolCase::parse(rest)? {
            (Some(case), target) => (Checked::Tool(case), target),
            (None, target) => (Checked::Fixture, target),
        },
    };
    if target.is_empty() {
        return Err("no server given".to_owned());
    }
    Ok((Mode::parse(mode)?, checked, target))
}

async fn check_fixture(counts: &mut CheckCounts, host: &ScriptedHost, client: Client) {
    for (name, check) in CHECKS {
        counts.count(name, within(check(client.clone(), host.clone())).await);
    }
    counts.count("close", within(close(client)).await);
}

async fn check_tasks(counts: &mut CheckCounts, host: &ScriptedHost, client: Client) {
    for check in TaskCheck::ALL {
        counts.count(check.name(), within(check.run(&client, host)).await);
    }
    counts.count("close", within(close(client)).await);
}

async fn close(client: Client) -> checks::Result<Outcome> {
    Ok(client.close().await.map(|()| Outcome::Ok)?)
}

async fn check_case(counts: &mut CheckCounts, case: &ToolCase, client: Client) {
    counts.count("list", within(case.list(&client)).await);
    counts.count("call", within(case.call(&client)).await);
    counts.count("abandon", within(case.abandon(&client)).await);
    counts.count("close", within(close_and_check_exit(client)).await);
}

/// Closes the client; a server that it started must exit because its input ends, before it is killed.
async fn close_and_check_exit(client: Client) -> checks::Result<Outcome> {
    let closing = Instant::now();
    client.close().await?;
    tool_case::ensure_no_children()?;
    checks::ensure(closing.elapsed() < GRACE, || {
        "the server does not exit when its input is closed".to_owned()
    })?;
    Ok(Outcome::Ok)
}

/// Connects in this mode, and checks the negotiated version.
async fn open(mode: &Mode, target: &[String], host: &ScriptedHost) -> checks::Result<Client> {
    let connect = match target {
        [url] if url.starts_with("http://") => Client::connect(url),
        [program, arguments @ ..] => {
            let command = Command::new(program).args(arguments);
            Client::spawn(command.inherit_env().grace(GRACE))
        }
        [] => return Err("no server given".into()),
    };
    let log = host.clone();
    let connect = connect
        .client_info("interop-client", "1.0.0")
        .connect_timeout(TIME_LIMIT)
        .host(host.host())
        .on_log(move |message| log.record(message))
        .extension(TaskClient::new());
    let client = match mode.version() {
        Some(version) => connect.protocol_version(version).await?,
        None => connect.await?,
    };
    match mode.version() {
        Some(version) if version != client.dialect().version => {
            let negotiated = client.dialect().version;
            Err(format!("expected version {version}, negotiated {negotiated}").into())
        }
        _ => Ok(client),
    }
}

/// The number of passed and failed checks.
#[derive(Default)]
struct CheckCounts {
    passed: usize,
    failed: usize,
}

impl CheckCounts {
    fn count(&mut self, name: &str, outcome: checks::Result<Outcome>) {
        match outcome {
            Ok(Outcome::Ok) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Ok(Outcome::Helped(how)) => {
                self.passed += 1;
                println!("ok {name}: {how}");
            }
            Ok(Outcome::Skipped(why)) => println!("skipped {name}: {why}"),
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}: {}", with_causes(error.as_ref()));
            }
        }
    }
}

/// An error and its causes, in one line.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text.replace('\n', " ")
}

async fn within<T>(check: impl Future<Output = checks::Result<T>>) -> checks::Result<T> {
    match tokio::time::timeout(TIME_LIMIT, check).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("timed out after {} s", TIME_LIMIT.as_secs()).into()),
    }
}

/// The limit of one check, which takes less than a second on an idle machine; the start of an interpreter some.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The time in which a server must exit after its input was closed.
const GRACE: Duration = Duration::from_secs(5);

const USAGE: &str = "usage: interop-client auto|2026|legacy[:VERSION] \
    [--tasks | --tool NAME ARGUMENTS EXPECTED [--slow NAME ARGUMENTS]] URL | COMMAND…";
