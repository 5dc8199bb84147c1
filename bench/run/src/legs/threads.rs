//! The runtime that most programs have, `#[tokio::main]` with its several threads, on one core and on two.

use crate::legs::{clients, http_server, subscriptions};
use crate::load::{Era, Message};
use crate::machine::{self, Core};
use crate::measure::Row;
use crate::options::Options;
use crate::program::{Program, Setting, Subject};

pub(crate) fn one_and_two_cores(options: &Options) -> Vec<Row> {
    let mut rows = on(options, Core::Test, "several threads, one core");
    if machine::cores() > 1 {
        rows.extend(on(options, Core::Both, "several threads, two cores"));
    } else {
        eprintln!("  did not run on two cores: there is one");
    }
    rows
}

/// A server's calls, a client's calls, and one notice to many, on these cores.
fn on(options: &Options, core: Core, name: &str) -> Vec<Row> {
    let setting = Setting {
        core,
        arguments: &["--threads"],
    };
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let subjects = Subject::FULL;
    let serving = http_server::run(options, &subjects, setting, 64, &message, Era::Modern);

    // The server of all clients is the load, and stays as it is: one thread on its core.
    let (server, address) = Program::serve(Subject::Raw, Setting::LOAD);
    let url = format!("http://{address}/mcp");
    let calling = clients::run(options, &subjects, setting, &["--url", &url], 64);
    drop(server);

    let mut rows = vec![
        Row::cpu(
            format!("{name}: HTTP server, `tools/call`, 64 connections"),
            None,
            &serving,
        ),
        Row::cpu(format!("{name}: HTTP client, 64 in flight"), None, &calling),
    ];
    rows.extend(subscriptions::told(options, setting, name));
    rows
}
