//! Tasks of servers behind HTTP, and networks that fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline::http::HttpService;
use bowline::http::client::HyperClient;
use bowline::http::server::MethodCatalog;
use bowline::testing::PipeConnector;
use bowline::types::Implementation;
use bowline::{Caller, Client, Error};
use bowline_core::http::headers::{ParamHeaders, name_member};
use bowline_tasks::TaskClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::AbortHandle;

use crate::dropping::waiting_calls;
use crate::fixture::{MODERN, TaskServer, completed, pass, secs, task};

/// The network between a client and a server.
#[derive(Clone)]
struct Network(Arc<Mutex<NetworkState>>);

struct NetworkState {
    service: HttpService,
    /// What new connections get: the server, nothing, or this status.
    mode: Mode,
    connections: Vec<AbortHandle>,
}

#[derive(Clone, Copy)]
enum Mode {
    Server,
    Closed,
    Status(u16),
}

impl Network {
    fn new(server: &TaskServer) -> Self {
        let identity = Implementation::new("scripted", "1.0.0");
        let service = HttpService::new(server.responder(), Catalog, &identity);
        Self(Arc::new(Mutex::new(NetworkState {
            service,
            mode: Mode::Server,
            connections: Vec::new(),
        })))
    }

    /// Ends all connections, and changes what new ones get.
    fn set(&self, mode: Mode) {
        let mut state = self.0.lock().unwrap();
        state.mode = mode;
        state.connections.drain(..).for_each(|task| task.abort());
    }

    fn accept(&self, stream: DuplexStream) {
        let mut state = self.0.lock().unwrap();
        let (mode, service) = (state.mode, state.service.clone());
        let connection = tokio::spawn(async move {
            match mode {
                Mode::Server => service.serve_connection(stream).await,
                Mode::Closed => drop(stream),
                Mode::Status(status) => refuse(stream, status).await,
            }
        });
        state.connections.push(connection.abort_handle());
    }

    async fn client(&self, tasks: TaskClient) -> Client {
        let network = self.clone();
        let connector = PipeConnector::with(move |stream| network.accept(stream));
        let client = Client::connect("http://localhost/mcp").protocol_version(MODERN);
        let client = client.http_client(HyperClient::with_connector(connector));
        client.extension(tasks).await.unwrap()
    }
}

/// Answers one request with a status, like a proxy whose server is away.
async fn refuse(mut stream: DuplexStream, status: u16) {
    let mut request = [0; 1024];
    let _ = stream.read(&mut request).await;
    let response =
        format!("HTTP/1.1 {status} Away\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let _ = stream.write_all(response.as_bytes()).await;
}

/// Has every method, and requires `Mcp-Name` of those of tasks.
struct Catalog;

impl MethodCatalog for Catalog {
    fn has_method(&self, _: &str) -> bool {
        true
    }

    fn name_member(&self, method: &str) -> Option<&str> {
        match method.starts_with("tasks/") {
            true => Some("taskId"),
            false => name_member(method),
        }
    }

    fn param_headers(&self, _: &str, _: &Caller) -> Option<Arc<ParamHeaders>> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_task_over_http() {
    let server = TaskServer::new();
    let notifications = server.listening();
    let client = Network::new(&server).client(TaskClient::new()).await;

    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(20)).await;
    notifications.send(completed("done")).unwrap();

    assert_eq!(call.await.unwrap().unwrap().text(), "done");
    let expected = [
        "tools/call",
        "tasks/get",
        "subscriptions/listen",
        "tasks/get",
        "tasks/get",
    ];
    assert_eq!(server.methods(), expected);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_over_http_cancels_its_task() {
    let server = TaskServer::new();
    let client = Network::new(&server).client(TaskClient::new()).await;
    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(secs(5)).await;

    call.abort();
    pass(secs(1)).await;

    assert_eq!(server.count("tasks/cancel"), 1);
    assert_eq!(server.params("tasks/cancel")[0]["taskId"], "A7");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_behind_http_is_waited_for() {
    for mode in [Mode::Closed, Mode::Status(503), Mode::Status(502)] {
        for tasks in [TaskClient::new(), TaskClient::new().polling_only()] {
            let server = TaskServer::new();
            server.listening();
            let network = Network::new(&server);
            let client = network.client(tasks).await;

            let call = client.call_tool("slow", ()).timeout(secs(600));
            let call = tokio::spawn(call);
            pass(secs(5)).await;
            network.set(mode);
            pass(secs(120)).await;
            server.set_answers("tasks/get", [completed("done")]);
            network.set(Mode::Server);

            assert_eq!(call.await.unwrap().unwrap().text(), "done");
            assert_eq!(server.count("tools/call"), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_a_server_may_be_away_for_the_idle_timeout() {
    let server = TaskServer::new();
    let network = Network::new(&server);
    let client = network.client(TaskClient::new().polling_only()).await;
    let call = tokio::spawn(client.call_tool("slow", ()).idle_timeout(secs(20)));
    pass(Duration::from_millis(5500)).await;

    network.set(Mode::Closed);
    let began = tokio::time::Instant::now();
    let error = call.await.unwrap().unwrap_err();

    assert!(
        matches!(error, Error::Timeout { after } if after == secs(20)),
        "{error:?}"
    );
    assert_eq!(began.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_http_is_not_waited_for() {
    let server = TaskServer::new().states([task("working")]);
    let network = Network::new(&server);
    let client = network.client(TaskClient::new().polling_only()).await;
    let call = tokio::spawn(client.call_tool("slow", ()));
    pass(Duration::from_millis(5500)).await;

    network.set(Mode::Status(410));
    let began = tokio::time::Instant::now();
    let error = call.await.unwrap().unwrap_err();

    assert_eq!(error.http_status(), Some(410), "{error:?}");
    assert!(began.elapsed() < secs(1));
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_dropped_at_once_before_a_close_cancel_all_their_tasks() {
    const CALLS: usize = 1_200;
    let server = TaskServer::new();
    let client = Network::new(&server)
        .client(TaskClient::new().polling_only())
        .await;
    let mut calls = waiting_calls(&client, &server, CALLS).await;

    calls.shutdown().await;
    client.close().await.unwrap();

    assert_eq!(server.count("tasks/cancel"), CALLS);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_client_with_its_calls_cancels_all_tasks() {
    const CALLS: usize = 1_200;
    let server = TaskServer::new();
    let client = Network::new(&server)
        .client(TaskClient::new().polling_only())
        .await;
    let calls = waiting_calls(&client, &server, CALLS).await;

    drop((calls, client));
    pass(secs(1)).await;

    assert_eq!(server.count("tasks/cancel"), CALLS);
}
