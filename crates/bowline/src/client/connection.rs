//! [`Connection`], an open connection to a server without the layers of a [`Client`](super::Client): a channel, and what
//! is known about the server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_core::era::{Caller, Dialect, Request};
use bowline_core::{Notification, ServerCapability};
use bowline_types::{
    CancelledNotification, DiscoverRequest, DiscoverResult, InitializedNotification, Json,
    LoggingLevel, Method, NotificationMethod, SetLevelRequest, SetLevelRequestParams,
};

use super::Unsolicited;
use super::known_tools::ArgumentHeaders;
use super::restart::RestartSettings;
use super::transport::{OpenWire, Transport};
use crate::exchange::{CallOptions, Channel, Exchange, NotifiedContext};
use crate::signal::Signal;
use crate::sync::Mutex;
use crate::telemetry::names::error_type;
use crate::telemetry::{LegacyTimer, TransportKind, deliver_notification};
use crate::{Error, Result};

/// An open connection to a server, on which a [`Client`](super::Client) is built. Cheap to clone; it is closed when the
/// last clone is dropped, which fails the exchanges in progress.
///
/// [`ClientBuilder::connection`](super::ClientBuilder::connection) opens one without a client, for a program that
/// forwards requests. It is a [`Channel`] in the internal form of messages, whatever the protocol version and the
/// transport: it sends what it is given, with no cache, no validation, no timeouts but those of [`CallOptions`], and no
/// input rounds. Over HTTP of 2026-07-28 it mirrors tool arguments in headers as the `tools/list` results that pass
/// require, and leaves out tools that require invalid ones; it lists the tools by itself only if the server rejects the
/// headers of a call, and then sends the call again. The caller of each request must have the [version](Self::dialect) of the connection; see
/// [`caller`](Self::caller).
///
/// `server/discover` is sent to a modern server. A legacy one has introduced itself in the handshake, which must not be
/// repeated, so that the request is answered with the stored [introduction](Self::introduction).
///
/// # Examples
///
/// ```
/// # async fn example(server: bowline::Server) -> bowline::Result<()> {
/// use bowline::exchange::{Answer, CallOptions, Channel, Request};
/// use bowline::{Client, Json};
///
/// let connection = Client::in_process(&server).connection().await?;
/// let params = Json::from(serde_json::json!({"name": "now"}));
/// let request = Request::new("tools/call", params, connection.caller());
/// match connection.open(request, CallOptions::default()).answer().await? {
///     Answer::Complete(result) => println!("{}", result.as_str()),
///     other => println!("not complete: {other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Connection {
    inner: Arc<ConnectionInner>,
}

struct ConnectionInner {
    transport: Arc<Transport>,
    dialect: &'static Dialect,
    /// This client as the server sees it, with the log level that was set last.
    caller: Mutex<Arc<Caller>>,
    /// The server's `server/discover` result, if it was requested.
    introduction: Option<Json>,
    /// The decoded `introduction`.
    server: Option<DiscoverResult>,
    /// Raised when the connection is closed or dropped.
    closed: Arc<Signal>,
    /// Set if the server is a child process and there is no client.
    restart: OnceLock<RestartSettings>,
    legacy_timer: LegacyTimer,
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        let peer = self.transport.wire().map(|wire| &wire.peer);
        if peer.is_some_and(|peer| matches!(peer.end_error(), Error::Transport { .. })) {
            self.legacy_timer.set_error(error_type::TRANSPORT);
        }
        self.closed.raise();
    }
}

impl Connection {
    /// The version is that of `caller`.
    pub(super) fn new(
        transport: Arc<Transport>,
        caller: Caller,
        introduction: Option<Json>,
    ) -> Self {
        let server = introduction.as_ref().and_then(|it| it.decode().ok());
        let legacy_timer = LegacyTimer::of_client(transport.sender(), caller.dialect);
        let inner = ConnectionInner {
            transport,
            dialect: caller.dialect,
            caller: Mutex::new(Arc::new(caller)),
            // A copy: the text may be a part of a far larger read buffer.
            introduction: introduction.map(|it| it.to_unshared()),
            server,
            closed: Arc::default(),
            restart: OnceLock::new(),
            legacy_timer,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the protocol version in use.
    #[must_use]
    pub fn dialect(&self) -> &'static Dialect {
        self.inner.dialect
    }

    /// Returns the server's `server/discover` result, or that of `initialize` in the same form, as the server sent it,
    /// with members that are not in [`DiscoverResult`]; `None` if neither was requested. After a
    /// [reconnect](super::ClientBuilder::reconnect) it is still the first one.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let connection = bowline::Client::in_process(&server).connection().await?;
    /// if let Some(introduction) = connection.introduction() {
    ///     println!("{}", introduction.as_str());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn introduction(&self) -> Option<&Json> {
        self.inner.introduction.as_ref()
    }

