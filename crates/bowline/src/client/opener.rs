//! Opens a connection over a duplex wire or in process: probes the server, and sends `initialize` if it is a legacy
//! one.
//!
//! [`Prober`] in `bowline-core` decides; this file sends, waits and starts a child process again. Its HTTP counterpart
//! is `http/opener.rs`.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bowline_core::Outcome;
use bowline_core::era::probe::{DuplexReply, judge_rejected_initialize};
use bowline_core::era::{
    Caller, Dialect, Dialects, OpeningFailure, OpeningStep, Prober, Request,
    initialized_notification,
};
use bowline_types::{
    DiscoverRequest, DiscoverResult, ErrorCode, Json, Method, ProtocolVersion, RpcError,
};
use tokio::time::{interval, sleep, timeout};

use super::Connection;
use super::config::ClientConfig;
use super::notification_dispatch::NotificationDispatch;
use super::transport::{ChildCommand, CurrentChild, Transport};
use crate::exchange::{Answer, CallOptions, Channel};
use crate::sync::Mutex;
use crate::wire::{ChildHandle, EngineWire, OpenWireFn};
use crate::{Error, Result};

/// Opens the connections of one client.
pub(super) struct Opener<'a> {
    pub(super) config: &'a ClientConfig,
    pub(super) notifications: &'a Arc<NotificationDispatch>,
}

