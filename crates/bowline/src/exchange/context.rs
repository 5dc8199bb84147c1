//! What a handler may know and do for the current request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_core::Notification;
use bowline_core::era::{Caller, Request};
use bowline_core::json::Params;
use bowline_types::{
    Json, LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParams, Meta, Notice,
    ProgressNotification, ProgressToken, RequestId,
};

use super::progress::{Progress, Reports};
use super::{CancelMode, Channel, Extensions, Input, Principal, TraceContext};
use crate::deprecation;
use crate::signal::Signal;

/// What a handler may know and do for the current request. Cheap to clone.
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
    shared: Arc<Shared>,
    principal: Principal,
    /// What is asked in the current round, where something may be.
    input: Option<Arc<Input>>,
    extensions: Extensions,
    is_mute: bool,
    /// The default logger name.
    logger: Option<Arc<str>>,
}

struct Shared {
    request_id: RequestId,
    caller: Arc<Caller>,
    progress_token: Option<ProgressToken>,
    /// Where its `_meta` is.
    params: Mutex<Params>,
    outlet: Arc<dyn Outlet>,
    reports: Reports,
    cancelled: Signal,
    /// Whether the handler, once cancelled, is told so and runs on instead of being dropped.
    runs_on: AtomicBool,
    shutting_down: Signal,
}

/// Where a handler's words go: onto the wire of the request, or into the exchange in process.
pub trait Outlet: Send + Sync + 'static {
    /// Says something that belongs to the request. Silent once the request is over.
    fn notify(&self, notification: Notification);

    /// The way back to the caller, where its era lets a server ask.
    fn way_back(&self) -> Option<Arc<dyn Channel>>;
}

impl Context {
    /// The context of `request`, whose handler's words go to `outlet`.
    pub fn new(request_id: RequestId, request: &Request, outlet: Arc<dyn Outlet>) -> Self {
        Self {
            shared: Arc::new(Shared {
                request_id,
                caller: request.caller.clone(),
                progress_token: request.progress_token.clone(),
                params: Mutex::new(request.params.clone()),
                outlet,
                reports: Reports::default(),
                cancelled: Signal::default(),
                runs_on: AtomicBool::new(false),
                shutting_down: Signal::default(),
            }),
            principal: Principal::anonymous(),
            input: None,
            extensions: Extensions::default(),
            is_mute: false,
            logger: None,
        }
    }

