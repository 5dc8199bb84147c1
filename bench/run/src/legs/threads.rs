//! The multi-thread runtime of `#[tokio::main]`, on one core and on two.

use crate::legs::{clients, http_server, subscriptions};
use crate::load::{Era, Message};
use crate::machine::{self, Core};
use crate::measure::Row;
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

pub(crate) fn one_and_two_cores(options: &Options) -> Vec<Row> {
    let mut rows = on(options, Core::Test, "several threads, one core");
    if machine::cores() > 1 {
        rows.extend(on(options, Core::Both, "several threads, two cores"));
    } else {
        eprintln!("  did not run on two cores: the machine has one");
    }
    rows
}

/// Calls of a server, calls of a client, and one notification to many subscribers, on these cores.
fn on(options: &Options, core: Core, name: &str) -> Vec<Row> {
    let setting = ProcessSetting {
        core,
        arguments: &["--threads"],
    };
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let subjects = Subject::FULL;
    let serving = http_server::run(options, &subjects, setting, 64, &message, Era::Modern);

    // The server of the clients is load: one thread on its own core, as in the other legs.
    let (server, address) = Program::serve(Subject::Raw, ProcessSetting::LOAD);
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
    rows.extend(subscriptions::notify(options, setting, name));
    rows
}