impl Opener<'_> {
    /// Connects to a child process. Starts it a second time if the probe has broken it, as it does some older servers.
    pub(super) async fn spawn(&self, command: &ChildCommand) -> Result<Connection> {
        let child = StartedChild::new(command);
        let mut opening = pin!(async {
            let transport = self.start(&child)?;
            self.open(transport, Some(&child)).await
        });
        let limit = self.config.connect_timeout();
        let before_warning = limit.min(SILENCE_WARNING);
        if let Ok(opened) = timeout(before_warning, &mut opening).await {
            return opened;
        }
        if before_warning < limit {
            let silence = child.describe_silence(before_warning);
            tracing::warn!("{silence}; waiting until {limit:?}, the limit for connecting");
            if let Ok(opened) = timeout(limit - before_warning, &mut opening).await {
                return opened;
            }
        }
        Err(Error::Transport {
            what: child.describe_silence(limit),
            source: Some(ConnectTimeout { after: limit }.into()),
        })
    }

    /// Connects over `wire`.
    pub(super) async fn open_wire(&self, wire: Box<dyn EngineWire>) -> Result<Connection> {
        let transport = Transport::over_wire(wire, None, None, self);
        self.within_connect_timeout(self.open(transport, None))
            .await
    }

    /// Connects over the wire that `open` opens.
    pub(super) async fn open_wire_fn(&self, mut open: OpenWireFn) -> Result<Connection> {
        let opening = async {
            let wire = open().await?;
            let (wire, reconnect) = self.reconnecting(wire, open);
            let transport = Transport::over_wire(wire, None, reconnect, self);
            self.open(transport, None).await
        };
        self.within_connect_timeout(opening).await
    }

    async fn within_connect_timeout<T>(
        &self,
        opening: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let after = self.config.connect_timeout();
        let timed_out = |_| Err(ConnectTimeout { after }.into_error());
        timeout(after, opening).await.unwrap_or_else(timed_out)
    }

    /// Opens `transport` in the remembered version, or in the one that a probe finds.
    pub(super) async fn open(
        &self,
        transport: Transport,
        child: Option<&StartedChild<'_>>,
    ) -> Result<Connection> {
        let transport = Arc::new(transport);
        let mut caller = self.config.caller.clone();
        let Some(known) = &self.config.known_server else {
            if let Some(legacy) = self.config.legacy_first()
                && let Some(offered) = legacy.latest_legacy()
            {
                let (transport, caller) = (transport.clone(), caller.clone());
                let limit = self.config.handshake_timeout();
                let opened = self.initialize(transport, caller, offered, &legacy, limit);
                match opened.await {
                    // A modern server. The wire goes on.
                    Err(Error::Rpc(_) | Error::Protocol { .. }) => {}
                    opened_or_failed => return opened_or_failed,
                }
            }
            return self.probe(transport, caller, child, child.is_some()).await;
        };
        let dialect = known.dialect_of(&self.config.versions)?;
        if dialect.is_modern() {
            caller.dialect = dialect;
            return Ok(Connection::new(transport, caller, known.introduction()));
        }
        let versions = &self.config.versions;
        let limit = self.config.handshake_timeout();
        self.initialize(transport, caller, dialect, versions, limit)
            .await
    }

    /// Probes a server that is connected already.
    pub(super) async fn probe_again(
        &self,
        transport: Arc<Transport>,
        caller: Caller,
    ) -> Result<Connection> {
        match &*transport {
            Transport::Http(http) => http.probe(self, caller).await,
            Transport::InProcess { .. } | Transport::Wire(_) => {
                self.probe(transport, caller, None, true).await
            }
        }
    }

    fn start(&self, child: &StartedChild<'_>) -> Result<Transport> {
        let budget = self.config.read_budget.as_ref();
        let (wire, handle) = child.command.spawn(budget)?;
        child.handle.lock().replace(handle.clone());
        let current = CurrentChild::new(handle);
        let restarts = current.restarts(child.command, budget);
        let (wire, reconnect) = self.reconnecting(wire, restarts);
        Ok(Transport::over_wire(wire, Some(current), reconnect, self))
    }

    async fn probe(
        &self,
        transport: Arc<Transport>,
        mut caller: Caller,
        child: Option<&StartedChild<'_>>,
        must_probe: bool,
    ) -> Result<Connection> {
        let versions = &self.config.versions;
        let mut prober = Prober::new(versions);
        let mut step = prober.start(must_probe);
        loop {
            caller.dialect = match step {
                OpeningStep::Discover(dialect) => dialect,
                OpeningStep::Ready(dialect) => {
                    caller.dialect = dialect;
                    return Ok(Connection::new(transport, caller, None));
                }
                OpeningStep::Initialize(dialect) => {
                    let limit = self.config.handshake_timeout();
                    let handshake = self.initialize(transport, caller, dialect, versions, limit);
                    return handshake.await;
                }
                OpeningStep::Failed(failure) => return Err(opening_error(&failure)),
            };
            let mut discovery = Box::pin(discover(&*transport, &caller, None));
            // Without a legacy version to fall back to, only the connect timeout limits a slow start.
            let limit = match versions.latest_legacy() {
                None if child.is_some() => Duration::MAX,
                _ => self.config.probe_timeout,
            };
            let answer = within(limit, &mut discovery).await;
            let outcome = as_outcome(&answer);
            let reply = match (&outcome, &answer) {
                (Some(outcome), _) => DuplexReply::Outcome(outcome),
                (None, Err(Error::Timeout { .. })) => DuplexReply::TimedOut,
                (None, Err(Error::Transport { .. } | Error::Closed))
                    if child.is_some_and(StartedChild::has_read_input) =>
                {
                    DuplexReply::Closed
                }
                // The wire cannot be opened again, or the probe did not break it; its error is the result.
                (None, _) => return Err(answer.err().unwrap_or(Error::Closed)),
            };
            step = prober.handle_duplex(reply);
            match (&step, reply, child) {
                (OpeningStep::Ready(dialect), ..) => {
                    caller.dialect = dialect;
                    return Ok(Connection::new(transport, caller, answer.ok()));
                }
                // The child has exited, which a legacy server may do at the probe. It may as well have crashed.
                (OpeningStep::Failed(failure), DuplexReply::Closed, _) => {
                    let what = failure.to_string();
                    let source = answer.err().map(Into::into);
                    return Err(Error::Protocol { what, source });
                }
                (OpeningStep::Initialize(offered), DuplexReply::Closed, Some(child)) => {
                    return self.respawn(transport, child, caller, offered).await;
                }
                (OpeningStep::Initialize(offered), DuplexReply::TimedOut, child) => {
                    let late = LateDiscovery { discovery, prober };
                    return self
                        .fall_back(transport, child, caller, offered, late)
                        .await;
                }
                _ => {}
            }
        }
    }

    /// Sends `initialize` to a server that did not answer the probe. A child process that has read it and does not
    /// answer `initialize` either, or exits, was broken by the probe: it is started again, and `initialize` is its
    /// first message.
    async fn fall_back(
        &self,
        transport: Arc<Transport>,
        child: Option<&StartedChild<'_>>,
        caller: Caller,
        offered: &'static Dialect,
        late: LateDiscovery<'_, impl Future<Output = Result<Json>>>,
    ) -> Result<Connection> {
        let falling_back =
            self.initialize_unless_answered(transport.clone(), caller.clone(), offered, late);
        let respawn_after = self.config.respawn_after;
        let Some(child) = child.filter(|_| respawn_after < Duration::MAX) else {
            return falling_back.await;
        };
        let opened_or_failed = tokio::select! {
            // An answer at the last moment counts.
            biased;
            opened_or_failed = falling_back => opened_or_failed,
            () = child.is_broken(respawn_after) => Err(Error::Closed),
        };
        match opened_or_failed {
            Err(Error::Timeout { .. } | Error::Transport { .. } | Error::Closed)
                if child.has_read_input() =>
            {
                self.respawn(transport, child, caller, offered).await
            }
            opened_or_failed => opened_or_failed,
        }
    }

    async fn respawn(
        &self,
        transport: Arc<Transport>,
        child: &StartedChild<'_>,
        caller: Caller,
        offered: &'static Dialect,
    ) -> Result<Connection> {
        tracing::debug!("starting the server again: it does not respond after the probe");
        // Ended first: it may hold a resource that the new process needs, a lock for example.
        if let Some(wire) = transport.wire() {
            wire.close().await;
        }
        drop(transport);
        let transport = Arc::new(self.start(child)?);
        let versions = &self.config.versions;
        let limit = self.config.handshake_timeout();
        self.initialize(transport, caller, offered, versions, limit)
            .await
    }

    /// Sends `initialize`, unless the late answer to the probe shows that the server is modern and was only slow to
    /// start.
    async fn initialize_unless_answered(
        &self,
        transport: Arc<Transport>,
        caller: Caller,
        offered: &'static Dialect,
        late: LateDiscovery<'_, impl Future<Output = Result<Json>>>,
    ) -> Result<Connection> {
        let mut answered_late = pin!(async {
            let LateDiscovery {
                discovery,
                mut prober,
            } = late;
            let answer = discovery.await;
            if let Some(outcome) = as_outcome(&answer)
                && let OpeningStep::Ready(dialect) =
                    prober.handle_duplex(DuplexReply::Outcome(&outcome))
            {
                let mut caller = caller.clone();
                caller.dialect = dialect;
                return Connection::new(transport.clone(), caller, answer.ok());
            }
            pending().await
        });
        let (versions, limit) = (&self.config.versions, self.config.handshake_timeout());
        let handshake =
            self.initialize(transport.clone(), caller.clone(), offered, versions, limit);
        tokio::select! {
            biased;
            opened = &mut answered_late => Ok(opened),
            opened = handshake => {
                // Both answers may have arrived between the two polls, and the probe was sent first.
                match poll_fn(|cx| Poll::Ready(answered_late.as_mut().poll(cx))).await {
                    Poll::Ready(earlier) => Ok(earlier),
                    Poll::Pending => opened,
                }
            }
        }
    }

    /// Performs the handshake of the legacy era and chooses one of `versions`. In the inside form of messages it is a
    /// `server/discover` request like any other.
    pub(super) async fn initialize(
        &self,
        transport: Arc<Transport>,
        mut caller: Caller,
        offered: &'static Dialect,
        versions: &Dialects,
        limit: Duration,
    ) -> Result<Connection> {
        let limit = Some(limit);
        let extensions = &self.config.extensions;
        caller.dialect = offered;
        extensions.declare(&mut caller);
        let mut answer = discover(&*transport, &caller, limit).await;
        if let Err(Error::Rpc(error)) = &answer
            && let Some(modern) = judge_rejected_initialize(error, versions)
        {
            caller.dialect = modern;
            extensions.declare(&mut caller);
            answer = discover(&*transport, &caller, limit).await;
        }
        let introduction = answer?;
        let server: DiscoverResult = introduction
            .decode()
            .map_err(|error| Error::undecodable("the `initialize` result is malformed", error))?;
        let supported = &server.supported_versions;
        let supported = supported.iter().map(ProtocolVersion::as_str);
        let Some(dialect) = supported.clone().find_map(|version| versions.of(version)) else {
            let supported = supported.map(str::to_owned).collect();
            return Err(opening_error(&OpeningFailure::Incompatible(supported)));
        };
        caller.dialect = dialect;
        extensions.declare(&mut caller);
        if let (Some(wire), Some(initialized)) =
            (transport.wire(), initialized_notification(dialect))
        {
            wire.peer.notify(initialized);
        }
        Ok(Connection::new(transport, caller, Some(introduction)))
    }
}

