//! The HTTP side of the server: a replaceable service, over connections that can be shut down one by one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::Server;
use bowline::http::HttpService;
use bowline::http::client::{HttpStream, HyperClient};
use bowline::http::legacy::Legacy;
use bowline::http::server::HttpBody;
use bowline_core::era::{Dialects, HttpTransportKind};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use tower_service::Service;

use crate::network::{Network, PipeEnd, PipeId};
use crate::scene::{ScheduleConfig, TransportKind};

/// Routes requests to the current service. Clones share it.
#[derive(Clone)]
pub(crate) struct HttpFrontend(Arc<Mutex<FrontendState>>);

struct FrontendState {
    service: HttpService,
    /// A service for each connection, whose shutdown is that of the connection; `None` unless connections can be shut
    /// down one by one.
    connections: Option<Vec<(PipeId, HttpService)>>,
    /// The latest session id of each party.
    sessions: BTreeMap<char, HeaderValue>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl HttpFrontend {
    pub(crate) fn new(service: HttpService, can_shut_down_connections: bool) -> Self {
        Self(Arc::new(Mutex::new(FrontendState {
            service,
            connections: can_shut_down_connections.then(Vec::new),
            sessions: BTreeMap::new(),
        })))
    }

    pub(crate) fn service(&self) -> HttpService {
        self.lock().service.clone()
    }

    /// Routes further requests to another service, also on existing connections.
    pub(crate) fn replace_service(&self, service: HttpService) {
        let old = std::mem::replace(&mut self.lock().service, service);
        drop(old);
    }

    /// Serves one connection of a party in a task.
    pub(crate) fn serve(&self, party: char, far: PipeEnd) {
        let connection_service = ConnectionService {
            frontend: self.clone(),
            party,
        };
        let mut state = self.lock();
        let mut service = state.service.clone();
        if let Some(connections) = &mut state.connections {
            // This service only shuts the connection down; `connection_service` answers the requests.
            service = Server::new("a connection", "1.0.0").http();
            connections.push((far.pipe(), service.clone()));
        }
        drop(state);
        tokio::spawn(async move {
            service
                .serve_connection_through(far, connection_service)
                .await
        });
    }

    pub(crate) fn connections(&self) -> usize {
        self.lock().connections.as_ref().map_or(0, Vec::len)
    }

    /// Shuts one connection down gracefully.
    pub(crate) fn shut_down_connection(&self, connection: usize) -> Option<PipeId> {
        let state = self.lock();
        let all = state.connections.as_ref()?;
        let (pipe, connection) = all.get(connection)?.clone();
        drop(state);
        connection.shut_down(CONNECTION_GRACE);
        Some(pipe)
    }

    /// Shuts down all connections that have a service of their own.
    pub(crate) fn shut_down(&self, grace: Duration) {
        let connections = self.lock().connections.take();
        for (_, connection) in connections.into_iter().flatten() {
            connection.shut_down(grace);
        }
    }

    /// Deletes the session of a party, and returns whether there was one.
    pub(crate) async fn delete_session(&self, party: char) -> bool {
        let (id, mut service) = {
            let mut state = self.lock();
            (state.sessions.remove(&party), state.service.clone())
        };
        let Some(id) = id else { return false };
        let request = Request::builder()
            .method(Method::DELETE)
            .uri("/mcp")
            .header("host", "localhost")
            .header("mcp-session-id", id)
            .body(Empty::<Bytes>::new());
        let response = service.call(request.expect("a valid request")).await;
        response.is_ok_and(|response| response.status().is_success())
    }

    fn lock(&self) -> MutexGuard<'_, FrontendState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers the requests of one connection.
#[derive(Clone)]
struct ConnectionService {
    frontend: HttpFrontend,
    party: char,
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<HttpBody>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Response<HttpBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Self { frontend, party } = self.clone();
        let response = frontend.service().call(request);
        Box::pin(async move {
            let response = response.await?;
            if let Some(id) = response.headers().get("mcp-session-id") {
                frontend.lock().sessions.insert(party, id.clone());
            }
            Ok(response)
        })
    }
}

/// Connects to the frontend over the network.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) network: Network,
    pub(crate) party: char,
    pub(crate) frontend: HttpFrontend,
}

impl Connector {
    /// Returns a client that sends its requests over this connector.
    pub(crate) fn http_client(self, transport: TransportKind) -> HyperClient {
        let connect = move |_: Uri| {
            let connecting = self.clone().connect();
            async { Ok(HttpStream::new(connecting.await)) }
        };
        match transport {
            TransportKind::Http2 => HyperClient::with_http2_connector(connect),
            TransportKind::Http1 | TransportKind::Lines => HyperClient::with_connector(connect),
        }
    }

    pub(crate) async fn connect(self) -> PipeEnd {
        self.network.wait_to_connect().await;
        let (near, far) = self.network.pipe(self.party);
        self.frontend.serve(self.party, far);
        near
    }
}

/// Creates the service of a server for the version of the schedule.
pub(crate) fn service(server: &Server, config: ScheduleConfig) -> HttpService {
    if !config.is_http_sse() {
        return server.http();
    }
    let oldest = Dialects::only(|it| it.http.transport == HttpTransportKind::HttpSse);
    let legacy = Legacy::sessions().http_sse();
    server.http().versions(oldest).legacy(legacy)
}

/// Longer than any schedule, so that requests in flight at the shutdown of their connection are finished.
const CONNECTION_GRACE: Duration = Duration::from_secs(100_000);