    /// Returns the caller that the server knows this side as: the version in use, `clientInfo`, capabilities and log
    /// level.
    #[must_use]
    pub fn caller(&self) -> Arc<Caller> {
        self.inner.caller.lock().clone()
    }

    /// Sends a notification that belongs to no request. It does nothing where the connection has no such thing: over
    /// HTTP of 2026-07-28, and for a method that other versions define and this one does not.
    ///
    /// `notifications/initialized` and `notifications/cancelled` are not sent either: the handshake is done, and
    /// dropping an exchange cancels its request.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use bowline::exchange::Notification;
    ///
    /// let connection = bowline::Client::in_process(&server).connection().await?;
    /// connection.notify(Notification::new("notifications/roots/list_changed", None));
    /// # Ok(()) }
    /// ```
    pub fn notify(&self, notification: Notification) {
        let method = &*notification.method;
        let is_internal = [InitializedNotification::NAME, CancelledNotification::NAME];
        if is_internal.contains(&method) || lacks_notification(self.dialect(), method) {
            tracing::debug!(method, "did not send a notification");
            return;
        }
        let transport = &*self.inner.transport;
        if let Transport::Http(_) = transport {
            return;
        }
        let sender = transport.sender();
        sender.notify(
            notification,
            self.dialect(),
            |notification| match transport {
                Transport::Wire(wire) => wire.peer.notify(notification),
                Transport::InProcess { server, .. } => {
                    let cx = NotifiedContext::new(self.caller());
                    deliver_notification(&**server, &notification, &cx, TransportKind::InProcess);
                }
                Transport::Http(_) => {}
            },
        );
    }

    /// Returns the notifications of the server that belong to no exchange.
    ///
    /// Those of the first call begin with the first message of the server, those of later calls with the next one, and
    /// each caller gets all of them. Until they are read they are queued, within the limits of one peer.
    ///
    /// In process, and over HTTP of 2026-07-28, every notification belongs to an exchange, so that this one waits for
    /// the end of the connection.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use bowline::client::UnsolicitedEvent;
    ///
    /// let connection = bowline::Client::in_process(&server).connection().await?;
    /// let mut unsolicited = connection.unsolicited();
    /// while let Some(event) = unsolicited.next().await {
    ///     if let UnsolicitedEvent::Notification(notification) = event {
    ///         println!("{}", notification.method);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn unsolicited(&self) -> Unsolicited {
        match self.wire() {
            Some(wire) => Unsolicited::from_wire(wire.listen()),
            None => Unsolicited::none(self.inner.closed.clone()),
        }
    }

    /// Returns whether the connection is over; see [`ended`](Self::ended).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self.wire() {
            Some(wire) => wire.peer.has_ended(),
            None => self.inner.closed.is_raised(),
        }
    }

    /// Returns a future that resolves when the connection is over, with the reason: [`Error::Closed`] if one of the
    /// sides closed it, otherwise the error that exchanges fail with. It does not keep the connection open.
    ///
    /// In process and over Streamable HTTP no connection is held, so that it resolves when [`close`](Self::close) was
    /// called or the last clone is dropped, and not when the server is gone. With
    /// [`ClientBuilder::reconnect`](super::ClientBuilder::reconnect) it resolves when no further attempt is made.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropping the future has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(connection: bowline::client::Connection) {
    /// let ended = connection.ended();
    /// tokio::spawn(async move { eprintln!("the server is gone: {}", ended.await) });
    /// # }
    /// ```
    pub fn ended(&self) -> impl Future<Output = Error> + Send + 'static + use<> {
        let peer = self.wire().map(|wire| wire.peer.clone());
        let closed = self.inner.closed.clone();
        async move {
            match peer {
                Some(peer) => {
                    peer.ended().await;
                    peer.end_error()
                }
                None => {
                    closed.wait().await;
                    Error::Closed
                }
            }
        }
    }

    /// Closes the wire after sending what is queued, for at most a second; over HTTP until 2025-11-25, cancels that are
    /// being posted have four seconds. A child process is terminated, and has been reaped when this returns. Without a
    /// wire, later requests fail with [`Error::Closed`], and requests in progress go on.
    ///
    /// # Cancel safety
    ///
    /// Safe: the connection closes even if the future is dropped.
    pub async fn close(&self) {
        self.inner.closed.raise();
        if let Some(wire) = self.wire() {
            wire.close().await;
        }
    }

    /// Returns how many requests of the server wait for an answer. Zero in process and over HTTP of 2026-07-28, which
    /// have no such requests.
    #[must_use]
    pub fn unanswered_requests(&self) -> usize {
        self.wire().map_or(0, |wire| wire.peer.sizes().in_flight)
    }

    /// Returns the process id of a server that [`Client::spawn`](super::Client::spawn) started; `None` if it has ended.
    /// After a [reconnect](super::ClientBuilder::reconnect) it is that of the process which runs now.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.wire()?.process_id()
    }
}