/// The source of the [`Error::Transport`] of a connection that was not opened in time. See
/// [`ClientBuilder::connect_timeout`](super::ClientBuilder::connect_timeout).
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connect timeout of {after:?} elapsed (`connect_timeout`)")]
#[non_exhaustive]
pub struct ConnectTimeout {
    /// The timeout.
    pub after: Duration,
}

impl ConnectTimeout {
    pub(super) fn into_error(self) -> Error {
        let after = self.after;
        Error::Transport {
            what: format!("failed to connect within {after:?}: the server did not answer"),
            source: Some(self.into()),
        }
    }
}

/// A child process that is being connected to.
pub(super) struct StartedChild<'a> {
    command: &'a ChildCommand,
    /// The process that was started last.
    handle: Mutex<Option<ChildHandle>>,
}

impl<'a> StartedChild<'a> {
    fn new(command: &'a ChildCommand) -> Self {
        let handle = Mutex::new(None);
        Self { command, handle }
    }

    /// Returns whether the process has read a message. If it has not, it is starting, or ended for another reason than
    /// a message: starting it again would not help.
    fn has_read_input(&self) -> bool {
        let handle = self.handle.lock();
        handle.as_ref().is_some_and(ChildHandle::has_read_input)
    }

    /// Waits until the process has read the probe, and for `time` after that. The time in which a program is downloaded
    /// or started does not count.
    async fn is_broken(&self, time: Duration) {
        let mut ticks = interval(INPUT_CHECK);
        while !self.has_read_input() {
            ticks.tick().await;
        }
        sleep(time).await;
    }

