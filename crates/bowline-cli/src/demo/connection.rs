//! `DemoConnection`, a client connected to the fixture over one transport.

use std::net::SocketAddr;
use std::sync::Arc;

use bowline::client::ClientBuilder;
use bowline::exchange::Dialect;
use bowline::http::HttpService;
use bowline::peer::Peer;
use bowline::testing::{RecordingWire, WireRecord, serve_recorded};
use bowline::wire::Command;
use bowline::{Client, Error, Result, wire};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::leaks::RELEASE_TIMEOUT;
use crate::counters::Counters;
use crate::fixture::Fixture;
use crate::serve;

/// A transport of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoTransport {
    InProcess,
    Memory,
    Stdio,
    Http,
    Http2,
}

/// The protocol era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoEra {
    Modern,
    Legacy,
}

/// A client, with the counters and recorded events of its server.
pub(crate) struct DemoConnection {
    pub(crate) client: Client,
    pub(crate) counters: Counters,
    pub(crate) record: WireRecord,
    serving: Option<JoinHandle<()>>,
    server_handle: ServerHandle,
}

/// Where the server's table of requests is.
enum ServerHandle {
    /// It has none, or it is in another process.
    NotObservable,
    Peer(Peer),
    Http(HttpService),
}

impl DemoTransport {
    pub(crate) const ALL: [Self; 5] = [
        Self::InProcess,
        Self::Memory,
        Self::Stdio,
        Self::Http,
        Self::Http2,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in process",
            Self::Memory => "memory",
            Self::Stdio => "stdio",
            Self::Http => "http",
            Self::Http2 => "http/2",
        }
    }

    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2)
    }
}

impl DemoEra {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Modern => Dialect::LATEST.version,
            Self::Legacy => Dialect::LATEST_LEGACY.version,
        }
    }
}

impl DemoConnection {
    pub(crate) async fn open(transport: DemoTransport, era: DemoEra) -> Result<Self> {
        let (fixture, record) = (Fixture::new(), WireRecord::default());
        let counters = fixture.counters().clone();
        let (mut serving, mut server_handle) = (None, ServerHandle::NotObservable);
        let connect = match transport {
            DemoTransport::InProcess => Client::in_process(&fixture.server()),
            DemoTransport::Memory => {
                let (near, far) = wire::memory();
                let (peer, serve) = fixture
                    .server()
                    .serve_counted(RecordingWire::with_record(far, &record));
                serving = Some(tokio::spawn(async { drop(serve.await) }));
                server_handle = ServerHandle::Peer(peer);
                Client::from_wire(near)
            }
            DemoTransport::Stdio => Client::spawn(server_command(&counters, &record)?),
            DemoTransport::Http | DemoTransport::Http2 => {
                let listener = TcpListener::bind("127.0.0.1:0")
                    .await
                    .map_err(socket_error)?;
                let addr = listener.local_addr().map_err(socket_error)?;
                let service = fixture.server().http();
                let serve = serve_recorded(service.clone(), listener, record.clone());
                serving = Some(tokio::spawn(serve));
                server_handle = ServerHandle::Http(service);
                match transport {
                    DemoTransport::Http2 => url(addr).http2(),
                    _ => url(addr),
                }
            }
        };
        let client = connect
            .protocol_version(era.version())
            .idle_timeout(RELEASE_TIMEOUT)
            .await?;
        Ok(Self {
            client,
            counters,
            record,
            serving,
            server_handle,
        })
    }

    /// Returns the number of calls and requests in the tables of both ends (of each `Mux`, or of the `HttpService`), as
    /// far as they are in this process.
    pub(crate) fn table_entries(&self) -> usize {
        let near = self.client.peer().map_or(0, entries_of);
        near + match &self.server_handle {
            ServerHandle::NotObservable => 0,
            ServerHandle::Peer(peer) => entries_of(peer),
            ServerHandle::Http(service) => service.in_flight(),
        }
    }

    /// Closes the connection and stops the server.
    pub(crate) async fn close(self) -> Result<()> {
        let closed = self.client.close().await;
        if let Some(serving) = self.serving {
            if let ServerHandle::Http(_) = self.server_handle {
                // It would accept connections for ever.
                serving.abort();
            }
            // Joined, so that it holds no resources; whether it was aborted does not matter.
            let _ = serving.await;
        }
        closed
    }
}

/// Returns the command to run this program as a server that reports its events and counters.
fn server_command(counters: &Counters, record: &WireRecord) -> Result<Command> {
    let program = std::env::current_exe().map_err(|error| Error::Transport {
        what: "failed to find the path of this program".into(),
        source: Some(error.into()),
    })?;
    let report_to = Arc::new((counters.clone(), record.clone()));
    Ok(Command::new(program)
        .args(["serve-demo", "--transport", "stdio", "--report"])
        .on_stderr(move |line| serve::parse_report(line, &report_to.0, &report_to.1)))
}

fn url(addr: SocketAddr) -> ClientBuilder {
    Client::connect(&format!("http://{addr}/mcp"))
}

fn entries_of(peer: &Peer) -> usize {
    let sizes = peer.sizes();
    sizes.pending + sizes.in_flight + sizes.queued
}

fn socket_error(error: std::io::Error) -> Error {
    Error::Transport {
        what: "failed to open a socket".into(),
        source: Some(error.into()),
    }
}
