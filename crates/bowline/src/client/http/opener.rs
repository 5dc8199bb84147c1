//! Opens a connection over HTTP: probes the server, and falls back to Streamable HTTP with a handshake, then to
//! HTTP+SSE.
//!
//! ```text
//! probe ──reply───▶ modern, or handshake ──▶ legacy
//!   └────silence──▶ probe and handshake at once, until one of them shows the era   (`fallback.rs`)
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::era::probe::suggests_http_sse;
use bowline_core::era::{Caller, OpeningFailure, OpeningStep, Prober, Request};
use bowline_types::{CallToolRequest, Json, ListToolsRequest, Method};

use super::fallback::{Fallback, answer_within, fall_back, reply_of};
use super::opening_time::OpeningTime;
use super::tool_headers::ToolHeaders;
use crate::client::known_tools::KnownTools;
use crate::client::opener::{Opener, discover_request, opening_error};
use crate::client::transport::Transport;
use crate::client::{Connection, EraCache};
use crate::exchange::{CallOptions, Channel, Exchange, TimeoutPause, timeout_with_pauses};
use crate::http::client::{Endpoint, HttpChannel, SendState, UnexpectedStatus, legacy};
use crate::telemetry::{Sender, TransportKind};
use crate::wire::{EngineWire, OpenWireFn, ReconnectControl};
use crate::{Error, Result};

/// A server at a URL. Used as the transport if the server is modern; a legacy one gets a wire made of HTTP requests.
#[derive(Clone)]
pub(in crate::client) struct HttpTransport {
    channel: HttpChannel,
    endpoint: Endpoint,
    /// The eras of servers that were probed before.
    eras: EraCache,
    /// Determines which arguments of a call are mirrored in headers.
    tools: Arc<KnownTools>,
    /// Set if there is no client that lists and learns the tools.
    tool_headers: Option<ToolHeaders>,
    sender: Sender,
}

impl HttpTransport {
    pub(in crate::client) fn new(
        channel: HttpChannel,
        endpoint: Endpoint,
        eras: EraCache,
        tools: Arc<KnownTools>,
    ) -> Self {
        Self {
            channel,
            endpoint,
            eras,
            tools,
            tool_headers: None,
            sender: Sender::default(),
        }
    }

    pub(in crate::client) fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Opens a connection in the remembered version, or in the one that a probe finds.
    pub(in crate::client) async fn connect(mut self, opener: &Opener<'_>) -> Result<Connection> {
        if opener.config.is_bare {
            let (channel, tools) = (self.channel.clone(), self.tools.clone());
            self.tool_headers = Some(ToolHeaders::new(channel, tools));
        }
        let uri = &self.endpoint.uri;
        self.sender = Sender::new(opener.config.telemetry.clone(), TransportKind::Http)
            .with_address(uri.host(), uri.port_u16());
        let time = OpeningTime::start(opener.config);
        let opened = self.connect_in(opener, &time).await;
        time.name_timeout(opened)
    }

    async fn connect_in(self, opener: &Opener<'_>, time: &OpeningTime) -> Result<Connection> {
        let mut caller = opener.config.caller.clone();
        if let Some(known) = &opener.config.known_server {
            let dialect = known.dialect_of(&opener.config.versions)?;
            if dialect.is_modern() {
                caller.dialect = dialect;
                return Ok(self.into_connection(caller, known.introduction()));
            }
            if let Some(opened) = self.initialize_first(opener, caller.clone(), time).await {
                return opened;
            }
        }
        self.probe_in(opener, caller, time).await
    }

    /// Finds the server's version and opens a connection in it.
    pub(in crate::client) async fn probe(
        &self,
        opener: &Opener<'_>,
        caller: Caller,
    ) -> Result<Connection> {
        let time = OpeningTime::start(opener.config);
        let opened = self.probe_in(opener, caller, &time).await;
        time.name_timeout(opened)
    }

    async fn probe_in(
        &self,
        opener: &Opener<'_>,
        mut caller: Caller,
        time: &OpeningTime,
    ) -> Result<Connection> {
        let versions = &opener.config.versions;
        let mut prober = Prober::new(versions);
        let mut step = prober.start(false);
        let is_legacy = opener.config.legacy_first().is_some()
            || self.eras.is_legacy(&self.endpoint.uri, versions);
        if is_legacy
            && matches!(step, OpeningStep::Discover(_))
            && let Some(opened) = self.initialize_first(opener, caller.clone(), time).await
        {
            return opened;
        }
        let mut was_probed = false;
        loop {
            caller.dialect = match step {
                OpeningStep::Discover(dialect) => dialect,
                OpeningStep::Ready(dialect) => {
                    caller.dialect = dialect;
                    return Ok(self.clone().into_connection(caller, None));
                }
                OpeningStep::Initialize(_) => {
                    let connection = self.initialize(opener, caller, time).await?;
                    if was_probed {
                        self.eras.insert(&self.endpoint.uri, connection.dialect());
                    }
                    return Ok(connection);
                }
                OpeningStep::Failed(failure) => return Err(opening_error(&failure)),
            };
            let request = discover_request(&caller);
            let (pause, send_state) = (TimeoutPause::default(), SendState::new());
            let probing = self.channel.probe(&request, &pause, &send_state);
            let mut probing = pin!(timeout_with_pauses(time.remaining(), &pause, probing));
            was_probed = true;
            let reply_time = opener.config.probe_timeout;
            let answered = match versions.latest_legacy() {
                None => Some(probing.as_mut().await),
                Some(_) => answer_within(reply_time, probing.as_mut(), &pause, &send_state).await,
            };
            time.add_pause(pause.total());
            let probe = match answered {
                Some(probe) => probe,
                None => {
                    let handshake = self.initialize(opener, caller.clone(), time);
                    match fall_back(probing, handshake, &prober, time).await {
                        Fallback::Probed(probe) => probe,
                        Fallback::Opened(connection) => {
                            self.eras.insert(&self.endpoint.uri, connection.dialect());
                            return Ok(connection);
                        }
                        Fallback::Failed(error) => return Err(error),
                        Fallback::ProbeAgain => {
                            step = OpeningStep::Discover(caller.dialect);
                            continue;
                        }
                    }
                }
            };
            step = prober.handle_http(reply_of(&probe));
            match &step {
                OpeningStep::Ready(dialect) => {
                    caller.dialect = dialect;
                    let introduction = probe.ok().and_then(|response| response.outcome?.ok());
                    return Ok(self.clone().into_connection(caller, introduction));
                }
                // The error of the request says more than the failure that it led to.
                OpeningStep::Failed(
                    failure @ (OpeningFailure::Unauthorized | OpeningFailure::Inconclusive(_)),
                ) => {
                    let error = probe.map_or_else(Some, |response| response.error);
                    return Err(error.unwrap_or_else(|| opening_error(failure)));
                }
                _ => {}
            }
        }
    }

