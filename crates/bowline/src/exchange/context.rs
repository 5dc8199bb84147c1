//! [`Context`], which handlers use to read the current request and to send to its caller.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bowline_core::Notification;
use bowline_core::era::{Caller, Request};
use bowline_core::json::Params;
use bowline_types::{
    Json, LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParams, Meta,
    NotificationMethod, ProgressNotification, ProgressToken, RequestId,
};

use super::on_discarded::OnDiscarded;
use super::progress::{Progress, ProgressReports, Report};
use super::{
    CancelMode, Channel, ConnectionState, Extensions, HandlerRun, Principal, TraceContext,
};
use crate::deprecation;
use crate::signal::Signal;
use crate::sync::{Mutex, MutexGuard};
use crate::telemetry::{self, CancelSource, Configured, ContextTelemetry, OtelSpan, TransportKind};

/// The context of the current request: its caller, progress, logging, input from the client, cancellation. Cheap to
/// clone.
///
/// # Examples
///
/// ```
/// # use bowline::Context;
/// # async fn copy(_: usize) {}
/// async fn import(cx: Context) -> usize {
///     for done in 0..100 {
///         copy(done).await;
///         cx.progress(done as f64);
///     }
///     100
/// }
/// ```
#[derive(Clone)]
pub struct Context {
    shared: Arc<ContextShared>,
    principal: Principal,
    /// The current run of the handler, if the method supports input from the client.
    input: Option<Arc<HandlerRun>>,
    extensions: Extensions,
    is_logging_disabled: bool,
    /// The default logger name.
    logger: Option<Arc<str>>,
    /// The server that answers the request. Its type belongs to the module `server`, which this one must not import.
    server: Option<Arc<dyn Any + Send + Sync>>,
    telemetry: ContextTelemetry,
}

struct ContextShared {
    request_id: RequestId,
    caller: Arc<Caller>,
    progress_token: Option<ProgressToken>,
    /// Contains `_meta`.
    params: Mutex<Params>,
    sink: Arc<dyn NotificationSink>,
    reports: ProgressReports,
    cancelled: Signal,
    cancel_reason: OnceLock<String>,
    /// Whether the mode is [`CancelMode::Signal`].
    is_signal_mode: AtomicBool,
    shutting_down: Signal,
    on_discarded: OnDiscarded,
}

/// The destination of a handler's notifications: the wire of the request, or the in-process exchange.
pub trait NotificationSink: Send + Sync + 'static {
    /// Sends a notification that belongs to the request. Does nothing after the request has ended.
    fn notify(&self, notification: Notification);

    /// Returns the channel for server-to-client requests, or `None` if the caller's protocol version has none.
    fn back_channel(&self) -> Option<Arc<dyn Channel>>;

    /// Returns the state of the connection of the request, or `None` if it has no connection, as in modern HTTP.
    fn connection_state(&self) -> Option<&ConnectionState>;

    /// Returns the id of the request that a server-to-client request belongs to; see [`Context::within`]. `None` by
    /// default.
    fn within(&self) -> Option<&RequestId> {
        None
    }

    /// Returns what the request was carried by, for telemetry. Not known by default.
    fn transport(&self) -> TransportKind {
        TransportKind::Other
    }
}

impl Context {
    /// Creates the context of `request`. Notifications of its handler go to `sink`.
    pub fn new(request_id: RequestId, request: &Request, sink: Arc<dyn NotificationSink>) -> Self {
        Self {
            shared: Arc::new(ContextShared {
                request_id,
                caller: request.caller.clone(),
                progress_token: request.progress_token.clone(),
                params: Mutex::new(request.params.clone()),
                sink,
                reports: ProgressReports::default(),
                cancelled: Signal::default(),
                cancel_reason: OnceLock::new(),
                is_signal_mode: AtomicBool::new(false),
                shutting_down: Signal::default(),
                on_discarded: OnDiscarded::default(),
            }),
            principal: Principal::anonymous(),
            input: None,
            extensions: Extensions::default(),
            is_logging_disabled: false,
            logger: None,
            server: None,
            telemetry: ContextTelemetry::default(),
        }
    }

