//! Open subscriptions, and notifications to all of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::load::{Message, ProtocolContext, connect, send_one};
use crate::machine;
use crate::measure::{Goal, Row, Sample, interleave};
use crate::options::Options;
use crate::program::{ProcessSetting, Program, Subject};

pub(crate) fn idle(options: &Options) -> Vec<Row> {
    let count = how_many(options);
    let (mut held, memory) = open(count, ProcessSetting::USUAL);
    let series = interleave(2 * options.rounds(), &mut held, SubscribedServer::notify);
    vec![
        Row::plain(
            format!("{count} idle subscriptions, each"),
            "KiB",
            Some(Goal::Value(16.0)),
            &memory,
        ),
        Row::cpu(
            format!("one notice to {count} subscriptions, per delivery"),
            Some(Goal::Value(11.0)),
            &series,
        ),
    ]
}

/// One notification to all subscribers of servers with this `setting`: the cost per delivery, and the time until the
/// last subscriber received it. `on` is the name of the setting in the report.
pub(crate) fn notify(options: &Options, setting: ProcessSetting<'_>, on: &str) -> [Row; 2] {
    let count = how_many(options);
    let (mut held, _) = open(count, setting);
    let series = interleave(options.rounds(), &mut held, SubscribedServer::notify);
    [
        Row::cpu(
            format!("{on}: one notice to {count} subscriptions, per delivery"),
            None,
            &series,
        ),
        Row::delivery_latency(
            format!("{on}: until the last of {count} subscribers is told"),
            &series,
        ),
    ]
}

/// Returns how many streams each program has. This process holds all of them open at the same time.
fn how_many(options: &Options) -> usize {
    let room = machine::file_limit().saturating_sub(SPARE) / Subject::FULL.len();
    room.min(if options.quick { 500 } else { 5_000 })
}

/// Starts the servers and subscribes to each; returns the servers, and the memory per subscription in KiB.
fn open(
    count: usize,
    setting: ProcessSetting<'_>,
) -> (Vec<(Subject, SubscribedServer)>, Vec<(Subject, f64)>) {
    let opened = Subject::FULL.into_iter().map(|subject| {
        let (held, kib) = SubscribedServer::open(subject, count, setting);
        ((subject, held), (subject, kib))
    });
    opened.unzip()
}

/// A server and the streams of its subscribers.
struct SubscribedServer {
    program: Program,
    server: SocketAddr,
    notify: Message,
    streams: Vec<TcpStream>,
}

impl SubscribedServer {
    /// Starts the server and subscribes; returns the memory per subscription in KiB too.
    fn open(subject: Subject, count: usize, setting: ProcessSetting<'_>) -> (Self, f64) {
        let (program, server) = Program::serve(subject, setting);
        let notify = Message::call("notify", "{}", "ok");
        send_one(server, &notify);
        let before = machine::resident_kib(program.id());
        let (request, _) = Message::listen().http(&ProtocolContext::Modern);
        let subscribe = |_| {
            let mut stream = connect(server);
            let set = stream.set_read_timeout(Some(READ_TIMEOUT));
            set.expect("a socket");
            stream.write_all(&request).expect("a request");
            stream
        };
        let mut streams: Vec<TcpStream> = (0..count).map(subscribe).collect();
        for stream in &mut streams {
            read_until(stream, "acknowledged");
        }
        let grown = machine::resident_kib(program.id()).saturating_sub(before);
        let held = Self {
            program,
            server,
            notify,
            streams,
        };
        (held, grown as f64 / count as f64)
    }

    /// Triggers notifications one after the other, and measures their cost in the server.
    fn notify(&mut self) -> Sample {
        self.deliver(&mut Vec::new());
        let (mut latencies, mut last) = (Vec::new(), Vec::new());
        let (cpu, begun) = (self.program.cpu_ns(), Instant::now());
        while latencies.len() < DELIVERIES {
            let triggered = Instant::now();
            self.deliver(&mut latencies);
            last.push(triggered.elapsed().as_nanos() as u64);
        }
        let cpu_ns = self.program.cpu_ns() - cpu;
        last.sort_unstable();
        Sample {
            last_ns: last[last.len() / 2],
            ..Sample::of(latencies, cpu_ns, begun.elapsed())
        }
    }

    /// Triggers one notification, and records when each subscriber received it.
    fn deliver(&mut self, latencies: &mut Vec<u64>) {
        let begun = Instant::now();
        send_one(self.server, &self.notify);
        // In reverse: once the last stream has its notification, reading the others does not block. A blocked reader
        // would charge its wake-up to the server, in a number of deliveries that varies from run to run.
        for stream in self.streams.iter_mut().rev() {
            read_until(stream, "list_changed");
            latencies.push(begun.elapsed().as_nanos() as u64);
        }
    }
}

fn read_until(stream: &mut TcpStream, word: &str) {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while memchr::memmem::find(&received, word.as_bytes()).is_none() {
        let read = stream.read(&mut buffer).unwrap_or(0);
        let so_far = String::from_utf8_lossy(&received);
        assert!(read > 0, "a stream ended without `{word}`: {so_far}");
        received.extend_from_slice(&buffer[..read]);
    }
}

/// The minimum per sample. The CPU clock of another process has a resolution of 4 ms, which is 0.1 µs per delivery.
const DELIVERIES: usize = 40_000;
/// The timeout of a stream without any output.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// File descriptors reserved for everything but the streams.
const SPARE: usize = 256;
