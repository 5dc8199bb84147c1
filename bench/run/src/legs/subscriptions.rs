//! Streams that are held open, and notices to all of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::load::{Dialog, Message, ask, connect};
use crate::machine;
use crate::measure::{Goal, Row, Sample, interleave};
use crate::options::Options;
use crate::program::{Program, Setting, Subject};

pub(crate) fn idle(options: &Options) -> Vec<Row> {
    let count = how_many(options);
    let (mut held, memory) = open(count, Setting::USUAL);
    let series = interleave(2 * options.rounds(), &mut held, Held::notify);
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

/// One notice to all subscribers of servers that run as `setting` has it: what it costs per delivery, and how long it
/// takes to reach the last. `on` says in the report what the setting is.
pub(crate) fn told(options: &Options, setting: Setting<'_>, on: &str) -> [Row; 2] {
    let count = how_many(options);
    let (mut held, _) = open(count, setting);
    let series = interleave(options.rounds(), &mut held, Held::notify);
    [
        Row::cpu(
            format!("{on}: one notice to {count} subscriptions, per delivery"),
            None,
            &series,
        ),
        Row::last_told(
            format!("{on}: until the last of {count} subscribers is told"),
            &series,
        ),
    ]
}

/// How many streams each program has. All are held at once, by this process.
fn how_many(options: &Options) -> usize {
    let room = machine::most_files().saturating_sub(SPARE) / Subject::FULL.len();
    room.min(if options.quick { 500 } else { 5_000 })
}

/// Starts the servers and subscribes to each; the servers, and the KiB that each subscription takes there.
fn open(count: usize, setting: Setting<'_>) -> (Vec<(Subject, Held)>, Vec<(Subject, f64)>) {
    let opened = Subject::FULL.into_iter().map(|subject| {
        let (held, kib) = Held::open(subject, count, setting);
        ((subject, held), (subject, kib))
    });
    opened.unzip()
}

/// A server with its subscribers.
struct Held {
    program: Program,
    server: SocketAddr,
    notify: Message,
    streams: Vec<TcpStream>,
}

impl Held {
    /// Starts the server and subscribes; the KiB that each subscription takes there.
    fn open(subject: Subject, count: usize, setting: Setting<'_>) -> (Self, f64) {
        let (program, server) = Program::serve(subject, setting);
        let notify = Message::call("notify", "{}", "ok");
        ask(server, &notify);
        let before = machine::resident_kib(program.id());
        let (request, _) = Message::listen().http(&Dialog::Modern);
        let subscribe = |_| {
            let mut stream = connect(server);
            let patience = stream.set_read_timeout(Some(PATIENCE));
            patience.expect("a socket");
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

    /// Has the server send notices, one after the other, and says what they cost it.
    fn notify(&mut self) -> Sample {
        self.deliver(&mut Vec::new());
        let (mut latencies, mut last) = (Vec::new(), Vec::new());
        let (cpu, begun) = (self.program.cpu_ns(), Instant::now());
        while latencies.len() < DELIVERIES {
            let notice = Instant::now();
            self.deliver(&mut latencies);
            last.push(notice.elapsed().as_nanos() as u64);
        }
        let cpu_ns = self.program.cpu_ns() - cpu;
        last.sort_unstable();
        Sample {
            last_ns: last[last.len() / 2],
            ..Sample::of(latencies, cpu_ns, begun.elapsed())
        }
    }

    /// One notice to all; when each had it.
    fn deliver(&mut self, latencies: &mut Vec<u64>) {
        let begun = Instant::now();
        ask(self.server, &self.notify);
        // The last is told last. When it was, the others need not be waited for: a server is charged for waking
        // whoever waits, and that happened now and then, as it came.
        for stream in self.streams.iter_mut().rev() {
            read_until(stream, "list_changed");
            latencies.push(begun.elapsed().as_nanos() as u64);
        }
    }
}

fn read_until(stream: &mut TcpStream, word: &str) {
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    while memchr::memmem::find(&said, word.as_bytes()).is_none() {
        let read = stream.read(&mut buffer).unwrap_or(0);
        let so_far = String::from_utf8_lossy(&said);
        assert!(read > 0, "a stream ended without `{word}`: {so_far}");
        said.extend_from_slice(&buffer[..read]);
    }
}

/// In one sample at least. The CPU clock of another process advances by 4 ms, which is 0.1 µs of each.
const DELIVERIES: usize = 40_000;
/// How long a stream may say nothing at all.
const PATIENCE: Duration = Duration::from_secs(20);
/// Descriptors for everything but the streams.
const SPARE: usize = 256;