    fn describe_silence(&self, time: Duration) -> String {
        let handle = self.handle.lock();
        let handle = handle.as_ref();
        handle.map_or_else(String::new, |handle| handle.describe_silence(time))
    }
}

/// A probe that was not answered in time, and may be answered still.
struct LateDiscovery<'a, F> {
    discovery: F,
    prober: Prober<'a>,
}

/// Sends `server/discover`. The limit is enforced by the channel, which does not count the time of an authorization.
fn discover(
    channel: &dyn Channel,
    caller: &Caller,
    limit: Option<Duration>,
) -> impl Future<Output = Result<Json>> + use<> {
    let options = CallOptions {
        timeout: limit,
        ..CallOptions::default()
    };
    let exchange = channel.open(discover_request(caller), options);
    async {
        match exchange.answer().await? {
            Answer::Complete(result) => Ok(result),
            Answer::InputRequired(_) | Answer::Extension { .. } => Err(Error::protocol(
                "expected a complete result of `server/discover`",
            )),
        }
    }
}

pub(super) fn discover_request(caller: &Caller) -> Request {
    let caller = Arc::new(caller.clone());
    Request::new(DiscoverRequest::NAME, Json::empty_object(), caller)
}

async fn within<T>(limit: Duration, future: impl Future<Output = Result<T>>) -> Result<T> {
    let timed_out = |_| Err(Error::Timeout { after: limit });
    timeout(limit, future).await.unwrap_or_else(timed_out)
}

/// The server's answer, if there was one.
fn as_outcome(answer: &Result<Json>) -> Option<Outcome> {
    match answer {
        Ok(result) => Some(Ok(result.clone())),
        Err(Error::Rpc(error)) => Some(Err(error.clone())),
        // On a duplex wire an answer that violates the protocol is a sign of an older server.
        Err(Error::Protocol { .. }) => Some(Err(RpcError::new(
            ErrorCode::INTERNAL_ERROR,
            "malformed answer",
        ))),
        Err(_) => None,
    }
}

/// The error of a connection whose version could not be chosen.
pub(super) fn opening_error(failure: &OpeningFailure) -> Error {
    match failure {
        OpeningFailure::Unauthorized => Error::Unauthorized {
            challenges: Vec::new(),
            source: None,
        },
        OpeningFailure::Inconclusive(why) => Error::Transport {
            what: why.to_string(),
            source: None,
        },
        incompatible => Error::protocol(incompatible.to_string()),
    }
}

/// When a child that does not answer is reported in the log.
const SILENCE_WARNING: Duration = Duration::from_secs(5);
/// How often a silent child is checked for whether it has read its input.
const INPUT_CHECK: Duration = Duration::from_millis(250);
