//! What a scenario runs in: a transport, a protocol version, and ways to connect over them.

use std::cell::{Cell, RefCell};

use bowline::client::Connect;
use bowline::exchange::Dialects;
use bowline::http::HttpService;
use bowline::http::client::HyperSend;
use bowline::http::legacy::Legacy;
use bowline::testing::{self, Scripted, Tapped};
use bowline::types::{DiscoverRequest, DiscoverResult, RequestParams};
use bowline::wire::Command;
use bowline::{Client, Result, Server};
use bowline_core::era::{Dialect, HttpTransport};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::http::Plain;
use crate::{Column, Scenario, Transport};

/// A transport and a protocol version, for one run of one scenario.
#[derive(Debug)]
pub struct World {
    scenario: String,
    column: Column,
    role: Role,
    connections: Cell<usize>,
    tapped: RefCell<Option<Tapped>>,
    /// What serves over HTTP.
    serving: RefCell<JoinSet<Result<()>>>,
}

/// What a process is to do with a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Run it to its end.
    Run,
    /// Run it up to this connection and serve that one, as the child of the process that runs it.
    Serve(usize),
}

impl World {
    pub(crate) fn new(scenario: &Scenario, column: Column, role: Role) -> Self {
        Self {
            scenario: scenario.path(),
            column,
            role,
            connections: Cell::new(0),
            tapped: RefCell::new(None),
            serving: RefCell::default(),
        }
    }

    /// The protocol version.
    #[must_use]
    pub fn dialect(&self) -> &'static Dialect {
        self.column.dialect
    }

    /// The name of the protocol version.
    #[must_use]
    pub fn version(&self) -> &'static str {
        self.column.dialect.version
    }

    /// Whether the version is one without a handshake.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.column.dialect.is_modern()
    }

    /// Connects a client to `server`.
    ///
    /// # Panics
    ///
    /// If that fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(&self, server: &Server) -> Client {
        self.connect_with(server, |connect| connect).await
    }

    /// Connects a client, with a say in how it is made.
    ///
    /// # Panics
    ///
    /// If that fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect_with(
        &self,
        server: &Server,
        choose: impl FnOnce(Connect) -> Connect,
    ) -> Client {
        self.try_connect(server, choose).await.unwrap()
    }

    /// Connects a client, which may fail.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn try_connect(
        &self,
        server: &Server,
        choose: impl FnOnce(Connect) -> Connect,
    ) -> Result<Client> {
        let nth = self.connections.replace(self.connections.get() + 1);
        let transport = match (self.column.transport, self.role) {
            (Transport::InProcess, _) => testing::Transport::InProcess,
            (Transport::Memory, _) => testing::Transport::Memory,
            (Transport::Stdio, Role::Run) => {
                return choose(Client::spawn(self.child(nth)).speaking(self.version())).await;
            }
            (Transport::Http | Transport::Http2, _) => {
                let service = server.http().legacy(Legacy::sessions().http_sse());
                return choose(self.connect_to(&self.serve(service).await)).await;
            }
            (Transport::HttpSse, _) => {
                let url = self.serve_over_two_endpoints(server).await;
                return choose(self.connect_to(&url)).await;
            }
            (Transport::Stdio, Role::Serve(mine)) if mine == nth => serve(server).await,
            // What comes before the connection that this process serves only has to happen somehow.
            (Transport::Stdio, Role::Serve(_)) => testing::Transport::Memory,
        };
        let reach = testing::Column::new(transport, self.column.dialect).reach(server);
        *self.tapped.borrow_mut() = reach.tapped;
        choose(reach.connect).await
    }

    /// Serves HTTP at the URL that is returned, until the world is over.
    ///
    /// # Panics
    ///
    /// If there is no address to serve at.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future serves nothing.
    pub async fn serve(&self, service: HttpService) -> String {
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", bound.addr());
        self.serving.borrow_mut().spawn(bound.serve());
        url
    }

    /// The same for a server that has nothing but HTTP+SSE.
    ///
    /// # Panics
    ///
    /// If there is no address to serve at.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future serves nothing.
    pub async fn serve_over_two_endpoints(&self, server: &Server) -> String {
        let oldest = |dialect: &Dialect| dialect.http.transport == HttpTransport::TwoEndpoints;
        let service = server.http().versions(Dialects::only(oldest));
        self.serve(service.legacy(Legacy::sessions().http_sse()))
            .await
    }

    /// Connects a client to a URL, speaking this version over this kind of HTTP.
    pub fn connect_to(&self, url: &str) -> Connect {
        let connect = Client::connect(url).speaking(self.version());
        if self.column.transport == Transport::Http2 {
            connect.http(HyperSend::plain_http2())
        } else {
            connect
        }
    }

    /// Somebody who speaks plain HTTP to a service, which is served until the world is over.
    ///
    /// # Panics
    ///
    /// If there is no address to serve at.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future serves nothing.
    pub async fn plain(&self, service: HttpService) -> Plain {
        let url = self.serve(service).await;
        Plain::new(&url, self.column)
    }

    /// Connects a client to `server` in a child process, with a say in how that is started.
    ///
    /// # Panics
    ///
    /// If that fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the child.
    pub async fn connect_to_child(
        &self,
        server: &Server,
        choose: impl FnOnce(Command) -> Command,
    ) -> Client {
        let nth = self.connections.replace(self.connections.get() + 1);
        if self.role == Role::Serve(nth) {
            serve(server).await;
        }
        let connect = Client::spawn(choose(self.child(nth)));
        connect.speaking(self.version()).await.unwrap()
    }

    /// The process that serves the `nth` connection of this scenario: this program again.
    fn child(&self, nth: usize) -> Command {
        let program = std::env::current_exe().unwrap();
        let nth = nth.to_string();
        Command::new(program).args(["--serve", &self.scenario, self.version(), &nth])
    }

    /// What passed over the wire of the last connection, where there is a wire to look at.
    #[must_use]
    pub fn tapped(&self) -> Option<Tapped> {
        self.tapped.borrow().clone()
    }

    /// Connects a client to a server that follows a script.
    ///
    /// # Panics
    ///
    /// If that fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn scripted_server(
        &self,
        capabilities: Value,
        choose: impl FnOnce(Connect) -> Connect,
    ) -> (Client, Scripted) {
        let (wire, mut server) = testing::scripted();
        let connect = choose(Client::over(wire).speaking(self.version()));
        if self.is_modern() {
            return (connect.await.unwrap(), server);
        }
        let handshake = server.shake_hands(self.version(), capabilities);
        let (client, ()) = tokio::join!(connect.into_future(), handshake);
        (client.unwrap(), server)
    }

    /// Serves `server` to a client that follows a script and has opened the connection.
    ///
    /// # Panics
    ///
    /// If the server does not go along.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn scripted_client(&self, server: &Server, capabilities: Value) -> Scripted {
        let mut client = testing::scripted_client(server);
        client.open(self.dialect(), capabilities).await;
        client
    }

    /// What the server says of itself: when the connection is opened, or when it is asked.
    ///
    /// # Panics
    ///
    /// If it does not say.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost by dropping it.
    pub async fn introduction(&self, client: &Client) -> DiscoverResult {
        match client.server() {
            Some(server) => server.clone(),
            None => {
                let params = RequestParams::default();
                client.request::<DiscoverRequest>(&params).await.unwrap()
            }
        }
    }
}

/// Serves the process that started this one, and ends with it.
async fn serve(server: &Server) -> ! {
    match server.clone().serve_stdio().await {
        Ok(()) => std::process::exit(0),
        Err(error) => panic!("standard input and output cannot be served: {error}"),
    }
}
