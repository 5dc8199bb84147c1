//! How a client goes about its requests: what it remembers, what it checks, whom it tells.

use std::sync::Arc;

use bowline_core::Notification;
use bowline_types::LoggingMessageNotificationParams;

use super::cache::{Cache, MemoryCache};
use super::caching::{CacheScopeOptions, Caching, Identity};
use super::hearing::{Hearing, OnError, OnLog, OnNotification};
use super::outputs::Outputs;
use super::{Connect, OutputCheck, Verdict};
use crate::Error;
use crate::exchange::TraceContext;

/// What can be chosen when a client is made, beyond where it connects and as whom.
#[derive(Clone)]
pub(super) struct Habits {
    cache: Arc<dyn Cache>,
    principal: Option<String>,
    server_identity: Option<String>,
    output_check: OutputCheck,
    pub(super) checks_capabilities: bool,
    pub(super) remembered: Option<Verdict>,
    pub(super) trace: Option<TraceSource>,
    on_log: Option<OnLog>,
    on_notification: Option<OnNotification>,
    on_error: Option<OnError>,
}

/// Tells which trace the current request belongs to.
pub(super) type TraceSource = Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>;

impl Default for Habits {
    fn default() -> Self {
        Self {
            cache: Arc::new(MemoryCache::default()),
            principal: None,
            server_identity: None,
            output_check: OutputCheck::default(),
            checks_capabilities: true,
            remembered: None,
            trace: None,
            on_log: None,
            on_notification: None,
            on_error: None,
        }
    }
}

impl Habits {
    /// `url` and `identity` are those of a connection over HTTP.
    pub(super) fn hearing(&self, url: Option<String>, identity: Option<Identity>) -> Arc<Hearing> {
        let options = CacheScopeOptions {
            server: self.server_identity.clone().or(url),
            principal: self.principal.clone(),
            identity,
        };
        Arc::new(Hearing {
            caching: Arc::new(Caching::new(self.cache.clone(), options)),
            outputs: Arc::new(Outputs::new(self.output_check)),
            on_log: self.on_log.clone(),
            on_notification: self.on_notification.clone(),
            on_error: self.on_error.clone(),
        })
    }
}

impl Connect {
    /// Uses the protocol version of an earlier connection instead of probing the server.
    ///
    /// A modern server gets no message before the first request, a legacy one its handshake. If the version turns out to be
    /// wrong, because the first request fails, the client probes the server and uses the right one from then on;
    /// [`Client::verdict`](super::Client::verdict) then returns it. The failed request is sent again if the error proves that it
    /// did not run.
    pub fn remembered(mut self, verdict: Verdict) -> Self {
        self.habits.remembered = Some(verdict);
        self
    }

    /// Asks `trace` with each request which trace it belongs to, unless the request
    /// [says so itself](super::Draft::trace).
    ///
    /// It is called where the request is started or awaited, so that it can look at the current span.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// use bowline::{Client, exchange::TraceContext};
    ///
    /// fn current_trace() -> Option<TraceContext> {
    ///     // … of the current span, as your tracing system tells it
    /// #   None
    /// }
    ///
    /// let client = Client::to(&server).trace(current_trace).await?;
    /// # Ok(()) }
    /// ```
    pub fn trace(
        mut self,
        trace: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.habits.trace = Some(Arc::new(trace));
        self
    }

    /// Calls `on_log` with each log message of the server.
    ///
    /// It is called from the task that reads the wire, or from the call that the message came with, and
    /// must not block.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(server: bowline::Server) -> bowline::Result<()> {
    /// let client = bowline::Client::to(&server)
    ///     .log_level(bowline::types::LoggingLevel::Info)
    ///     .on_log(|message| eprintln!("{:?}: {}", message.level, message.data))
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn on_log(
        mut self,
        on_log: impl Fn(LoggingMessageNotificationParams) + Send + Sync + 'static,
    ) -> Self {
        self.habits.on_log = Some(Arc::new(on_log));
        self
    }

    /// Calls `on_notification` with everything that the server says besides log messages and progress:
    /// changes, and what nobody here knows.
    ///
    /// It is called as [`Connect::on_log`] is. The cache has already forgotten what changed.
    pub fn on_notification(
        mut self,
        on_notification: impl Fn(&Notification) + Send + Sync + 'static,
    ) -> Self {
        self.habits.on_notification = Some(Arc::new(on_notification));
        self
    }

    /// Sets a callback for errors that belong to no call: an error response without an id, a malformed message, and a request that
    /// the server's version does not have. They are logged as well.
    ///
    /// The callback is called like that of [`Connect::on_log`]. Over Streamable HTTP of 2026-07-28 every error belongs to a call.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example(wire: impl bowline::wire::Wire) -> bowline::Result<()> {
    /// let connect = bowline::Client::over(wire).on_error(|error| eprintln!("the server is confused: {error}"));
    /// # let _ = connect; Ok(()) }
    /// ```
    pub fn on_error(mut self, on_error: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.habits.on_error = Some(Arc::new(on_error));
        self
    }

    /// Keeps results that stay good in `cache`. By default each client has a [`MemoryCache`] of its own.
    ///
    /// Several clients can share one. They share results of the same server: the same URL, or the same
    /// [`server_identity`](Self::server_identity).
    pub fn cache(mut self, cache: Arc<dyn Cache>) -> Self {
        self.habits.cache = cache;
        self
    }

    /// Sets a name for the server, so that clients that set the same name share cached results. Defaults to the URL over HTTP, and
    /// to a name that no other client has on other transports.
    pub fn server_identity(mut self, identity: impl Into<String>) -> Self {
        self.habits.server_identity = Some(identity.into());
        self
    }

    /// Sets the principal that the client acts for, so that clients with the same principal share private cached results.
    ///
    /// Defaults to the [identity](crate::http::client::Authorizer::identity) of the client's authorizer. Without an authorizer private
    /// results are not shared. If the principal changes later, call [`Client::set_principal`](super::Client::set_principal).
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.habits.principal = Some(principal.into());
        self
    }

    /// When structured output is checked against the schema of its tool.
    pub fn output_check(mut self, check: OutputCheck) -> Self {
        self.habits.output_check = check;
        self
    }

    /// Sends requests even if the server does not say that it offers such a thing.
    pub fn unchecked(mut self) -> Self {
        self.habits.checks_capabilities = false;
        self
    }
}