    /// Sets the principal. For layers that check credentials.
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        if let Some(name) = principal.name() {
            telemetry::record_principal(name);
        }
        self.principal = principal;
        self
    }

    /// Sets the telemetry of the responder and the span of the request.
    pub(crate) fn set_telemetry(&mut self, configured: &Configured, span: &OtelSpan) {
        self.telemetry = ContextTelemetry::new(configured, span);
    }

    pub(super) fn telemetry(&self) -> &ContextTelemetry {
        &self.telemetry
    }

    pub(crate) fn transport(&self) -> TransportKind {
        self.shared.sink.transport()
    }

    /// Sets the run in which the handler may request input.
    pub(crate) fn with_input(mut self, input: Arc<HandlerRun>) -> Self {
        self.input = Some(input);
        self
    }

    pub(crate) fn input(&self) -> Option<&Arc<HandlerRun>> {
        self.input.as_ref()
    }

    /// Sets the server that answers the request, for `Context::server`.
    pub(crate) fn set_server(&mut self, server: Arc<dyn Any + Send + Sync>) {
        self.server = Some(server);
    }

    pub(crate) fn shared_server(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.server.clone()
    }

    /// Returns the id of the request, as the caller sent it.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        &self.shared.request_id
    }

    /// Returns the progress token of the request, if the caller sent one. [`progress`](Self::progress) uses it.
    #[must_use]
    pub fn progress_token(&self) -> Option<&ProgressToken> {
        self.shared.progress_token.as_ref()
    }

    /// Returns the client's protocol version, implementation and capabilities.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    ///
    /// async fn version(cx: Context) -> &'static str {
    ///     cx.caller().dialect.version
    /// }
    /// ```
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.shared.caller
    }

    pub(super) fn sink(&self) -> &Arc<dyn NotificationSink> {
        &self.shared.sink
    }

    /// Returns the authenticated principal of the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    ///
    /// async fn whoami(cx: Context) -> String {
    ///     cx.principal().name().unwrap_or("anonymous").to_owned()
    /// }
    /// ```
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the `_meta` of the request.
    #[must_use]
    pub fn meta(&self) -> Option<Meta> {
        let meta = self.shared.params().member("_meta").ok()??;
        meta.decode().ok()?
    }

    /// Forgets the `_meta` of the request: [`meta`](Self::meta) returns `None` afterwards. For a responder that keeps the
    /// context for work which outlives the request, since all params are kept with `_meta`, and may be large.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Client, Context, Server, Tool};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> bowline::Result<()> {
    /// let tool = Tool::new("import", async |cx: Context| {
    ///     let before = cx.meta().is_some();
    ///     cx.forget_meta();
    ///     format!("{before} {}", cx.meta().is_some())
    /// });
    /// let client = Client::in_process(&Server::new("importer", "1.0.0").tool(tool)).await?;
    /// let meta = serde_json::from_str(r#"{"com.example/batch": 7}"#).unwrap();
    /// let reply = client.call_tool("import", ()).meta(meta).await?;
    /// assert_eq!(reply.text(), "true false");
    /// # Ok(()) }
    /// ```
    pub fn forget_meta(&self) {
        *self.shared.params() = Json::empty_object().into();
    }

    /// Returns the W3C trace context of the request, if its `_meta` has a valid one. With
    /// [telemetry](crate::telemetry) it is that of the span of the request, whose parent is the one in `_meta`.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Client, Context};
    ///
    /// async fn forward(other: Client, cx: Context) -> bowline::Result<String> {
    ///     Ok(other.call_tool("forecast", ()).trace(cx.trace()).await?.text())
    /// }
    /// ```
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        let own = self.telemetry.trace();
        own.or_else(|| TraceContext::read(&self.meta()?))
    }

    /// Returns the shared state of type `S`; see `Server::state`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use bowline::Context;
    /// struct Database;
    ///
    /// async fn query(cx: Context) -> bool {
    ///     cx.state::<Database>().is_some()
    /// }
    /// ```
    #[must_use]
    pub fn state<S: Send + Sync + 'static>(&self) -> Option<&S> {
        self.extensions.get()
    }

    /// Returns the values that the server and its layers added to the request.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the extensions mutably, for layers that add values. Existing clones of the context do not see changes.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Returns the state of the connection of the request, or `None` if it has no connection: in modern HTTP each
    /// request is independent. See [`ConnectionState`].
    #[must_use]
    pub fn connection_state(&self) -> Option<&ConnectionState> {
        self.shared.sink.connection_state()
    }

    /// Returns, to the host of a client, the id of the client's request that the server sent this request for.
    ///
    /// Over Streamable HTTP the stream on which the request arrived tells it. Other wires do not; there it is known if
    /// exactly one request of the client was in flight, where `ping`, subscriptions and other requests that make no
    /// server ask do not count. `None` if it is not known, on a server, and in the modern era, where input requests are
    /// part of the answer to the request.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::exchange::{Outcome, Request};
    /// use bowline::{Context, ErrorCode, RpcError};
    ///
    /// /// A host that answers only if it knows which call the server asks for.
    /// async fn host(request: Request, cx: Context) -> Outcome {
    ///     let Some(call) = cx.within() else {
    ///         return Err(RpcError::new(ErrorCode::INTERNAL_ERROR, "which call is this for?"));
    ///     };
    ///     println!("{} for the call {call}", request.method);
    ///     Ok(serde_json::json!({"action": "decline"}).into())
    /// }
    /// ```
    #[must_use]
    pub fn within(&self) -> Option<&RequestId> {
        self.shared.sink.within()
    }

    /// Sends `notifications/progress`, if the caller sent a `progressToken`.
    ///
    /// A report that is not greater than all previous ones is not sent. Of concurrent reports from several threads,
    /// only the latest may be sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Context, Progress};
    ///
    /// async fn copy(cx: Context) {
    ///     for file in 1..=4 {
    ///         cx.progress(Progress::new(file).total(4).message(format!("file {file}")));
    ///     }
    /// }
    /// ```
    pub fn progress(&self, progress: impl Into<Progress>) {
        if self.shared.progress_token.is_some() {
            self.report(Report::Typed(progress.into()));
        }
    }

    /// Sends a progress report, if it is greater than all previous ones.
    fn report(&self, report: Report) {
        let reports = &self.shared.reports;
        reports.send(report, |report| self.send_report(report));
    }

    /// Sends an admitted report to the sink. It must not pass through [`send`](Self::send), which may admit it again.
    pub(super) fn send_report(&self, report: Report) {
        let notification = match report {
            Report::Typed(progress) => self.shared.progress_token.clone().and_then(|token| {
                encode_notification::<ProgressNotification>(&progress.into_params(token))
            }),
            Report::Raw { notification, .. } => Some(notification),
        };
        if let Some(notification) = notification {
            self.shared.sink.notify(notification);
        }
    }

    pub(super) fn reports(&self) -> &ProgressReports {
        &self.shared.reports
    }

    /// Sends `notifications/message` to the caller, if the server has the [`logging`](crate::Server::logging)
    /// capability and the caller requested this level.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::types::LoggingLevel;
    ///
    /// async fn import(cx: Context) {
    ///     cx.log(LoggingLevel::Warning, serde_json::json!("line 3 is empty"));
    /// }
    /// ```
    pub fn log(&self, level: LoggingLevel, data: impl Into<Json>) {
        if self.is_logged(level) {
            let logger = self.logger.as_deref().map(str::to_owned);
            self.send_log(logger, level, data.into());
        }
    }

    /// Sends a log message like [`log`](Self::log), with a logger name. `log` uses the name of the server.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::types::LoggingLevel;
    /// use serde_json::json;
    ///
    /// async fn import(cx: Context) {
    ///     cx.log_as("database", LoggingLevel::Warning, json!("slow query"));
    /// }
    /// ```
    pub fn log_as(&self, logger: &str, level: LoggingLevel, data: impl Into<Json>) {
        if self.is_logged(level) {
            self.send_log(Some(logger.to_owned()), level, data.into());
        }
    }

    /// Returns whether the caller receives log messages of this level.
    fn is_logged(&self, level: LoggingLevel) -> bool {
        let least = self.shared.caller.least_log_level();
        !self.is_logging_disabled && least.is_some_and(|least| level >= least)
    }

    fn send_log(&self, logger: Option<String>, level: LoggingLevel, data: Json) {
        deprecation::warn_deprecated(LoggingMessageNotification::NAME, self.caller().dialect);
        let mut params = LoggingMessageNotificationParams::new(level, data);
        params.logger = logger;
        self.notify::<LoggingMessageNotification>(&params);
    }

    /// Sets the default logger name.
    pub(crate) fn set_logger(&mut self, logger: &Arc<str>) {
        self.logger = Some(logger.clone());
    }

    /// Sends a notification that belongs to this request. Does nothing after the request has ended.
    pub fn notify<N: NotificationMethod>(&self, params: &N::Params) {
        if let Some(notification) = encode_notification::<N>(params) {
            self.send(notification);
        }
    }

    /// Like [`notify`](Self::notify), with any method and encoded params. The transport converts the notification to
    /// the caller's protocol version, and drops it if that version does not define it. Progress is sent as it is, unless
    /// there are [heartbeats](crate::layer::ProgressHeartbeat): then only if it increases.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::exchange::Notification;
    ///
    /// async fn import(cx: Context) {
    ///     let params = serde_json::json!({"row": 7}).into();
    ///     cx.send(Notification::new("notifications/com.example/imported", Some(params)));
    /// }
    /// ```
    pub fn send(&self, notification: Notification) {
        let reports = &self.shared.reports;
        if reports.is_watched() && notification.method == ProgressNotification::NAME {
            match Report::from_raw(notification, self.shared.progress_token.as_ref()) {
                Ok(report) => self.report(report),
                Err(other) => self.shared.sink.notify(other),
            }
        } else {
            self.shared.sink.notify(notification);
        }
    }

    /// Returns the channel for server-to-client requests, or `None` if the caller's protocol version has none. Such a
    /// request is cancelled when its exchange is dropped, for example together with the handler.
    #[must_use]
    pub fn back_channel(&self) -> Option<Arc<dyn Channel>> {
        self.telemetry.back_channel(&*self.shared.sink)
    }

    /// Waits until the request is cancelled, or the handler is stopped because it needs input from the client.
    /// For tasks that a handler spawned; the handler itself is dropped.
    ///
    /// # Cancel safety
    ///
    /// Safe: the signal is not consumed.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    ///
    /// async fn copy(cx: Context) {
    ///     // A spawned task is not dropped with the handler.
    ///     tokio::spawn(async move {
    ///         tokio::select! {
    ///             () = cx.cancelled() => println!("cancelled"),
    ///             () = copy_everything() => {}
    ///         }
    ///     });
    /// }
    /// # async fn copy_everything() {}
    /// ```
    pub async fn cancelled(&self) {
        self.shared.cancelled.wait().await;
    }

    /// Returns whether the request was cancelled, or the handler stopped because it needs input from the client.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.is_raised()
    }

    /// Returns why the request was cancelled, if that is known: the `reason` of `notifications/cancelled`, or a fixed text
    /// if the connection or the response stream was closed. It is set before the handler is dropped, so destructors of
    /// its values can read it.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    ///
    /// struct Job(Context);
    ///
    /// impl Drop for Job {
    ///     fn drop(&mut self) {
    ///         if self.0.is_cancelled() {
    ///             println!("stopped: {}", self.0.cancel_reason().unwrap_or_default());
    ///         }
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn cancel_reason(&self) -> Option<String> {
        self.shared.cancel_reason.get().cloned()
    }

    /// Sets the reason of a cancel that follows. The first reason is kept.
    pub(crate) fn set_cancel_reason(&self, reason: Option<String>) {
        if let Some(reason) = reason {
            let _ = self.shared.cancel_reason.set(reason);
        }
    }

    /// Calls `discarded` if the answer of this request is not sent: because the request is cancelled before, also if
    /// its handler has returned already, or because a limit does not allow the answer.
    ///
    /// For work that goes on after the answer and that the caller can reach only if it received the answer. An answer
    /// counts as sent when the transport has accepted it. Call this before the handler returns. A later call replaces
    /// the callback of an earlier one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use bowline::Context;
    ///
    /// async fn start(cx: Context, unclaimed: Arc<AtomicUsize>) -> &'static str {
    ///     cx.on_discarded(move || { unclaimed.fetch_add(1, Ordering::Relaxed); });
    ///     "the number of your order is 7"
    /// }
    /// ```
    pub fn on_discarded(&self, discarded: impl FnOnce() + Send + 'static) {
        self.shared.on_discarded.set(Box::new(discarded));
    }

    /// Waits until the server shuts down. Handlers without an end, such as subscriptions, should then return.
    ///
    /// # Cancel safety
    ///
    /// Safe: the signal is not consumed.
    pub async fn shutting_down(&self) {
        self.shared.shutting_down.wait().await;
    }

    /// Reduces the memory of a request that may run for days, such as a subscription: copies the params out of the
    /// buffer in which they were received, which they would keep alive.
    pub(crate) fn release_request(&self) {
        let mut params = self.shared.params();
        *params = params.to_unshared().into();
    }

    /// Returns a handle with which another part of the program cancels or shuts down the handler.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{CancelMode, Context};
    ///
    /// /// Signals a handler that wants to end by itself. Returns whether the others must be dropped.
    /// fn must_drop(cx: &Context) -> bool {
    ///     let control = cx.control();
    ///     control.cancel();
    ///     control.cancel_mode() == CancelMode::Drop
    /// }
    /// ```
    #[must_use]
    pub fn control(&self) -> HandlerControl {
        HandlerControl(self.shared.clone())
    }

    /// Disables log messages: a server without the `logging` capability must not send any.
    pub(crate) fn disable_logging(&mut self) {
        self.is_logging_disabled = true;
    }

    pub(crate) fn cancel(&self) {
        self.shared.cancelled.raise();
    }

    /// Returns how the handler is stopped: [`CancelMode::Drop`], unless [chosen](Self::set_cancel_mode) otherwise.
    pub(crate) fn cancel_mode(&self) -> CancelMode {
        self.shared.cancel_mode()
    }

    /// Sets how the handler that is about to start is stopped. Returns `false` if the request is already cancelled; the
    /// handler must not start then.
    ///
    /// The canceller raises the flag and then reads the mode; this stores the mode and then reads the flag. With
    /// `SeqCst` at least one of them sees the other's store; otherwise a `Signal` handler could start and be dropped.
    pub(crate) fn set_cancel_mode(&self, mode: CancelMode) -> bool {
        self.shared
            .is_signal_mode
            .store(mode == CancelMode::Signal, Ordering::SeqCst);
        !self.is_cancelled()
    }

    pub(crate) fn shut_down(&self) {
        self.shared.shutting_down.raise();
    }
}

