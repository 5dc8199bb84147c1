//! The server as HTTP clients reach it: whichever service answers now, over connections that can be shut down one
//! by one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline::Server;
use bowline::http::HttpService;
use bowline::http::server::HttpBody;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tower_service::Service;

use crate::network::{End, Network, Pipe};

/// The way to the service that answers now. Clones are the same door.
#[derive(Clone)]
pub(crate) struct Door(Arc<Mutex<State>>);

struct State {
    service: HttpService,
    /// One for each connection, if connections are to be shut down one by one.
    connections: Option<Vec<(Pipe, HttpService)>>,
    /// The last session that each party was given.
    sessions: BTreeMap<char, HeaderValue>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Door {
    /// A door to `service`, whose connections can be shut down one by one if `has_goodbyes`.
    pub(crate) fn to(service: HttpService, has_goodbyes: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            service,
            connections: has_goodbyes.then(Vec::new),
            sessions: BTreeMap::new(),
        })))
    }

    pub(crate) fn service(&self) -> HttpService {
        self.lock().service.clone()
    }

    /// Answers with another service from now on, over connections that exist too.
    pub(crate) fn lead_to(&self, service: HttpService) {
        let old = std::mem::replace(&mut self.lock().service, service);
        drop(old);
    }

    /// Serves one connection of a party, in a task of its own.
    pub(crate) fn serve(&self, party: char, far: End) {
        let answering = Answering {
            door: self.clone(),
            party,
        };
        let mut state = self.lock();
        let mut serving = state.service.clone();
        if let Some(connections) = &mut state.connections {
            // Only its shutdown counts: the requests of the connection are answered by `answering`.
            serving = Server::new("a connection", "1.0.0").http();
            connections.push((far.pipe(), serving.clone()));
        }
        drop(state);
        tokio::spawn(async move { serving.serve_connection_through(far, answering).await });
    }

    pub(crate) fn connections(&self) -> usize {
        self.lock().connections.as_ref().map_or(0, Vec::len)
    }

    /// Shuts one connection down: it takes no new requests, and ends when those that it has are answered.
    pub(crate) fn say_goodbye(&self, connection: usize) -> Option<Pipe> {
        let state = self.lock();
        let all = state.connections.as_ref()?;
        let (pipe, connection) = all.get(connection)?.clone();
        drop(state);
        connection.shut_down(GOODBYE_GRACE);
        Some(pipe)
    }

    /// Shuts down every connection that can be shut down alone.
    pub(crate) fn shut_down(&self, grace: Duration) {
        let connections = self.lock().connections.take();
        for (_, connection) in connections.into_iter().flatten() {
            connection.shut_down(grace);
        }
    }

    /// Has the service forget the session of a party. Whether there was one.
    pub(crate) async fn forget(&self, party: char) -> bool {
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
        let ended = service.call(request.expect("a valid request")).await;
        ended.is_ok_and(|response| response.status().is_success())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers the requests of one connection.
#[derive(Clone)]
struct Answering {
    door: Door,
    party: char,
}

impl Service<Request<Incoming>> for Answering {
    type Response = Response<HttpBody>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Response<HttpBody>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Self { door, party } = self.clone();
        let answering = door.service().call(request);
        Box::pin(async move {
            let response = answering.await?;
            if let Some(id) = response.headers().get("mcp-session-id") {
                door.lock().sessions.insert(party, id.clone());
            }
            Ok(response)
        })
    }
}

/// Makes connections to the service, once the network lets it.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) network: Network,
    pub(crate) party: char,
    pub(crate) door: Door,
}

impl Connector {
    pub(crate) async fn connect(self) -> End {
        self.network.knock().await;
        let (near, far) = self.network.pipe(self.party);
        self.door.serve(self.party, far);
        near
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<End>;
    type Error = io::Error;
    type Future = BoxFuture<io::Result<TokioIo<End>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = self.clone().connect();
        Box::pin(async move { Ok(TokioIo::new(connecting.await)) })
    }
}

impl Connection for End {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Longer than any schedule lasts: what a connection has begun when it says goodbye is finished.
const GOODBYE_GRACE: Duration = Duration::from_secs(100_000);
