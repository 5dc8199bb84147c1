//! Load over HTTP/2 without TLS: one connection with several requests in flight.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

use super::messages::{FIRST_ID, Message, ProtocolContext, write_id};
use crate::machine;
use crate::measure::Sample;

/// A connection to one server.
pub(crate) struct Http2Load {
    runtime: Runtime,
    worker: Http2Worker,
}

#[derive(Clone)]
struct Http2Worker {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    message: Message,
    next: Rc<Cell<u64>>,
}

impl Http2Load {
    /// # Panics
    ///
    /// If the server refuses the connection.
    pub(crate) fn open(server: SocketAddr, message: &Message) -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder
            .enable_all()
            .build()
            .expect("failed to build the runtime");
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(server).await.expect("failed to connect");
            stream.set_nodelay(true).expect("a socket");
            let io = TokioIo::new(stream);
            let handshake = handshake(TokioExecutor::new(), io).await;
            let (sender, connection) = handshake.expect("HTTP/2");
            tokio::spawn(connection);
            sender
        });
        let worker = Http2Worker {
            sender,
            authority: server.to_string(),
            message: message.clone(),
            next: Rc::new(Cell::new(FIRST_ID)),
        };
        Self { runtime, worker }
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
        let worker = &self.worker;
        LocalSet::new().block_on(&self.runtime, async {
            let mut workers = JoinSet::new();
            for _ in 0..in_flight {
                workers.spawn_local(worker.clone().run(end));
            }
            workers.join_all().await.concat()
        })
    }
}

impl Http2Worker {
    async fn run(mut self, end: Instant) -> Vec<u64> {
        let mut latencies = Vec::new();
        let (body, id_at) = self.message.json(&ProtocolContext::Modern);
        let mut body = body.into_bytes();
        loop {
            let begun = Instant::now();
            let id = self.next.get() + 1;
            self.next.set(id);
            write_id(&mut body, id_at, id);
            self.call(id, Bytes::copy_from_slice(&body)).await;
            let now = Instant::now();
            latencies.push((now - begun).as_nanos() as u64);
            if now >= end {
                return latencies;
            }
        }
    }

    async fn call(&mut self, id: u64, body: Bytes) {
        let mut request = Request::post(format!("http://{}/mcp", self.authority))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        for (name, value) in self.message.headers(&ProtocolContext::Modern) {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        self.sender.ready().await.expect("a connection");
        let response = self.sender.send_request(request).await.expect("a response");
        let reply = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        let fits = self
            .message
            .expect
            .fits(id, &ProtocolContext::Modern, &reply);
        assert!(
            fits,
            "request {id} was answered with {}",
            String::from_utf8_lossy(&reply)
        );
    }
}
