//! The environment of a scenario: a transport, a protocol version, and functions that connect clients and servers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bowline::client::{ClientBuilder, Host};
use bowline::exchange::Dialects;
use bowline::http::HttpService;
use bowline::http::legacy::Legacy;
use bowline::testing::{self, ScriptedPeer, WireRecord};
use bowline::types::{DiscoverRequest, DiscoverResult, RequestParams};
use bowline::wire::Command;
use bowline::{Client, Result, Server};
use bowline_core::era::{Dialect, HttpTransportKind};
use cluster_tests::RoundRobinProxy;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::http::RawHttpClient;
use crate::replicas::Served;
use crate::{Column, Replicas, Scenario, Transport};

/// A transport and a protocol version, for one run of one scenario.
#[derive(Debug)]
pub struct ScenarioEnv {
    scenario: String,
    column: Column,
    role: ProcessRole,
    connections: Cell<usize>,
    wire_record: RefCell<Option<WireRecord>>,
    /// The tasks that serve HTTP.
    serving: RefCell<JoinSet<Result<()>>>,
    /// How servers are replicated; `None` for one process each.
    replicas: Option<Replicas>,
    /// Which servers the scenario has started, for the runner.
    served: Rc<RefCell<Served>>,
    proxies: RefCell<Vec<RoundRobinProxy>>,
}

/// The role of this process in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessRole {
    /// Runs the scenario to its end.
    Run,
    /// Runs the scenario up to this connection and serves it, as a child of the process with the role `Run`.
    Serve(usize),
}

impl ScenarioEnv {
    pub(crate) fn new(scenario: &Scenario, column: Column, role: ProcessRole) -> Self {
        Self {
            scenario: scenario.path(),
            column,
            role,
            connections: Cell::new(0),
            wire_record: RefCell::new(None),
            serving: RefCell::default(),
            replicas: None,
            served: Rc::new(RefCell::new(Served::Nothing)),
            proxies: RefCell::default(),
        }
    }

    /// Serves each server by several replicas behind a proxy.
    pub(crate) fn with_replicas(mut self, replicas: Replicas, served: Rc<RefCell<Served>>) -> Self {
        self.replicas = Some(replicas);
        self.served = served;
        self
    }

    pub(crate) fn can_pause_time(&self) -> bool {
        self.column.transport.can_pause_time()
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

    /// Whether the version is a modern one, without a handshake.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.column.dialect.is_modern()
    }

    /// Whether servers are replicated: what one replica is told, such as a log level, is known to the others a moment later.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.replicas.is_some()
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

