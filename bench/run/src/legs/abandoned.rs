//! Abandoned calls: the time until the handler is dropped, the cost, and the leaks.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::load::{Message, ProtocolContext, connect, receive, send_one};
use crate::machine::{self, Core};
use crate::measure::{Cell, Goal, Row, Spread, Table};
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

/// The time from the drop of a client's future to the drop of the handler in another process.
pub(crate) fn latency(options: &Options) -> Vec<Row> {
    let count = if options.quick { 20 } else { 60 };
    let libraries = [Subject::Bowline, Subject::RmcpBest];
    let over_http = |subject: Subject| {
        let (_server, address) = Program::serve(subject, ProcessSetting::LOAD);
        let url = format!("http://{address}/mcp");
        drops(subject.client().args(["--url", &url]), count)
    };
    let over_stdio = |subject: Subject| {
        let server = subject.server();
        drops(
            subject.client().arg("--child").arg(server.get_program()),
            count,
        )
    };
    let row = |work: &str, took: &dyn Fn(Subject) -> Vec<f64>| {
        let mut drops = libraries.map(|_| Vec::new());
        for _ in 0..options.rounds() {
            for (drops, subject) in drops.iter_mut().zip(libraries) {
                drops.extend(took(subject));
            }
        }
        let cells = libraries
            .into_iter()
            .zip(drops)
            .map(|(subject, drops)| Cell {
                subject: subject.name(),
                value: Spread::of(drops),
                ratio: None,
                pace: None,
            });
        Row {
            work: format!("from drop to drop, {work}"),
            unit: "µs; rmcp's handler watches its token",
            goal: Some(Goal::RmcpBest),
            cells: cells.collect(),
            point: None,
            table: Table::default(),
            notes: Vec::new(),
        }
    };
    vec![row("HTTP", &over_http), row("stdio", &over_stdio)]
}

/// Three concurrent calls with a timeout of 200 ms, to a child that has stopped reading.
pub(crate) fn stalled(_: &Options) -> Vec<Row> {
    let server = Subject::Raw.server();
    let cells = [Subject::Bowline, Subject::RmcpBest].map(|subject| {
        let mut client = subject.client();
        client.arg("--child").arg(server.get_program());
        let took = took(client.arg("--stalled"));
        let milliseconds = took.into_iter().map(|us| us / 1e3).collect();
        Cell {
            subject: subject.name(),
            value: Spread::of(milliseconds),
            ratio: None,
            pace: None,
        }
    });
    vec![Row {
        work: "a call with 200 ms to a child that does not read returns after".to_owned(),
        unit: "ms",
        goal: None,
        cells: cells.into(),
        point: None,
        table: Table::default(),
        notes: Vec::new(),
    }]
}

/// Returns how long each drop took to reach the handler, in µs. Infinite, as the last, if one never did; the client gives
/// up then.
pub(super) fn drops(client: &mut Command, count: usize) -> Vec<f64> {
    let mut took = took(client.args(["--drops", &count.to_string()]));
    if took.len() < count {
        took.push(f64::INFINITY);
    }
    took
}

/// Returns the times that a client prints, in µs.
fn took(client: &mut Command) -> Vec<f64> {
    #[derive(serde::Deserialize)]
    struct Took {
        took_ns: Vec<u64>,
    }
    let line = Program::start(client, Core::Test).line();
    let took: Result<Took, _> = serde_json::from_str(&line);
    let took = took.unwrap_or_else(|error| panic!("{client:?} printed {line:?}: {error}"));
    took.took_ns.into_iter().map(|ns| ns as f64 / 1e3).collect()
}

/// Many calls over HTTP, each on a connection that is closed while the handler runs; and as many that are answered.
pub(crate) fn many(options: &Options) -> Vec<Row> {
    let count = if options.quick { 2_000 } else { 20_000 };
    let mut found: Vec<(Subject, Leaks)> = Vec::new();
    for subject in Subject::FULL {
        let mut program = Program::start(&mut subject.server(), Core::Test);
        let server = program.address();
        found.push((subject, measure_abandoned(&program, server, count)));
    }
    let row = |what: &str, unit, goal, of: fn(&Leaks) -> f64| {
        let figures: Vec<_> = found
            .iter()
            .map(|(subject, left)| (*subject, of(left)))
            .collect();
        Row::plain(
            format!("{count} abandoned calls: {what}"),
            unit,
            goal,
            &figures,
        )
    };
    vec![
        row("server, each", "µs CPU", Some(Goal::Value(60.0)), |left| {
            left.abandoned_us
        }),
        row(
            "server, each that is answered instead",
            "µs CPU",
            None,
            |left| left.answered_us,
        ),
        row(
            "handlers that still run",
            "handlers",
            Some(Goal::Value(0.0)),
            |left| left.running as f64,
        ),
        row(
            "memory held afterwards",
            "MiB",
            Some(Goal::Value(5.0)),
            |left| left.grown_mib,
        ),
        row(
            "descriptors held afterwards",
            "descriptors",
            Some(Goal::Value(0.0)),
            |left| left.descriptors as f64,
        ),
    ]
}