/// A handle that cancels or shuts down a handler; returned by [`Context::control`]. Cheap to clone.
///
/// Unlike a [`Context`] it does not keep the [extensions](Context::extensions) alive.
#[derive(Clone)]
pub struct HandlerControl(Arc<ContextShared>);

impl HandlerControl {
    /// Resolves [`Context::cancelled`]. Does not drop the handler.
    ///
    /// To stop a handler, cancel it first, and then read its [mode](Self::cancel_mode).
    pub fn cancel(&self) {
        self.0.cancelled.raise();
    }

    /// Like [`cancel`](Self::cancel), with the reason that [`Context::cancel_reason`] returns. The first one is kept.
    pub fn cancel_with_reason(&self, reason: impl Into<String>) {
        let _ = self.0.cancel_reason.set(reason.into());
        self.cancel();
    }

    /// Returns whether the handler is dropped or only signalled: [`CancelMode::Drop`] until it has started.
    #[must_use]
    pub fn cancel_mode(&self) -> CancelMode {
        self.0.cancel_mode()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancelled.is_raised()
    }

    /// Returns who cancelled the request, as far as it is known.
    pub(crate) fn cancelled_by(&self) -> CancelSource {
        match self.0.cancel_reason.get().map(String::as_str) {
            _ if self.0.shutting_down.is_raised() => CancelSource::Shutdown,
            Some(CONNECTION_ENDED | RESPONSE_CLOSED) => CancelSource::Disconnect,
            _ => CancelSource::Peer,
        }
    }

