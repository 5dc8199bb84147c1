//! Load over the stdio of a child: one line per message, several requests in flight, responses in any order.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use mio::unix::pipe::Sender;

use super::messages::{Expect, FIRST_ID, Message, ProtocolContext, write_id};
use crate::machine;
use crate::measure::Sample;

/// The pipes of a child, and the requests in flight.
pub(crate) struct StdioLoad {
    /// Non-blocking, because the child may not read until its output is read.
    input: Sender,
    /// Bytes that are not written yet.
    out: Vec<u8>,
    output: ChildStdout,
    request: Vec<u8>,
    id_at: usize,
    expect: Expect,
    next: u64,
    sent: HashMap<u64, Instant>,
    buffer: Vec<u8>,
    held: usize,
}

impl StdioLoad {
    pub(crate) fn new((input, output): (ChildStdin, ChildStdout), message: &Message) -> Self {
        let (text, id_at) = message.json(&ProtocolContext::Modern);
        let mut request = text.into_bytes();
        request.push(b'\n');
        let input = Sender::from(input);
        input.set_nonblocking(true).expect("a pipe");
        Self {
            input,
            out: Vec::new(),
            output,
            request,
            id_at,
            expect: message.expect.clone(),
            next: FIRST_ID,
            sent: HashMap::new(),
            buffer: vec![0; 1 << 20],
            held: 0,
        }
    }

    /// Keeps `in_flight` requests in flight for a window, and measures the cost in the process `pid`.
    pub(crate) fn measure(&mut self, pid: u32, in_flight: usize, window: Duration) -> Sample {
        self.run(Instant::now() + window / 4, in_flight);
        let (cpu, begun) = (machine::cpu_ns(pid), Instant::now());
        let latencies = self.run(begun + window, in_flight);
        let cpu_ns = machine::cpu_ns(pid) - cpu;
        Sample::of(latencies, cpu_ns, begun.elapsed())
    }

    fn run(&mut self, end: Instant, in_flight: usize) -> Vec<u64> {
        let mut latencies = Vec::new();
        self.send(in_flight);
        while !self.sent.is_empty() {
            self.flush();
            let now = self.receive(&mut latencies);
            if now < end {
                // One write for as many requests as were answered, as a busy client does.
                self.send(in_flight - self.sent.len());
            }
        }
        latencies
    }

    fn send(&mut self, count: usize) {
        let now = Instant::now();
        for _ in 0..count {
            self.next += 1;
            write_id(&mut self.request, self.id_at, self.next);
            self.out.extend_from_slice(&self.request);
            self.sent.insert(self.next, now);
        }
        self.flush();
    }

    /// Writes as much as the pipe accepts.
    fn flush(&mut self) {
        let mut written = 0;
        while written < self.out.len() {
            match self.input.write(&self.out[written..]) {
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("failed to write to the child: {error}"),
            }
        }
        self.out.drain(..written);
    }

    /// Reads once, and checks every complete line.
    fn receive(&mut self, latencies: &mut Vec<u64>) -> Instant {
        let read = self
            .output
            .read(&mut self.buffer[self.held..])
            .expect("a pipe");
        assert!(read > 0, "the child exited");
        self.held += read;
        let now = Instant::now();
        let mut begun = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.buffer[begun..self.held]) {
            let line = &self.buffer[begun..begun + length];
            let id = id_of(line).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(line)));
            let fits = self.expect.fits(id, &ProtocolContext::Modern, line);
            assert!(
                fits,
                "request {id} was answered with {}",
                String::from_utf8_lossy(line)
            );
            let sent = self.sent.remove(&id).expect("a response to a request");
            latencies.push((now - sent).as_nanos() as u64);
            begun += length + 1;
        }
        self.buffer.copy_within(begun..self.held, 0);
        self.held -= begun;
        now
    }
}

fn id_of(line: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(line, b"\"id\":1")? + 5;
    std::str::from_utf8(line.get(at..at + 10)?)
        .ok()?
        .parse()
        .ok()
}
