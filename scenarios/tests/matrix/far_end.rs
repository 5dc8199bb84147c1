//! The server's end of a connection, wherever it is, and the way to it.

use std::process::Stdio;
use std::time::Duration;

use bowline::Client;
use bowline::client::Connect;
use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::peer::Peer;
use bowline::wire::{self, Command};
use bowline_core::era::{Dialect, Dialects, HttpTransport};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Child;
use tokio::task::{JoinHandle, JoinSet};

use crate::column::{Answers, Column, Protocol, Transport};
use crate::holdings::eventually;
use crate::seen::Seen;
use crate::tap::{TappedSocket, TappedWire};
use crate::tools;

/// The server's end.
#[derive(Debug)]
pub(crate) enum FarEnd {
    InProcess,
    Memory(Peer, JoinHandle<()>),
    Child,
    Http(HttpService, JoinHandle<()>),
    /// A process of its own, and whoever listens to it.
    HttpChild(Child, JoinHandle<()>),
    /// It died.
    Gone,
}

/// Where the server is, if it could be in either place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this process, where everything can be counted.
    Here,
    /// In a process of its own, which can be killed.
    Elsewhere,
}

/// Serves in this column, and tells how to connect.
pub(crate) async fn reach(column: Column, place: Place, seen: &Seen) -> (Connect, FarEnd) {
    match column.transport {
        Transport::InProcess => (Client::to(&tools::server(seen)), FarEnd::InProcess),
        Transport::Memory => {
            let (near, far) = wire::memory();
            let (peer, serving) = tools::server(seen).serve_counted(TappedWire::new(far, seen));
            let serving = tokio::spawn(async { drop(serving.await) });
            (Client::over(near), FarEnd::Memory(peer, serving))
        }
        Transport::Stdio => {
            let (program, told) = (std::env::current_exe().unwrap(), seen.clone());
            let child = Command::new(program).args(["--serve", &column.key()]);
            let child = child.on_stderr(move |line| told.listen(line));
            (Client::spawn(child), FarEnd::Child)
        }
        Transport::Http(protocol, _) | Transport::TwoEndpoints(protocol) => {
            let (url, far_end) = match place {
                Place::Here => {
                    let (listener, url) = listen().await;
                    let service = service(column, seen);
                    let serving = tokio::spawn(accept(listener, service.clone(), seen.clone()));
                    (url, FarEnd::Http(service, serving))
                }
                Place::Elsewhere => {
                    let (child, listening) = spawn(column, seen);
                    (seen.url().await, FarEnd::HttpChild(child, listening))
                }
            };
            let connect = match protocol {
                Protocol::Http1 => Client::connect(&url),
                Protocol::Http2 => Client::connect(&url).http2(),
            };
            (connect, far_end)
        }
        Transport::Forgetful => panic!("no cell of this column applies"),
    }
}

fn service(column: Column, seen: &Seen) -> HttpService {
    let (service, legacy) = (tools::server(seen).http(), Legacy::sessions());
    match column.transport {
        Transport::TwoEndpoints(_) => {
            // Nothing but the two endpoints, so that clients do not find anything newer.
            let oldest = |dialect: &Dialect| dialect.http.transport == HttpTransport::TwoEndpoints;
            let service = service.versions(Dialects::only(oldest));
            service.legacy(legacy.http_sse())
        }
        Transport::Http(_, Answers::Json) => service
            .commit_after(Duration::from_secs(3600))
            .legacy(legacy.json_answers()),
        _ => service.commit_after(Duration::ZERO).legacy(legacy),
    }
}

/// Serves HTTP as `HttpService::bind` does, on sockets that write down what passes.
async fn accept(listener: TcpListener, service: HttpService, seen: Seen) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let (socket, _) = accepted.unwrap();
                socket.set_nodelay(true).unwrap();
                let (socket, service) = (TappedSocket::new(socket, &seen), service.clone());
                connections.spawn(async move { service.serve_connection(socket).await });
            }
        }
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    (listener, url)
}

/// Starts this program as a server, and listens to what it tells.
fn spawn(column: Column, seen: &Seen) -> (Child, JoinHandle<()>) {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--serve", &column.key()]).kill_on_drop(true);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let seen = seen.clone();
    let listening = tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            seen.listen(&line);
        }
    });
    (child, listening)
}

/// Is the server of this column, in a process of its own.
pub(crate) async fn serve(column: Column) {
    let seen = Seen::Told;
    seen.introduce();
    if column.transport == Transport::Stdio {
        let wire = TappedWire::new(wire::stdio().unwrap(), &seen);
        return tools::server(&seen).serve(wire).await.unwrap();
    }
    let (listener, url) = listen().await;
    seen.serves_at(&url);
    accept(listener, service(column, &seen), seen).await;
}

impl FarEnd {
    /// How many requests the server remembers, as far as it is in this process.
    pub(crate) fn entries(&self) -> usize {
        match self {
            Self::InProcess | Self::Child | Self::HttpChild(..) | Self::Gone => 0,
            Self::Memory(peer, _) => {
                let sizes = peer.sizes();
                sizes.pending + sizes.in_flight + sizes.queued
            }
            Self::Http(service, _) => service.in_flight(),
        }
    }

    /// Kills the server, without a word.
    pub(crate) async fn kill(&mut self, seen: &Seen) {
        match std::mem::replace(self, Self::Gone) {
            Self::InProcess | Self::Gone => panic!("there is nothing to kill"),
            Self::Memory(_, serving) => stop(serving).await,
            Self::Child => {
                let process = seen.process().and_then(Pid::from_raw).unwrap();
                kill_process(process, Signal::KILL).unwrap();
            }
            Self::Http(..) => panic!("who is here cannot be killed"),
            Self::HttpChild(mut child, listening) => {
                child.kill().await.unwrap();
                listening.await.unwrap();
            }
        }
    }

    /// Lets the server go, after its client has gone.
    pub(crate) async fn leave(self) {
        match self {
            Self::InProcess | Self::Child | Self::HttpChild(..) | Self::Gone => {}
            Self::Memory(_, serving) => serving.await.unwrap(),
            Self::Http(service, serving) => {
                let remembers = || service.in_flight() + service.sessions();
                assert!(eventually(|| remembers() == 0).await, "{service:?}");
                stop(serving).await;
            }
        }
    }
}

async fn stop(serving: JoinHandle<()>) {
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
}