    /// The same context, on behalf of somebody. For layers that check credentials.
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = principal;
        self
    }

    /// The same context, in which questions may be asked.
    pub(crate) fn with_input(mut self, input: Arc<Input>) -> Self {
        self.input = Some(input);
        self
    }

    pub(crate) fn input(&self) -> Option<&Arc<Input>> {
        self.input.as_ref()
    }

    /// The id of the request, as the caller wrote it.
    #[must_use]
    pub fn request_id(&self) -> &RequestId {
        &self.shared.request_id
    }

    /// Who is asking.
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

    pub(super) fn shared_caller(&self) -> Arc<Caller> {
        self.shared.caller.clone()
    }

    /// On whose behalf it is asked.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    ///
    /// async fn whoami(cx: Context) -> String {
    ///     cx.principal().name().unwrap_or("nobody in particular").to_owned()
    /// }
    /// ```
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What accompanies the request.
    #[must_use]
    pub fn meta(&self) -> Option<Meta> {
        let meta = self.shared.params().member("_meta").ok()??;
        meta.decode().ok()?
    }

    /// The trace that the request belongs to, if its caller says so in the form that the W3C gives it.
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
        TraceContext::read(&self.meta()?)
    }

    /// What the server shares with its handlers, by its type; see `Server::state`.
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
        self.extensions.find()
    }

    /// Everything that the server and its layers add to the request.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Everything that the server and its layers add to the request, for a layer that adds more. Clones
    /// of the context that exist already do not see it.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Reports progress, if the caller asked for it.
    ///
    /// Progress only ever grows: a report that is not above all before it is not sent. Of reports that come
    /// from several threads at once some may be left out.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::{Context, Progress};
    ///
    /// async fn copy(cx: Context) {
    ///     for file in 1..=4 {
    ///         cx.progress(Progress::at(f64::from(file)).of(4.0).message(format!("file {file}")));
    ///     }
    /// }
    /// ```
    pub fn progress(&self, progress: impl Into<Progress>) {
        let Some(token) = &self.shared.progress_token else {
            return;
        };
        self.shared.reports.send(progress.into(), |progress| {
            self.notify::<ProgressNotification>(&progress.into_params(token.clone()));
        });
    }

    /// Logs something to the caller, if the server [may](crate::Server::logging) and the caller asked for
    /// messages this severe.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    /// use bowline::types::LoggingLevel;
    ///
    /// async fn import(cx: Context) {
    ///     cx.log(LoggingLevel::Warning, serde_json::json!("the third line is empty"));
    /// }
    /// ```
    pub fn log(&self, level: LoggingLevel, data: impl Into<Json>) {
        if self.logs(level) {
            let logger = self.logger.as_deref().map(str::to_owned);
            self.log_by(logger, level, data.into());
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
    ///     cx.log_as("database", LoggingLevel::Warning, json!("a slow query"));
    /// }
    /// ```
    pub fn log_as(&self, logger: &str, level: LoggingLevel, data: impl Into<Json>) {
        if self.logs(level) {
            self.log_by(Some(logger.to_owned()), level, data.into());
        }
    }

    /// Returns whether the caller receives log messages of this level.
    fn logs(&self, level: LoggingLevel) -> bool {
        let least = self.shared.caller.log_level;
        !self.is_mute && least.is_some_and(|least| level >= least)
    }

    fn log_by(&self, logger: Option<String>, level: LoggingLevel, data: Json) {
        deprecation::warn_of(LoggingMessageNotification::NAME, self.caller().dialect);
        let mut params = LoggingMessageNotificationParams::new(level, data);
        params.logger = logger;
        self.notify::<LoggingMessageNotification>(&params);
    }

    /// Sets the default logger name.
    pub(crate) fn set_logger(&mut self, logger: &Arc<str>) {
        self.logger = Some(logger.clone());
    }

    /// Says something that belongs to this request. Silent once the request is over.
    pub fn notify<N: Notice>(&self, params: &N::Params) {
        match Json::encode(params) {
            Ok(params) => self.say(Notification::new(N::NAME, Some(params))),
            Err(error) => {
                tracing::warn!(method = N::NAME, %error, "a notification has no JSON form")
            }
        }
    }

    /// As [`notify`](Self::notify), with params that are encoded already.
    pub(crate) fn say(&self, notification: Notification) {
        self.shared.outlet.notify(notification);
    }

    /// The way back to the caller, where its era lets a server ask. What is asked through it is
    /// cancelled when the exchange is dropped, and so when this request's handler is.
    #[must_use]
    pub fn way_back(&self) -> Option<Arc<dyn Channel>> {
        self.shared.outlet.way_back()
    }

    /// Waits until the caller gives up, or the handler is stopped because it needs input first. For what
    /// a handler spawned: the handler itself is dropped.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost by dropping it.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::Context;
    ///
    /// async fn watch_over(cx: Context) {
    ///     // A task of the handler's own is not dropped with it, and has to look.
    ///     tokio::spawn(async move {
    ///         tokio::select! {
    ///             () = cx.cancelled() => println!("the caller gave up"),
    ///             () = copy_everything() => {}
    ///         }
    ///     });
    /// }
    /// # async fn copy_everything() {}
    /// ```
    pub async fn cancelled(&self) {
        self.shared.cancelled.wait().await;
    }

    /// Whether the caller gave up, or the handler was stopped because it needs input first.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.is_raised()
    }

    /// Waits until this end is shutting down, when what would go on for ever should come to its end.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is lost by dropping it.
    pub async fn shutting_down(&self) {
        self.shared.shutting_down.wait().await;
    }

    /// Keeps as little of the request as it can: of a handler that may go on for days, this is what its
    /// caller costs. What accompanies the request is copied, because it would hold on to the whole buffer
    /// in which it arrived, and what the server and its layers have added is forgotten.
    pub(crate) fn let_request_go(&mut self) {
        self.extensions = Extensions::default();
        let mut params = self.shared.params();
        *params = params.to_unshared().into();
    }

    /// The part of it that whoever runs the handler needs.
    pub(crate) fn alarm(&self) -> Alarm {
        Alarm(self.shared.clone())
    }

    /// Logs nothing to the caller: what does not say that it logs must not.
    pub(crate) fn mute(&mut self) {
        self.is_mute = true;
    }

    pub(crate) fn cancel(&self) {
        self.shared.cancelled.raise();
    }

    /// What becomes of the handler when its caller gives up: it is dropped, unless it has
    /// [chosen](Self::choose) otherwise.
    pub(crate) fn cancel_mode(&self) -> CancelMode {
        self.shared.cancel_mode()
    }

    /// Chooses what becomes of the handler that is about to start, when its caller gives up. Returns
    /// `false` if the caller has done so already: what has not started then never does.
    ///
    /// Whoever cancels raises the flag and then asks for the mode; here it is the other way round. So one
    /// of the two always sees the other.
    pub(crate) fn choose(&self, mode: CancelMode) -> bool {
        self.shared
            .runs_on
            .store(mode == CancelMode::Signal, Ordering::SeqCst);
        !self.is_cancelled()
    }

    pub(crate) fn shut_down(&self) {
        self.shared.shutting_down.raise();
    }
}

/// Tells a handler, from outside, that its request is over. What the server and its layers added to the request
/// is not kept alive by it.
#[derive(Clone)]
pub(crate) struct Alarm(Arc<Shared>);

impl Alarm {
    pub(crate) fn cancel(&self) {
        self.0.cancelled.raise();
    }

    /// As [`Context::cancel_mode`].
    pub(crate) fn cancel_mode(&self) -> CancelMode {
        self.0.cancel_mode()
    }

    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "elsewhere the context itself is at hand")
    )]
    pub(crate) fn shut_down(&self) {
        self.0.shutting_down.raise();
    }
}

impl Shared {
    fn cancel_mode(&self) -> CancelMode {
        if self.runs_on.load(Ordering::SeqCst) {
            CancelMode::Signal
        } else {
            CancelMode::Drop
        }
    }

    fn params(&self) -> MutexGuard<'_, Params> {
        // No code that could panic halfway through a change runs under this lock.
        self.params.lock().unwrap_or_else(PoisonError::into_inner)
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
