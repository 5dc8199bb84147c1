//! A client and the fixture, connected in one of the ways that there are.

use std::net::SocketAddr;
use std::sync::Arc;

use bowline::client::Connect;
use bowline::exchange::Dialect;
use bowline::http::HttpService;
use bowline::peer::Peer;
use bowline::wire::Command;
use bowline::{Client, Error, Result, wire};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::remains::PATIENCE;
use crate::counters::Counters;
use crate::fixture::Fixture;
use crate::heard::{Heard, Tap, TappedIo};
use crate::serve;

/// How a client reaches a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    InProcess,
    Memory,
    Stdio,
    Http,
    Http2,
}

/// Which of the two ways of speaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    Modern,
    Legacy,
}

/// A client, and what can be seen of its server.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) counters: Counters,
    pub(crate) heard: Heard,
    serving: Option<JoinHandle<()>>,
    far_end: FarEnd,
}

/// Where the server keeps what it remembers of a connection.
enum FarEnd {
    /// Nowhere, or in another process.
    OutOfSight,
    Peer(Peer),
    Http(HttpService),
}

impl Transport {
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
}

impl Era {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Modern => Dialect::LATEST.version,
            Self::Legacy => Dialect::LATEST_LEGACY.version,
        }
    }
}

impl Stage {
    pub(crate) async fn open(transport: Transport, era: Era) -> Result<Self> {
        let (fixture, heard) = (Fixture::new(), Heard::default());
        let counters = fixture.counters().clone();
        let (mut serving, mut far_end) = (None, FarEnd::OutOfSight);
        let connect = match transport {
            Transport::InProcess => Client::to(&fixture.server()),
            Transport::Memory => {
                let (near, far) = wire::memory();
                let (peer, serve) = fixture.server().serve_counted(Tap::new(far, &heard));
                serving = Some(tokio::spawn(async { drop(serve.await) }));
                far_end = FarEnd::Peer(peer);
                Client::over(near)
            }
            Transport::Stdio => Client::spawn(this_program(&counters, &heard)?),
            Transport::Http | Transport::Http2 => {
                let listener = TcpListener::bind("127.0.0.1:0").await.map_err(no_socket)?;
                let addr = listener.local_addr().map_err(no_socket)?;
                let service = fixture.server().http();
                let (connect, tap): (_, fn(_, &_) -> _) = match transport {
                    Transport::Http2 => (url(addr).http2(), TappedIo::http2),
                    _ => (url(addr), TappedIo::http1),
                };
                let accepting = accept(listener, service.clone(), heard.clone(), tap);
                serving = Some(tokio::spawn(accepting));
                far_end = FarEnd::Http(service);
                connect
            }
        };
        let client = connect.speaking(era.version()).timeout(PATIENCE).await?;
        Ok(Self {
            client,
            counters,
            heard,
            serving,
            far_end,
        })
    }

    /// How many calls and requests are remembered, at both ends as far as they are in this process.
    pub(crate) fn entries(&self) -> usize {
        let near = self.client.peer().map_or(0, entries_of);
        near + match &self.far_end {
            FarEnd::OutOfSight => 0,
            FarEnd::Peer(peer) => entries_of(peer),
            FarEnd::Http(service) => service.in_flight(),
        }
    }

    /// Closes the connection and ends the server.
    pub(crate) async fn close(self) -> Result<()> {
        let closed = self.client.close().await;
        if let Some(serving) = self.serving {
            if let FarEnd::Http(_) = self.far_end {
                // It would take connections for ever.
                serving.abort();
            }
            // Whether it was aborted or came to its end, it is over.
            let _ = serving.await;
        }
        closed
    }
}

/// This program as a server, which tells us what it hears and counts.
fn this_program(counters: &Counters, heard: &Heard) -> Result<Command> {
    let program = std::env::current_exe().map_err(|error| Error::Transport {
        what: "this program does not know where it is".into(),
        source: Some(error.into()),
    })?;
    let told = Arc::new((counters.clone(), heard.clone()));
    Ok(Command::new(program)
        .args(["serve-demo", "--transport", "stdio", "--tell"])
        .on_stderr(move |line| serve::listen(line, &told.0, &told.1)))
}

fn url(addr: SocketAddr) -> Connect {
    Client::connect(&format!("http://{addr}/mcp"))
}

/// Serves HTTP as `HttpService::bind` does, on sockets that write down what comes in.
async fn accept(
    listener: TcpListener,
    service: HttpService,
    heard: Heard,
    tap: fn(TcpStream, &Heard) -> TappedIo<TcpStream>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((socket, _)) = accepted else { return };
                // Answers are small and somebody waits for each.
                let _ = socket.set_nodelay(true);
                let (socket, service) = (tap(socket, &heard), service.clone());
                connections.spawn(async move { service.serve_connection(socket).await });
            }
        }
    }
}

fn entries_of(peer: &Peer) -> usize {
    let sizes = peer.sizes();
    sizes.pending + sizes.in_flight + sizes.queued
}

fn no_socket(error: std::io::Error) -> Error {
    Error::Transport {
        what: "no socket could be had".into(),
        source: Some(error.into()),
    }
}
