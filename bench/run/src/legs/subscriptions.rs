//! Streams that are held open, and one notice to all of them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::load::{Dialog, Message, ask, connect};
use crate::machine::{self, Core};
use crate::measure::{Cell, Goal, Row, Spread};
use crate::options::Options;
use crate::program::{Program, Subject};

pub(crate) fn idle(options: &Options) -> Vec<Row> {
    let count = if options.quick { 500 } else { 5_000 };
    let rounds = options.rounds();
    let mut memory = Vec::new();
    let mut notices = Vec::new();
    for subject in Subject::FULL {
        let (kib, costs) = measure(subject, count, rounds);
        memory.push((subject, kib));
        notices.push(Cell {
            subject: subject.name(),
            value: Spread::of(costs),
            ratio: None,
            pace: None,
        });
    }
    vec![
        Row::plain(
            format!("{count} idle subscriptions, each"),
            "KiB",
            Some(Goal::Value(16.0)),
            &memory,
        ),
        Row {
            work: format!("one notice to {count} subscriptions, per delivery"),
            unit: "µs CPU",
            goal: Some(Goal::Value(11.0)),
            cells: notices,
            point: None,
        },
    ]
}

/// KiB per stream, and µs per delivery of each notice.
fn measure(subject: Subject, count: usize, rounds: usize) -> (f64, Vec<f64>) {
    let mut program = Program::start(&mut subject.server(), Core::Test);
    let server = program.address();
    let notify = Message::call("notify", "{}", "ok");
    ask(server, &notify);
    let before = machine::resident_kib(program.id());
    let (request, _) = Message::listen().http(&Dialog::Modern);
    let mut streams: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut stream = connect(server);
            stream.write_all(&request).expect("a request");
            stream
        })
        .collect();
    for stream in &mut streams {
        read_until(stream, "acknowledged");
    }
    let kib = machine::resident_kib(program.id()).saturating_sub(before) as f64 / count as f64;
    let notice = |_| {
        let cpu = program.cpu_ns();
        ask(server, &notify);
        for stream in &mut streams {
            read_until(stream, "list_changed");
        }
        (program.cpu_ns() - cpu) as f64 / count as f64 / 1e3
    };
    (kib, (0..rounds).map(notice).collect())
}

fn read_until(stream: &mut TcpStream, word: &str) {
    let patience = stream.set_read_timeout(Some(Duration::from_secs(20)));
    patience.expect("a socket");
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    while memchr::memmem::find(&said, word.as_bytes()).is_none() {
        let read = stream.read(&mut buffer).unwrap_or(0);
        let so_far = String::from_utf8_lossy(&said);
        assert!(read > 0, "a stream ended without `{word}`: {so_far}");
        said.extend_from_slice(&buffer[..read]);
    }
}
