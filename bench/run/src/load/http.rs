//! Load over HTTP/1.1: keep-alive connections on one thread, each with one request in flight.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::http_reply::HttpReply;
use super::messages::{Era, Expect, FIRST_ID, Message, ProtocolContext, handshake, write_id};
use crate::machine;
use crate::measure::Sample;

/// Connections to one server.
pub(crate) struct HttpLoad {
    server: SocketAddr,
    poll: Poll,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    context: ProtocolContext,
    request: Vec<u8>,
    id_at: usize,
    id: u64,
    /// How many bytes of the request are written.
    written: usize,
    expect: Expect,
    reply: HttpReply,
    sent: Instant,
    busy: bool,
}

impl HttpLoad {
    /// Opens this many connections, in the legacy era each with its own session.
    ///
    /// # Panics
    ///
    /// If the server refuses one.
    pub(crate) fn open(server: SocketAddr, count: usize, message: &Message, era: Era) -> Self {
        Self::open_each(server, std::iter::repeat_n(message, count), era)
    }

    /// Opens a connection for each of these messages, as [`open`](Self::open) does.
    pub(crate) fn open_each<'a>(
        server: SocketAddr,
        messages: impl Iterator<Item = &'a Message>,
        era: Era,
    ) -> Self {
        let poll = Poll::new().expect("failed to create an epoll");
        let mut connections = Vec::new();
        for (index, message) in messages.enumerate() {
            let (stream, context) = match era {
                Era::Legacy => {
                    let (stream, session) = open_session(server);
                    (stream, ProtocolContext::Legacy { session })
                }
                Era::Modern => (connect(server), ProtocolContext::Modern),
            };
            let stream = register(&poll, index, stream);
            let (request, id_at) = message.http(&context);
            connections.push(Connection {
                stream,
                context,
                request,
                id_at,
                id: FIRST_ID,
                written: 0,
                expect: message.expect.clone(),
                reply: HttpReply::default(),
                sent: Instant::now(),
                busy: false,
            });
        }
        Self {
            server,
            poll,
            connections,
            buffer: vec![0; 1 << 18],
        }
    }

    /// Replaces every connection, and keeps the sessions. Some servers close a connection that was idle for a few
    /// seconds, while other programs have their turns.
    pub(crate) fn reconnect(&mut self) {
        for (index, connection) in self.connections.iter_mut().enumerate() {
            connection.stream = register(&self.poll, index, connect(self.server));
        }
    }

    /// Keeps every connection busy for a window, and measures the cost in the process `pid`.
    pub(crate) fn measure(&mut self, pid: u32, window: Duration) -> Sample {
        self.measure_in_turn(pid, window, self.connections.len())
    }

    /// Keeps this many requests in flight for a window, on one connection after the other, and measures the cost in the
    /// process `pid`.
    pub(crate) fn measure_in_turn(
        &mut self,
        pid: u32,
        window: Duration,
        in_flight: usize,
    ) -> Sample {
        self.run(Instant::now() + window / 4, in_flight);
        let (cpu, begun) = (machine::cpu_ns(pid), Instant::now());
        let latencies = self.run(begun + window, in_flight);
        let cpu_ns = machine::cpu_ns(pid) - cpu;
        Sample::of(latencies, cpu_ns, begun.elapsed())
    }

    /// Sends exactly `count` requests, for counting instructions.
    pub(crate) fn send(&mut self, count: u64) {
        let each = count / self.connections.len() as u64;
        for connection in &mut self.connections {
            connection.next();
        }
        let all = self.connections.len();
        let mut left = vec![each; all];
        self.run_requests(all, |index, _, _| {
            left[index] -= 1;
            (left[index] > 0).then_some(index)
        });
    }

    fn run(&mut self, end: Instant, in_flight: usize) -> Vec<u64> {
        let mut latencies = Vec::new();
        let count = self.connections.len();
        for connection in &mut self.connections[..in_flight] {
            connection.next();
        }
        self.run_requests(in_flight, |index, now, sent| {
            latencies.push((now - sent).as_nanos() as u64);
            // The connections take turns in as many groups as there are requests in flight, so that the next one is
            // idle.
            let next = index + in_flight;
            let next = if next < count {
                next
            } else {
                index % in_flight
            };
            (now < end).then_some(next)
        });
        latencies
    }

    /// Reads replies, and sends the next request on the connection that `again` returns for the one of a reply, until
    /// none is in flight.
    fn run_requests(
        &mut self,
        mut busy: usize,
        mut again: impl FnMut(usize, Instant, Instant) -> Option<usize>,
    ) {
        let mut events = Events::with_capacity(1024);
        while busy > 0 {
            self.poll
                .poll(&mut events, Some(READ_TIMEOUT))
                .expect("an epoll");
            assert!(!events.is_empty(), "no reply within {READ_TIMEOUT:?}");
            for event in &events {
                let connection = &mut self.connections[event.token().0];
                if event.is_writable() {
                    connection.write();
                }
                if !event.is_readable() || !connection.read(&mut self.buffer) {
                    continue;
                }
                connection.check();
                match again(event.token().0, Instant::now(), connection.sent) {
                    Some(next) => self.connections[next].next(),
                    None => busy -= 1,
                }
            }
        }
    }
}