    /// Returns whether [`Context::on_discarded`] was called, and neither of the following.
    pub(crate) fn watches_answer(&self) -> bool {
        self.0.on_discarded.is_set()
    }

    /// The answer was accepted by the transport.
    pub(crate) fn answer_sent(&self) {
        self.0.on_discarded.clear();
    }

    /// The answer will not be sent.
    pub(crate) fn answer_discarded(&self) {
        self.0.on_discarded.call();
    }

    /// Resolves [`Context::shutting_down`].
    pub fn shut_down(&self) {
        self.0.shutting_down.raise();
    }
}

impl std::fmt::Debug for HandlerControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerControl")
            .field("request_id", &self.0.request_id)
            .field("is_cancelled", &self.0.cancelled.is_raised())
            .finish_non_exhaustive()
    }
}

impl ContextShared {
    fn cancel_mode(&self) -> CancelMode {
        if self.is_signal_mode.load(Ordering::SeqCst) {
            CancelMode::Signal
        } else {
            CancelMode::Drop
        }
    }

    fn params(&self) -> MutexGuard<'_, Params> {
        self.params.lock()
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("request_id", &self.shared.request_id)
            .field("caller", &self.shared.caller)
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// The [`Context::cancel_reason`] of handlers whose connection has ended.
pub(crate) const CONNECTION_ENDED: &str = "the connection has ended";
/// The [`Context::cancel_reason`] of handlers whose response stream the client has closed.
pub(crate) const RESPONSE_CLOSED: &str = "the response stream was closed";

fn encode_notification<N: NotificationMethod>(params: &N::Params) -> Option<Notification> {
    match Json::encode(params) {
        Ok(params) => Some(Notification::new(N::NAME, Some(params))),
        Err(error) => {
            tracing::warn!(method = N::NAME, %error, "failed to serialize a notification");
            None
        }
    }
}