    /// Performs the handshake before a probe; returns `None` if the server is not a legacy one.
    async fn initialize_first(
        &self,
        opener: &Opener<'_>,
        caller: Caller,
        time: &OpeningTime,
    ) -> Option<Result<Connection>> {
        match self.initialize(opener, caller, time).await {
            Err(error) if contradicts_legacy(&error) => {
                self.eras.remove_uri(&self.endpoint.uri);
                None
            }
            opened_or_failed => Some(opened_or_failed),
        }
    }

    fn into_connection(self, caller: Caller, introduction: Option<Json>) -> Connection {
        Connection::new(Arc::new(Transport::Http(self)), caller, introduction)
    }

    /// Returns a function that opens a wire of HTTP+SSE.
    fn http_sse_wires(&self) -> OpenWireFn {
        let endpoint = self.endpoint.clone();
        Box::new(move || {
            let endpoint = endpoint.clone();
            Box::pin(async move { legacy::http_sse_wire(endpoint, &TimeoutPause::default()).await })
        })
    }

    /// Opens a legacy wire made of HTTP requests: Streamable HTTP first, then HTTP+SSE.
    async fn initialize(
        &self,
        opener: &Opener<'_>,
        caller: Caller,
        time: &OpeningTime,
    ) -> Result<Connection> {
        let Some(wire) = legacy::wire(self.endpoint.clone()) else {
            return Err(opening_error(&OpeningFailure::Incompatible(Vec::new())));
        };
        let endpoint = &self.endpoint;
        let limit = time.handshake();
        let refused =
            match initialize_over(opener, endpoint, (wire, None), caller.clone(), limit).await {
                Err(error) if is_without_streamable_http(&error) => error,
                opened_or_failed => return opened_or_failed,
            };
        let pause = TimeoutPause::default();
        let opening = legacy::http_sse_wire(endpoint.clone(), &pause);
        // The server has answered, so that it is awake.
        let limit = opener.config.probe_timeout.min(time.remaining());
        let opened = timeout_with_pauses(limit, &pause, opening).await;
        time.add_pause(pause.total());
        match opened {
            Ok(wire) => {
                let wire = opener.reconnecting(wire, self.http_sse_wires());
                initialize_over(opener, endpoint, wire, caller, time.handshake()).await
            }
            // The server has neither transport; the error of the first attempt says more.
            Err(_) => Err(refused),
        }
    }
}

impl Channel for HttpTransport {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        if let Some(tool_headers) = &self.tool_headers {
            match &*request.method {
                ListToolsRequest::NAME => return tool_headers.list(request, &options),
                CallToolRequest::NAME => return tool_headers.call(request, options),
                _ => {}
            }
        }
        let param_headers = self.tools.param_headers(&request);
        self.channel.open(request, &options, param_headers)
    }
}

async fn initialize_over(
    opener: &Opener<'_>,
    endpoint: &Endpoint,
    (wire, reconnect): (Box<dyn EngineWire>, Option<Arc<ReconnectControl>>),
    caller: Caller,
    limit: Duration,
) -> Result<Connection> {
    let legacy = opener.config.versions.without_modern();
    let Some(offered) = legacy.latest_legacy() else {
        return Err(opening_error(&OpeningFailure::Incompatible(Vec::new())));
    };
    let (host, port) = (endpoint.uri.host(), endpoint.uri.port_u16());
    let transport = Transport::over_wire(wire, None, reconnect, opener).with_address(host, port);
    let transport = Arc::new(transport);
    let handshake = opener.initialize(transport, caller, offered, &legacy, limit);
    handshake.await
}

/// Whether a failed handshake shows that the server is not a legacy one any more. A server that is down or requires
/// authorization may be.
pub(super) fn contradicts_legacy(error: &Error) -> bool {
    match error {
        Error::Rpc(_) | Error::Protocol { .. } => true,
        error => UnexpectedStatus::of(error).is_some_and(|status| status.is_client_error()),
    }
}

/// Whether a failed `initialize` suggests that the server has two endpoints (HTTP+SSE). Some answer it with a
/// JSON-RPC error.
fn is_without_streamable_http(error: &Error) -> bool {
    let status = UnexpectedStatus::of(error);
    matches!(error, Error::Rpc(_))
        || status.is_some_and(|status| suggests_http_sse(status.as_u16()))
}