impl Connection {
    fn next(&mut self) {
        self.id += 1;
        write_id(&mut self.request, self.id_at, self.id);
        self.reply.clear();
        self.written = 0;
        self.busy = true;
        self.sent = Instant::now();
        self.write();
    }

    fn write(&mut self) {
        while self.busy && self.written < self.request.len() {
            match self.stream.write(&self.request[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("a connection failed: {error}"),
            }
        }
    }

    /// Reads; returns whether the reply is complete.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        while self.busy {
            match self.stream.read(buffer) {
                Ok(0) => panic!("a connection was closed"),
                Ok(read) => self.reply.push(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("a connection failed: {error}"),
            }
            // A reply is the last data, so another read that would block is avoided.
            if self.reply.is_complete() {
                self.busy = false;
                return true;
            }
        }
        false
    }

    fn check(&self) {
        let reply = self.reply.body();
        let fits = self.expect.fits(self.id, &self.context, reply);
        let start = String::from_utf8_lossy(&reply[..reply.len().min(400)]);
        let status = self.reply.status();
        assert!(
            fits,
            "request {} was answered with {status:?} {start}",
            self.id
        );
    }
}

fn register(poll: &Poll, index: usize, stream: std::net::TcpStream) -> TcpStream {
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = TcpStream::from_std(stream);
    let interest = Interest::READABLE | Interest::WRITABLE;
    let registry = poll.registry();
    let registered = registry.register(&mut stream, Token(index), interest);
    registered.expect("failed to register a socket");
    stream
}

/// Opens a connection with a legacy session, and returns the session id.
pub(crate) fn open_session(server: SocketAddr) -> (std::net::TcpStream, Option<String>) {
    let mut stream = connect(server);
    let [initialize, initialized] = handshake();
    let reply = post(&mut stream, &initialize, None);
    let session = reply.session().map(str::to_owned);
    post(&mut stream, &initialized, session.as_deref());
    (stream, session)
}

/// Sends one message on a new connection, and returns the body of the response.
pub(crate) fn send_one(server: SocketAddr, message: &Message) -> String {
    let mut stream = connect(server);
    let (request, _) = message.http(&ProtocolContext::Modern);
    stream.write_all(&request).expect("a request");
    let reply = receive(&mut stream);
    String::from_utf8_lossy(reply.body()).into_owned()
}

/// Opens a connection without Nagle's algorithm.
pub(crate) fn connect(server: SocketAddr) -> std::net::TcpStream {
    let stream = std::net::TcpStream::connect(server).expect("failed to connect");
    stream.set_nodelay(true).expect("a socket");
    stream
}

fn post(stream: &mut std::net::TcpStream, body: &str, session: Option<&str>) -> HttpReply {
    let session = session.map_or(String::new(), |id| {
        format!(
            "mcp-session-id: {id}\r\nmcp-protocol-version: {}\r\n",
            super::messages::LEGACY
        )
    });
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{session}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let reply = receive(stream);
    let status = reply.status().unwrap_or(0);
    let text = String::from_utf8_lossy(reply.body());
    assert!(
        (200..300).contains(&status),
        "{body} was answered with {status} {text}"
    );
    reply
}

/// Reads a complete response.
pub(crate) fn receive(stream: &mut std::net::TcpStream) -> HttpReply {
    let mut reply = HttpReply::default();
    let mut buffer = [0; 1 << 14];
    while !reply.is_complete() {
        let read = stream.read(&mut buffer).expect("a response");
        assert!(read > 0, "a connection was closed");
        reply.push(&buffer[..read]);
    }
    reply
}

/// The timeout of a server without any output.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
