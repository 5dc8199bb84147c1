//! How the cost of one message grows with the number of tools, requests in flight and sessions.

use crate::legs::{http_server, stdio_server};
use crate::load::{Era, HttpLoad, Message, open_session};
use crate::machine::Core;
use crate::measure::{Row, interleave};
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

pub(crate) fn curves(options: &Options) -> Vec<Row> {
    // A quick run skips the counts that take long to set up.
    let within = |count: &u64| !options.quick || *count <= 1_000;
    let mut rows = Vec::new();
    for count in [10, 100, 1_000, 10_000].into_iter().filter(within) {
        rows.push(tools(options, count));
    }
    for count in [1, 4, 16, 64, 256, 1_024, 4_096] {
        let series = stdio_server::run(options, &Subject::FULL, count as usize);
        let work = format!("stdio server, {count} in flight");
        rows.push(Row::cpu(work, None, &series).at("requests in flight, stdio", count));
    }
    for count in [1, 10, 100, 1_000, 10_000].into_iter().filter(within) {
        rows.push(idle_sessions(options, count));
    }
    rows
}

/// A call of one among many tools.
fn tools(options: &Options, count: u64) -> Row {
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let setting = ProcessSetting {
        arguments: &["--tools", &count.to_string()],
        ..ProcessSetting::USUAL
    };
    let series = http_server::run(options, &Subject::FULL, setting, 64, &message, Era::Modern);
    Row::cpu(format!("HTTP server, {count} tools"), None, &series).at("tools, HTTP", count)
}

/// A call while many idle legacy sessions are open.
fn idle_sessions(options: &Options, count: u64) -> Row {
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let started = [Subject::Raw, Subject::Bowline, Subject::RmcpDefault].map(|subject| {
        let mut program = Program::start(&mut subject.server(), Core::Test);
        let server = program.address();
        for _ in 0..count {
            // The session outlives its connection.
            drop(open_session(server));
        }
        let load = HttpLoad::open(server, 16, &message, Era::Legacy);
        (subject, (program, load))
    });
    let series = interleave(
        options.rounds(),
        &mut Vec::from(started),
        |(program, load)| load.measure(program.id(), options.window()),
    );
    let work = format!("HTTP server, legacy, {count} idle sessions");
    Row::cpu(work, None, &series).at("idle legacy sessions, HTTP", count)
}
