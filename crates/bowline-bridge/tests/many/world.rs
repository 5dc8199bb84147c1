//! [`World`]: the servers that a bridge in a test connects to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bowline::client::{ClientBuilder, Connection};
use bowline::exchange::{
    Answer, CallOptions, Channel as _, Outcome, Principal, Request, Responder,
};
use bowline::prelude::*;
use bowline::{Error, Json, RpcError};
use bowline_bridge::{Bridge, BridgeConfig, Target};
use tokio::io::DuplexStream;
use tokio::task::AbortHandle;

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-06-18";
pub(crate) const ERAS: [&str; 2] = [MODERN, LEGACY];

/// The servers of a test, by the names in the configuration.
#[derive(Clone, Default)]
pub(crate) struct World(Arc<Mutex<BTreeMap<String, Behind>>>);

struct Behind {
    connect: Arc<dyn Fn() -> Connected + Send + Sync>,
    connections: usize,
    running: Vec<AbortHandle>,
}

type Connected = (ClientBuilder, Option<AbortHandle>);

impl World {
    /// Adds or replaces a server that speaks one version.
    pub(crate) fn serve(&self, name: &str, server: &Server, version: &'static str) {
        let server = server.clone();
        self.set(name, move || {
            let (near, far) = bowline::wire::memory();
            let running = tokio::spawn(server.clone().serve(far)).abort_handle();
            (
                Client::from_wire(near).protocol_version(version),
                Some(running),
            )
        });
    }

    /// Adds or replaces a server that is a function.
    pub(crate) fn serve_raw<R: Responder + Clone>(&self, name: &str, responder: &R) {
        let responder = responder.clone();
        self.set(name, move || {
            (
                Client::in_process(&responder).protocol_version(MODERN),
                None,
            )
        });
    }

    /// Adds or replaces a server that never answers.
    pub(crate) fn hang(&self, name: &str) {
        let wires = Mutex::new(Vec::new());
        self.set(name, move || {
            let (near, far) = bowline::wire::memory();
            wires.lock().unwrap().push(far);
            (Client::from_wire(near), None)
        });
    }

    /// Ends the connections of a server, and makes further ones fail.
    pub(crate) fn kill(&self, name: &str) {
        self.set(name, || {
            let (near, far) = bowline::wire::memory();
            drop(far);
            (Client::from_wire(near), None)
        });
    }

    /// Returns how many connections to a server were opened since it was added.
    pub(crate) fn connections(&self, name: &str) -> usize {
        self.0.lock().unwrap()[name].connections
    }

    /// Returns how many of the connections to a server are open.
    pub(crate) fn open(&self, name: &str) -> usize {
        let behind = self.0.lock().unwrap();
        let running = behind[name].running.iter();
        running.filter(|running| !running.is_finished()).count()
    }

    /// Adds or replaces a server that is served on the other end of a pipe.
    pub(crate) fn serve_pipe<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: &str,
        serve: impl Fn(DuplexStream) -> F + Send + Sync + 'static,
    ) {
        self.set(name, move || {
            let (near, far) = tokio::io::duplex(4096);
            let running = tokio::spawn(serve(far)).abort_handle();
            let (read, write) = tokio::io::split(near);
            (
                Client::from_wire(bowline::wire::Lines::new(read, write)),
                Some(running),
            )
        });
    }

    fn set(&self, name: &str, connect: impl Fn() -> Connected + Send + Sync + 'static) {
        let behind = Behind {
            connect: Arc::new(connect),
            connections: 0,
            running: Vec::new(),
        };
        let before = self.0.lock().unwrap().insert(name.to_owned(), behind);
        let running = before.into_iter().flat_map(|before| before.running);
        running.for_each(|running| running.abort());
    }

    /// Creates a bridge. The commands in the configuration do not matter.
    pub(crate) fn bridge(&self, config: &str) -> Bridge {
        let world = self.clone();
        Bridge::from_config_with(&parse(config), move |server| {
            let (world, name) = (world.clone(), server.name().to_owned());
            let target = Target::new(server.name(), move |_| Ok(world.connect(&name)));
            Ok(match server.settings().shared {
                true => target.stateless(),
                false => target,
            })
        })
        .unwrap()
    }

    fn connect(&self, name: &str) -> ClientBuilder {
        let mut behind = self.0.lock().unwrap();
        let behind = behind.get_mut(name).unwrap();
        behind.connections += 1;
        let (builder, running) = (behind.connect)();
        behind.running.extend(running);
        builder
    }
}

pub(crate) fn parse(config: &str) -> BridgeConfig {
    BridgeConfig::from_json(config).unwrap()
}

/// Two servers `a` and `b` with default settings.
pub(crate) const TWO: &str = r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}"#;

/// A server whose tool `name` returns its name.
pub(crate) fn named(name: &'static str) -> Server {
    Server::new(name, "1.0.0").tool(Tool::new("name", move || async move { name }))
}

pub(crate) async fn connect(bridge: &Bridge, version: &'static str) -> Client {
    let client = Client::in_process(bridge).protocol_version(version);
    client.await.unwrap()
}

/// A client of a bridge that a layer has authenticated.
pub(crate) async fn connect_as(bridge: &Bridge, principal: Principal) -> Client {
    let bridge = bridge.clone();
    let responder = move |request: Request, cx: Context| {
        let (bridge, cx) = (bridge.clone(), cx.with_principal(principal.clone()));
        async move { bridge.respond(request, cx).await }
    };
    let client = Client::in_process(&responder).protocol_version(MODERN);
    client.await.unwrap()
}

pub(crate) async fn tool_names(client: &Client) -> Vec<String> {
    let tools = client.list_tools().await.unwrap();
    tools.into_iter().map(|tool| tool.name).collect()
}

/// Lets the other tasks run until they wait, without letting time pass. For runtimes with one thread.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// The error of a request that must fail.
pub(crate) fn rpc_error<T: std::fmt::Debug>(result: bowline::Result<T>) -> RpcError {
    match result.unwrap_err() {
        Error::Rpc(error) => error,
        other => panic!("expected an error of the bridge, got {other}"),
    }
}

/// Sends a request as it is, and returns its result as it is.
pub(crate) async fn ask(
    connection: &Connection,
    method: &'static str,
    params: serde_json::Value,
) -> bowline::Result<serde_json::Value> {
    let request = Request::new(method, Json::from(params), connection.caller());
    let answer = connection.open(request, CallOptions::default()).answer();
    let (Answer::Complete(result)
    | Answer::InputRequired(result)
    | Answer::Extension { result, .. }) = answer.await?;
    Ok(result.decode().unwrap())
}

/// Checks that a function is a responder.
pub(crate) fn responder<F, R>(function: F) -> F
where
    F: Fn(Request, Context) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    function
}
