//! The server's end of a connection, in this process or in a child process, and the client's connection to it.

use std::process::Stdio;
use std::time::Duration;

use bowline::client::ClientBuilder;
use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::peer::Peer;
use bowline::testing::{RecordingWire, eventually, serve_recorded};
use bowline::wire::{self, Command};
use bowline::{Client, Server};
use bowline_core::era::{Dialect, Dialects, HttpTransportKind};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Child;
use tokio::task::JoinHandle;

use crate::column::{Column, HttpVersion, ResponseMode, Transport};
use crate::observer::{Observer, Report};
use crate::tools::{self, Extensions};

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) enum ServerEnd {
    InProcess,
    Memory(Peer, JoinHandle<()>),
    Child,
    Http(HttpService, JoinHandle<()>),
    /// A child process, and the task that reads its stderr.
    HttpChild(Child, JoinHandle<()>),
    Killed,
}

/// Where an HTTP server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerLocation {
    /// This process, whose table entries can be counted.
    ThisProcess,
    /// A child process, which can be killed.
    ChildProcess,
}

/// Starts the server of this column, and returns the client's connection builder.
pub(crate) async fn serve_and_connect(
    column: Column,
    location: ServerLocation,
    extensions: &Extensions,
    observer: &Observer,
) -> (ClientBuilder, ServerEnd) {
    let server = || tools::server(&observer.handlers, extensions);
    match column.transport {
        Transport::InProcess => (Client::in_process(&server()), ServerEnd::InProcess),
        Transport::Memory => {
            let (near, far) = wire::memory();
            let far = RecordingWire::with_record(far, &observer.record);
            let (peer, serving) = server().serve_counted(far);
            let serving = tokio::spawn(async { drop(serving.await) });
            (Client::from_wire(near), ServerEnd::Memory(peer, serving))
        }
        Transport::Stdio => {
            let (program, reported) = (std::env::current_exe().unwrap(), observer.clone());
            let child = Command::new(program).args(["--serve", &column.to_string()]);
            let child = child.args(extensions.to_arguments());
            let child = child.on_stderr(move |line| reported.read_report(line));
            // The reports are no messages for people, of which a few are enough.
            let child = child.max_stderr_rate(u64::MAX);
            (Client::spawn(child), ServerEnd::Child)
        }
        Transport::Http(protocol, _) | Transport::HttpSse(protocol) => {
            let (url, server_end) = match location {
                ServerLocation::ThisProcess => {
                    let (listener, url) = listen().await;
                    let service = service(column, &server());
                    let serving =
                        serve_recorded(service.clone(), listener, observer.record.clone());
                    (url, ServerEnd::Http(service, tokio::spawn(serving)))
                }
                ServerLocation::ChildProcess => {
                    let (child, listening) = spawn(column, extensions, observer);
                    (observer.url().await, ServerEnd::HttpChild(child, listening))
                }
            };
            let connect = match protocol {
                HttpVersion::Http1 => Client::connect(&url),
                HttpVersion::Http2 => Client::connect(&url).http2(),
            };
            (connect, server_end)
        }
        Transport::Stateless => panic!("no cell of this column applies"),
    }
}

fn service(column: Column, server: &Server) -> HttpService {
    let (service, legacy) = (server.http(), Legacy::sessions());
    match column.transport {
        Transport::HttpSse(_) => {
            // HTTP+SSE only, so that clients do not negotiate a newer transport.
            let oldest = |dialect: &Dialect| dialect.http.transport == HttpTransportKind::HttpSse;
            let service = service.versions(Dialects::only(oldest));
            service.legacy(legacy.http_sse())
        }
        Transport::Http(_, ResponseMode::Json) => service
            .stream_after(Duration::from_secs(3600))
            .legacy(legacy.json_responses()),
        _ => service.stream_after(Duration::ZERO).legacy(legacy),
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    (listener, url)
}

/// Starts this program as a server, and a task that reads its reports.
fn spawn(column: Column, extensions: &Extensions, observer: &Observer) -> (Child, JoinHandle<()>) {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    let command = command
        .args(["--serve", &column.to_string()])
        .args(extensions.to_arguments())
        .kill_on_drop(true);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let observer = observer.clone();
    let listening = tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            observer.read_report(&line);
        }
    });
    (child, listening)
}

/// Runs the server of this column; the main function of a child process.
pub(crate) async fn serve(column: Column, extensions: Extensions) {
    let observer = Observer::reporting();
    let server = tools::server(&observer.handlers, &extensions);
    Report::ProcessId(std::process::id().try_into().unwrap()).write();
    if column.transport == Transport::Stdio {
        let wire = RecordingWire::with_record(wire::stdio().unwrap(), &observer.record);
        return server.serve(wire).await.unwrap();
    }
    let (listener, url) = listen().await;
    Report::Url(url).write();
    serve_recorded(service(column, &server), listener, observer.record).await;
}

impl ServerEnd {
    /// The number of requests in the server's tables; 0 if it runs in another process.
    pub(crate) fn entries(&self) -> usize {
        match self {
            Self::InProcess | Self::Child | Self::HttpChild(..) | Self::Killed => 0,
            Self::Memory(peer, _) => {
                let sizes = peer.sizes();
                sizes.pending + sizes.in_flight + sizes.queued
            }
            Self::Http(service, _) => service.in_flight(),
        }
    }

    /// Kills the server without a graceful shutdown.
    pub(crate) async fn kill(&mut self, observer: &Observer) {
        match std::mem::replace(self, Self::Killed) {
            Self::InProcess | Self::Killed => panic!("the server is not a process"),
            Self::Memory(_, serving) => stop(serving).await,
            Self::Child => {
                let process = observer.process().and_then(Pid::from_raw).unwrap();
                kill_process(process, Signal::KILL).unwrap();
            }
            Self::Http(..) => panic!("the server runs in this process"),
            Self::HttpChild(mut child, listening) => {
                child.kill().await.unwrap();
                listening.await.unwrap();
            }
        }
    }

    /// Stops the server after its client has closed, and asserts that its tables are empty.
    pub(crate) async fn shut_down(self) {
        match self {
            Self::InProcess | Self::Child | Self::HttpChild(..) | Self::Killed => {}
            Self::Memory(_, serving) => serving.await.unwrap(),
            Self::Http(service, serving) => {
                let entries = || service.in_flight() + service.sessions();
                assert!(eventually(|| entries() == 0).await, "{service:?}");
                stop(serving).await;
            }
        }
    }
}

async fn stop(serving: JoinHandle<()>) {
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
}
