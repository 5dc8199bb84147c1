//! A client that checks a server which offers the interop fixture, whoever wrote it.
//!
//! ```text
//! interop-client auto http://127.0.0.1:3000/mcp
//! interop-client legacy:2025-06-18 python3 server.py --transport stdio
//! ```
//!
//! The mode is `auto`, `2026`, `legacy` or `legacy:VERSION`; what follows is a URL, or a command and its
//! arguments. Each check is a line, `ok NAME`, `FAILED NAME: why` or `skipped NAME: why`, and the last line
//! counts them.

#![allow(
    clippy::print_stdout,
    reason = "a program that reports on stdout; its servers have pipes of their own"
)]

mod checks;
mod mode;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use bowline::Client;
use bowline::wire::Command;
use checks::{CHECKS, Outcome, User};
use mode::Mode;

#[tokio::main]
async fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mode = words.next().as_deref().map(Mode::parse);
    let target: Vec<String> = words.collect();
    let (Some(Ok(mode)), false) = (mode, target.is_empty()) else {
        eprintln!("usage: interop-client auto|2026|legacy[:VERSION] URL | COMMAND…");
        return ExitCode::from(2);
    };
    let mut tally = Tally::default();
    let user = User::default();
    let opened = within(open(&mode, &target, &user)).await;
    tally.count("open", opened.as_ref().map(|_| Outcome::Ok));
    if let Ok(client) = opened {
        println!("# {}", client.dialect().version);
        for (name, check) in CHECKS {
            let outcome = within(check(client.clone(), user.clone())).await;
            tally.count(name, outcome.as_ref().copied());
        }
        let closed = within(async { Ok(client.close().await?) }).await;
        tally.count("close", closed.as_ref().map(|()| Outcome::Ok));
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    match tally.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Connects in the wanted mode, and sees that it is what became of it.
async fn open(mode: &Mode, target: &[String], user: &User) -> checks::Result<Client> {
    let connect = match target {
        [url] if url.starts_with("http://") => Client::connect(url),
        [program, arguments @ ..] => {
            Client::spawn(Command::new(program).args(arguments).inherit_env())
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
    fn count(&mut self, name: &str, outcome: Result<Outcome, &Box<dyn Error>>) {
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