    /// Connects a client with a host.
    ///
    /// # Panics
    ///
    /// If that fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect_host(&self, server: &Server, host: Host) -> Client {
        self.connect_with(server, |connect| connect.host(host))
            .await
    }

    /// Connects a client that `configure` has configured.
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
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Client {
        self.try_connect(server, configure).await.unwrap()
    }

    /// Connects a client that `configure` has configured.
    ///
    /// # Errors
    ///
    /// If connecting fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn try_connect(
        &self,
        server: &Server,
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client> {
        let nth = self.connections.replace(self.connections.get() + 1);
        let transport = match (self.column.transport, self.role) {
            (Transport::InProcess, _) => testing::TestTransport::InProcess,
            (Transport::Memory, _) => testing::TestTransport::Memory,
            (Transport::Stdio, ProcessRole::Run) => {
                return configure(Client::spawn(self.child(nth)).protocol_version(self.version()))
                    .await;
            }
            (Transport::Http | Transport::Http2, _) => {
                let url = self
                    .serve_server(server, |http| http.legacy(Legacy::sessions().http_sse()))
                    .await;
                return configure(self.connect_to(&url)).await;
            }
            (Transport::HttpSse, _) => {
                let url = self.serve_http_sse(server).await;
                return configure(self.connect_to(&url)).await;
            }
            (Transport::Stdio, ProcessRole::Serve(mine)) if mine == nth => serve(server).await,
            // Earlier connections only have to work, so that the scenario reaches the one that this process serves.
            (Transport::Stdio, ProcessRole::Serve(_)) => testing::TestTransport::Memory,
        };
        let served = testing::MatrixCase::new(transport, self.column.dialect).serve(server);
        *self.wire_record.borrow_mut() = served.record;
        configure(served.connect).await
    }

    /// Serves HTTP until the environment is dropped, and returns the URL.
    ///
    /// # Panics
    ///
    /// If no local port can be bound.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future starts no server.
    pub async fn serve(&self, service: HttpService) -> String {
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", bound.local_addr());
        self.serving.borrow_mut().spawn(bound.serve());
        self.served.borrow_mut().add(Served::OneProcess);
        url
    }

    /// Serves a server over HTTP, by the replicas of this environment if it has some, until it is dropped, and returns the
    /// URL. `configure` is applied to the service of each replica.
    ///
    /// # Panics
    ///
    /// If no local port can be bound, or the engine cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Replicas that were started serve until the environment is dropped.
    pub async fn serve_server(
        &self,
        server: &Server,
        configure: impl Fn(HttpService) -> HttpService,
    ) -> String {
        let Some(replicas) = &self.replicas else {
            return self.serve(configure(server.http())).await;
        };
        let mut addresses = Vec::new();
        for _ in 0..REPLICAS {
            // Clones share handlers and what those keep, as with a database, but no state of a process: a service has the
            // settings that its server had when it was made.
            let replica = server.clone().cluster(replicas.connect().await);
            let bound = configure(replica.http()).bind("127.0.0.1:0").await.unwrap();
            addresses.push(bound.local_addr());
            self.serving.borrow_mut().spawn(bound.serve());
        }
        let proxy = RoundRobinProxy::start(replicas.stickiness(), addresses).await;
        let proxy = proxy.unwrap();
        let url = proxy.url();
        self.served.borrow_mut().add(Served::Replicas);
        self.proxies.borrow_mut().push(proxy);
        url
    }

    /// Serves HTTP+SSE only until the environment is dropped, and returns the URL.
    ///
    /// # Panics
    ///
    /// If no local port can be bound.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future starts no server.
    pub async fn serve_http_sse(&self, server: &Server) -> String {
        let oldest = |dialect: &Dialect| dialect.http.transport == HttpTransportKind::HttpSse;
        self.serve_server(server, |http| {
            let service = http.versions(Dialects::only(oldest));
            service.legacy(Legacy::sessions().http_sse())
        })
        .await
    }

    /// Connects a client to a URL, with the version and the HTTP version of this environment.
    pub fn connect_to(&self, url: &str) -> ClientBuilder {
        let connect = Client::connect(url).protocol_version(self.version());
        if self.column.transport == Transport::Http2 {
            connect.http2()
        } else {
            connect
        }
    }

    /// Serves one process over HTTP until the environment is dropped, and returns a raw client for it. For scenarios that
    /// look into the service.
    ///
    /// # Panics
    ///
    /// If no local port can be bound.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future starts no server.
    pub async fn raw_client_of(&self, service: HttpService) -> RawHttpClient {
        let url = self.serve(service).await;
        RawHttpClient::new(&url, self.column)
    }

    /// Serves a server over HTTP as [`serve_server`](Self::serve_server) does, and returns a raw client for it.
    ///
    /// # Panics
    ///
    /// If no local port can be bound, or the engine cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Replicas that were started serve until the environment is dropped.
    pub async fn raw_client(&self, server: &Server) -> RawHttpClient {
        self.raw_client_with(server, |http| http).await
    }

    /// The same with `configure` applied to the service of each replica.
    ///
    /// # Panics
    ///
    /// If no local port can be bound, or the engine cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Replicas that were started serve until the environment is dropped.
    pub async fn raw_client_with(
        &self,
        server: &Server,
        configure: impl Fn(HttpService) -> HttpService,
    ) -> RawHttpClient {
        let url = self.serve_server(server, configure).await;
        RawHttpClient::new(&url, self.column)
    }

    /// Connects a client to `server` in a child process whose command `configure` has configured.
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
        configure: impl FnOnce(Command) -> Command,
    ) -> Client {
        let nth = self.connections.replace(self.connections.get() + 1);
        if self.role == ProcessRole::Serve(nth) {
            serve(server).await;
        }
        let connect = Client::spawn(configure(self.child(nth)));
        connect.protocol_version(self.version()).await.unwrap()
    }

    /// The command of the child process that serves the `nth` connection of this scenario: this program again.
    fn child(&self, nth: usize) -> Command {
        let program = std::env::current_exe().unwrap();
        let nth = nth.to_string();
        Command::new(program).args(["--serve", &self.scenario, self.version(), &nth])
    }

    /// The recorded frames of the last connection, if it is an in-memory wire.
    #[must_use]
    pub fn wire_record(&self) -> Option<WireRecord> {
        self.wire_record.borrow().clone()
    }

    /// Connects a client to a scripted server with tools.
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
        configure: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> (Client, ScriptedPeer) {
        let (wire, mut server) = testing::scripted_peer();
        let connect = configure(Client::from_wire(wire).protocol_version(self.version()));
        if self.is_modern() {
            return (connect.await.unwrap(), server);
        }
        let handshake = server.accept_handshake(self.version(), json!({"tools": {}}));
        let (client, ()) = tokio::join!(connect.into_future(), handshake);
        (client.unwrap(), server)
    }

    /// Serves `server` to a scripted client, and performs the handshake where the version has one.
    ///
    /// # Panics
    ///
    /// If the server rejects the handshake.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn scripted_client(&self, server: &Server, capabilities: Value) -> ScriptedPeer {
        let mut client = testing::scripted_client(server);
        client.perform_handshake(self.dialect(), capabilities).await;
        client
    }

    /// The server's capabilities and info: from the handshake, or from `server/discover`.
    ///
    /// # Panics
    ///
    /// If the request fails.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future cancels the request.
    pub async fn discover_result(&self, client: &Client) -> DiscoverResult {
        match client.server() {
            Some(server) => server.clone(),
            None => {
                let params = RequestParams::default();
                client.request::<DiscoverRequest>(&params).await.unwrap()
            }
        }
    }
}

/// Serves the parent process over stdio, and exits when it closes the connection.
async fn serve(server: &Server) -> ! {
    match server.clone().serve_stdio().await {
        Ok(()) => std::process::exit(0),
        Err(error) => panic!("failed to serve stdio: {error}"),
    }
}

const REPLICAS: usize = 3;
