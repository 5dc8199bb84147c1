//! A client that checks a server which offers the interop fixture, whoever wrote it.
//!
//! ```text
//! interop-client auto http://127.0.0.1:3000/mcp
//! interop-client legacy:2025-06-18 python3 server.py --transport stdio
//! interop-client auto --tool get-sum '{"a": 2, "b": 40}' 42 mcp-server-everything stdio
//! ```
//!
//! The mode is `auto`, `2026`, `legacy` or `legacy:VERSION`; what follows is a URL, or a command and its
//! arguments. Each check is a line, `ok NAME`, `FAILED NAME: why` or `skipped NAME: why`, and the last line
//! counts them.
//!
//! A server that does not offer the fixture is checked with `--tool NAME ARGUMENTS EXPECTED`: this tool is listed,
//! and answers a call with text that contains the expected one; a call is dropped, that of `--slow NAME ARGUMENTS`
//! if there is such a tool; and the server ends when its input is closed.

#![allow(
    clippy::print_stdout,
    reason = "a program that reports on stdout; its servers have pipes of their own"
)]

mod checks;
mod mode;
mod tool_case;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bowline::Client;
use bowline::wire::Command;
use checks::{CHECKS, Outcome, User};
use mode::Mode;
use tool_case::ToolCase;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mode, case, target) = match parse(&words) {
        Ok(parsed) => parsed,
        Err(complaint) => {
            eprintln!("{complaint}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut tally = Tally::default();
    let user = User::default();
    match within(open(&mode, target, &user)).await {
        Err(error) => tally.count("open", Err(error)),
        Ok(client) => {
            tally.count("open", Ok(Outcome::Ok));
            println!("# {}", client.dialect().version);
            match case {
                Some(case) => check_case(&mut tally, &case, client).await,
                None => check_fixture(&mut tally, &user, client).await,
            }
        }
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    match tally.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Reads the command line: how to connect, what to call instead of the fixture, and the server.
fn parse(words: &[String]) -> Result<(Mode, Option<ToolCase>, &[String]), String> {
    let (mode, rest) = words.split_first().ok_or("there is no mode")?;
    let (case, target) = ToolCase::parse(rest)?;
    if target.is_empty() {
        return Err("there is no server".to_owned());
    }
    Ok((Mode::parse(mode)?, case, target))
}

async fn check_fixture(tally: &mut Tally, user: &User, client: Client) {
    for (name, check) in CHECKS {
        tally.count(name, within(check(client.clone(), user.clone())).await);
    }
    let close = async { Ok(client.close().await.map(|()| Outcome::Ok)?) };
    tally.count("close", within(close).await);
}

async fn check_case(tally: &mut Tally, case: &ToolCase, client: Client) {
    tally.count("list", within(case.list(&client)).await);
    tally.count("call", within(case.call(&client)).await);
    tally.count("abandon", within(case.abandon(&client)).await);
    tally.count("close", within(close_and_see_it_end(client)).await);
}

/// Closes the client; a server that it has started must exit because its input ends, before it is killed.
async fn close_and_see_it_end(client: Client) -> checks::Result<Outcome> {
    let closing = Instant::now();
    client.close().await?;
    tool_case::ensure_no_children()?;
    checks::ensure(closing.elapsed() < GRACE, || {
        "it does not exit when its input is closed".to_owned()
    })?;
    Ok(Outcome::Ok)
}

/// Connects in the wanted mode, and sees that it is what became of it.
async fn open(mode: &Mode, target: &[String], user: &User) -> checks::Result<Client> {
    let connect = match target {
        [url] if url.starts_with("http://") => Client::connect(url),
        [program, arguments @ ..] => {
            let command = Command::new(program).args(arguments);
            Client::spawn(command.inherit_env().grace(GRACE))
        }
        [] => return Err("there is no target".into()),
    };
    let connect = connect.named("interop-client", "1.0.0").host(user.host());
    let client = match mode.version() {
        Some(version) => connect.speaking(version).await?,
        None => connect.await?,
    };
    match mode.version() {
        Some(version) if version != client.dialect().version => {
            Err(format!("it speaks {}", client.dialect().version).into())
        }
        _ => Ok(client),
    }
}

/// How many checks went how.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn count(&mut self, name: &str, outcome: checks::Result<Outcome>) {
        match outcome {
            Ok(Outcome::Ok) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Ok(Outcome::Skipped(why)) => println!("skipped {name}: {why}"),
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}: {}", with_causes(error.as_ref()));
            }
        }
    }
}

/// An error and what led to it, in one line.
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
    match tokio::time::timeout(PATIENCE, check).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("not done after {} s", PATIENCE.as_secs()).into()),
    }
}

/// No check takes a second, on a machine that has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a server has to exit after its input was closed.
const GRACE: Duration = Duration::from_secs(5);

const USAGE: &str = "usage: interop-client auto|2026|legacy[:VERSION] \
    [--tool NAME ARGUMENTS EXPECTED [--slow NAME ARGUMENTS]] URL | COMMAND…";
