//! The cost of one `tools/call` in HTTP servers.

use crate::callgrind::{self, Count, Totals};
use crate::load::{Era, Expect, Http2Load, HttpLoad, Message};
use crate::machine::Core;
use crate::measure::{Goal, Row, Series, interleave};
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

/// The modern era, over 64 connections and over one.
pub(crate) fn modern(options: &Options) -> Vec<Row> {
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let measure = |count| {
        run(
            options,
            &Subject::ALL,
            ProcessSetting::USUAL,
            count,
            &message,
            Era::Modern,
        )
    };
    vec![
        Row::cpu(
            "HTTP server, `tools/call`, 64 connections",
            Some(Goal::Ratio(1.6)),
            &measure(64),
        ),
        Row::cpu("HTTP server, `tools/call`, 1 connection", None, &measure(1)),
    ]
}

/// The legacy era, with a session on each connection.
pub(crate) fn legacy(options: &Options) -> Vec<Row> {
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let series = run(
        options,
        &Subject::ALL,
        ProcessSetting::USUAL,
        64,
        &message,
        Era::Legacy,
    );
    let work = "HTTP server, legacy `tools/call`, 64 connections";
    vec![Row::cpu(work, Some(Goal::Ratio(2.0)), &series)]
}

/// HTTP/2 without TLS, all requests on one connection.
pub(crate) fn http2(options: &Options) -> Vec<Row> {
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let started = Subject::ALL.map(|subject| {
        let mut program = Program::start(&mut subject.server(), Core::Test);
        let server = program.address();
        (subject, (program, Http2Load::open(server, &message)))
    });
    let series = interleave(
        options.rounds(),
        &mut Vec::from(started),
        |(program, load)| load.measure(program.id(), 64, options.window()),
    );
    vec![Row::cpu(
        "HTTP/2 server, `tools/call`, 64 streams",
        None,
        &series,
    )]
}

/// Three progress notifications, then the response, on an event stream.
pub(crate) fn progress(options: &Options) -> Vec<Row> {
    let message = Message::call("progress", "{}", "done");
    let message = message.with_progress().expecting(Expect::Notifications(3));
    let series = run(
        options,
        &Subject::ALL,
        ProcessSetting::USUAL,
        64,
        &message,
        Era::Modern,
    );
    vec![Row::cpu(
        "HTTP server, three progress notices, 64 connections",
        None,
        &series,
    )]
}

/// Large results, a large argument, and a long list.
pub(crate) fn sizes(options: &Options) -> Vec<Row> {
    let text = |kib: usize| {
        let message = Message::call("text", &format!(r#"{{"kib":{kib}}}"#), "");
        let message = message.expecting(Expect::Bytes(kib * 1024));
        run(
            options,
            &Subject::ALL,
            ProcessSetting::USUAL,
            8,
            &message,
            Era::Modern,
        )
    };
    let argument = || {
        let long = "0123456789abcdef".repeat(1 << 16);
        let message = Message::call("length", &format!(r#"{{"text":"{long}"}}"#), "1048576");
        run(
            options,
            &Subject::ALL,
            ProcessSetting::USUAL,
            8,
            &message,
            Era::Modern,
        )
    };
    let list = || {
        let message = Message::list_tools().expecting(Expect::Bytes(50_000));
        run(
            options,
            &Subject::FULL,
            ProcessSetting {
                arguments: &["--tools", "500"],
                ..ProcessSetting::USUAL
            },
            8,
            &message,
            Era::Modern,
        )
    };
    vec![
        Row::cpu(
            "HTTP server, 64 KiB text result, 8 connections",
            Some(Goal::Ratio(1.2)),
            &text(64),
        ),
        Row::cpu(
            "HTTP server, 256 KiB text result, 8 connections",
            None,
            &text(256),
        ),
        Row::cpu(
            "HTTP server, 1 MiB argument, 8 connections",
            None,
            &argument(),
        ),
        Row::cpu(
            "HTTP server, `tools/list` of 500 tools, 8 connections",
            None,
            &list(),
        ),
    ]
}

/// Starts the servers, opens the connections, and runs the turns.
pub(crate) fn run(
    options: &Options,
    subjects: &[Subject],
    setting: ProcessSetting<'_>,
    connections: usize,
    message: &Message,
    era: Era,
) -> Vec<Series> {
    let started = subjects.iter().map(|subject| {
        let (program, server) = Program::serve(*subject, setting);
        let load = HttpLoad::open(server, connections, message, era);
        (*subject, (program, load))
    });
    let mut started: Vec<_> = started.collect();
    interleave(options.rounds(), &mut started, |(program, load)| {
        load.measure(program.id(), options.window())
    })
}

/// Instructions and allocations per call.
pub(crate) fn counts(options: &Options) -> Vec<Row> {
    if !callgrind::is_installed() {
        eprintln!("  did not run: valgrind is not installed");
        return Vec::new();
    }
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let (short, long) = if options.quick {
        (640, 1_280)
    } else {
        (1_280, 5_120)
    };
    let counts: Vec<(Subject, Count)> = Subject::ALL
        .into_iter()
        .map(|subject| {
            let total = |calls| total(subject, &message, calls);
            (
                subject,
                Count::per_unit(total(short), total(long), long - short),
            )
        })
        .collect();
    let figures = |of: fn(&Count) -> f64| -> Vec<(Subject, f64)> {
        counts
            .iter()
            .map(|(subject, count)| (*subject, of(count)))
            .collect()
    };
    let work = "HTTP server, `tools/call`, 64 connections";
    vec![
        Row::plain(
            work,
            "instructions",
            Some(Goal::Value(50_000.0)),
            &figures(|c| c.instructions),
        ),
        Row::plain(
            work,
            "allocations",
            Some(Goal::Value(35.0)),
            &figures(|c| c.allocations),
        ),
    ]
}

fn total(subject: Subject, message: &Message, calls: u64) -> Totals {
    let out = std::env::temp_dir().join(format!("bench-{}-{calls}", std::process::id()));
    let mut program = Program::start(&mut callgrind::command(&subject.server(), &out), Core::Test);
    let server = program.address();
    HttpLoad::open(server, 64, message, Era::Modern).send(calls);
    program.terminate();
    callgrind::read(&out)
}