/// The cost and leaks of many abandoned calls.
struct Leaks {
    answered_us: f64,
    abandoned_us: f64,
    running: u64,
    grown_mib: f64,
    descriptors: i64,
}

fn measure_abandoned(program: &Program, server: SocketAddr, count: usize) -> Leaks {
    let slow = |ms: u64| Message::call("slow", &format!(r#"{{"ms":{ms}}}"#), "slept");
    // Warm-up, so that one-time growth is not measured.
    complete_calls(server, BATCH, &slow(0));
    abandon_calls(server, BATCH, &slow(600_000));
    let running_before = wait_for_handlers(server);
    let memory = machine::resident_kib(program.id());
    let descriptors = machine::descriptors(program.id());

    let cpu = program.cpu_ns();
    complete_calls(server, count, &slow(0));
    let answered_ns = program.cpu_ns() - cpu;

    let cpu = program.cpu_ns();
    abandon_calls(server, count, &slow(600_000));
    let abandoned_ns = program.cpu_ns() - cpu;

    let running = wait_for_handlers(server) - running_before;
    let grown = machine::resident_kib(program.id()) as f64 - memory as f64;
    let per_call = |ns: u64| ns as f64 / count as f64 / 1e3;
    Leaks {
        answered_us: per_call(answered_ns),
        abandoned_us: per_call(abandoned_ns),
        running,
        grown_mib: (grown / 1024.0).max(0.0),
        descriptors: machine::descriptors(program.id()) as i64 - descriptors as i64,
    }
}

/// Makes calls that are answered, each on its own connection.
fn complete_calls(server: SocketAddr, count: usize, message: &Message) {
    batches(server, count, message, |streams| {
        for stream in streams {
            receive(stream);
        }
    });
}

/// Makes calls whose connections are closed once their handlers run.
fn abandon_calls(server: SocketAddr, count: usize, message: &Message) {
    let mut started = Stats::fetch(server).started;
    batches(server, count, message, |streams| {
        started += streams.len() as u64;
        while Stats::fetch(server).started < started {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

fn batches(
    server: SocketAddr,
    count: usize,
    message: &Message,
    mut and: impl FnMut(&mut [TcpStream]),
) {
    let (request, _) = message.http(&ProtocolContext::Modern);
    for begun in (0..count).step_by(BATCH) {
        let send = |_| {
            let mut stream = connect(server);
            stream.write_all(&request).expect("a request");
            stream
        };
        let mut streams: Vec<TcpStream> = (begun..count.min(begun + BATCH)).map(send).collect();
        and(&mut streams);
    }
}

/// Waits until no handler runs, at most for [`HANDLER_TIMEOUT`]; returns how many still run.
fn wait_for_handlers(server: SocketAddr) -> u64 {
    let deadline = Instant::now() + HANDLER_TIMEOUT;
    loop {
        let stats = Stats::fetch(server);
        let running = stats.started - stats.dropped - stats.completed;
        if running == 0 || Instant::now() > deadline {
            return running;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[derive(serde::Deserialize)]
struct Stats {
    started: u64,
    dropped: u64,
    completed: u64,
}

impl Stats {
    fn fetch(server: SocketAddr) -> Self {
        let reply = send_one(server, &Message::call("stats", "{}", ""));
        let read = || {
            // On an event stream, a field name precedes the JSON.
            let json = &reply[reply.find('{')?..];
            let mut values = serde_json::Deserializer::from_str(json).into_iter();
            let value: serde_json::Value = values.next()?.ok()?;
            let text = value
                .pointer("/result/content/0/text")?
                .as_str()?
                .to_owned();
            serde_json::from_str(&text).ok()
        };
        read().unwrap_or_else(|| panic!("`stats` was answered with {reply}"))
    }
}

/// The number of concurrent connections.
const BATCH: usize = 500;
/// How long to wait for handlers to end.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(3);