impl Connection {
    /// Begins what [`close`](Self::close) waits for.
    pub(super) fn begin_close(&self) {
        self.inner.closed.raise();
        if let Some(wire) = self.wire() {
            wire.begin_close();
        }
    }

    /// Returns the decoded [`introduction`](Self::introduction).
    pub(super) fn server(&self) -> Option<&DiscoverResult> {
        self.inner.server.as_ref()
    }

    pub(super) fn transport(&self) -> &Arc<Transport> {
        &self.inner.transport
    }

    pub(super) fn wire(&self) -> Option<&OpenWire> {
        self.inner.transport.wire()
    }

    /// Marks the version as the server's actual one. Until then requests from the server are attributed to an unknown
    /// caller.
    pub(super) fn confirm(&self) {
        if let Some(wire) = self.wire() {
            wire.confirm(self.dialect());
        }
    }

    /// Returns whether requests mirror tool arguments in headers.
    pub(super) fn argument_headers(&self) -> ArgumentHeaders {
        match &*self.inner.transport {
            Transport::Http(_) => ArgumentHeaders::Sent,
            Transport::InProcess { .. } | Transport::Wire(_) => ArgumentHeaders::NotSent,
        }
    }

    /// Sets the log level of all later requests.
    pub(super) fn set_log_level(&self, level: LoggingLevel) {
        Arc::make_mut(&mut self.inner.caller.lock()).log_level = Some(level);
    }

    /// Sends the log level of the caller, if the version has `logging/setLevel` and the server declares it.
    pub(super) async fn send_log_level(&self, limit: Duration) {
        let caller = self.caller();
        let declared = self.server().map(|server| &server.capabilities);
        let is_declared = declared.is_some_and(|it| ServerCapability::Logging.is_declared(it));
        let Some(level) = caller.log_level.filter(|_| is_declared) else {
            return;
        };
        if !caller.dialect.knows_request(SetLevelRequest::NAME) {
            return;
        }
        if let Err(error) = self.send_level(caller, level, limit).await {
            tracing::debug!(%error, "failed to set the log level of the server");
        }
    }

    async fn send_level(
        &self,
        caller: Arc<Caller>,
        level: LoggingLevel,
        limit: Duration,
    ) -> Result<()> {
        let params = super::encode_object(&SetLevelRequestParams::new(level))?;
        let request = Request::new(SetLevelRequest::NAME, params, caller);
        let options = CallOptions {
            timeout: Some(limit),
            ..CallOptions::default()
        };
        self.open(request, options).answer().await.map(drop)
    }

    /// Keeps what [`restart`](Self::restart) needs.
    pub(super) fn keep_restart_settings(&self, settings: RestartSettings) {
        // Fails if they are set already: they are kept once, when the connection is opened.
        let _ = self.inner.restart.set(settings);
    }

    pub(super) fn restart_settings(&self) -> Option<&RestartSettings> {
        self.inner.restart.get()
    }
}

impl Channel for Connection {
    fn open(&self, request: Request, options: CallOptions) -> Exchange {
        let inner = &self.inner;
        // A wire fails requests by itself, and may have the reason of its end.
        if self.wire().is_none() && inner.closed.is_raised() {
            return Exchange::failed(Error::Closed);
        }
        // Over a legacy wire it would be a second `initialize`.
        if request.method == DiscoverRequest::NAME
            && !inner.dialect.is_modern()
            && let Some(introduction) = &inner.introduction
        {
            return match self.wire().filter(|wire| wire.peer.has_ended()) {
                Some(ended) => Exchange::failed(ended.peer.end_error()),
                None => Exchange::answered(introduction.clone()),
            };
        }
        inner.transport.open(request, options)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("version", &self.dialect().version)
            .field("has_ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}

/// Returns whether clients of other versions send this notification, but not those of `dialect`.
fn lacks_notification(dialect: &Dialect, method: &str) -> bool {
    let mut others = Dialect::ALL.iter();
    !dialect.knows_notification(method) && others.any(|other| other.knows_notification(method))
}
