//! [`UpstreamConnection`]: an open connection to an upstream, and what the bridge knows about it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline::client::Connection;
use bowline::exchange::{CallOptions, Caller, Channel, Dialect, Request};
use bowline::types::{LoggingLevel, Method, SetLevelRequest, SetLevelRequestParams};
use bowline::{Json, RpcError};
use tokio::sync::OwnedSemaphorePermit;

use super::closing::ClosingConnections;
use super::era_check::EraCheck;
use super::known_callers::KnownCallers;
use super::log_levels::{LogLevelUse, LogLevels};
use super::principals::PrincipalConnection;
use crate::owned_task::OwnedTask;
use crate::questions::Questions;
use crate::tasks::ToolSupport;

/// What a server may say about itself. Each connection keeps it, as text and decoded.
const MAX_INTRODUCTION_BYTES: usize = 1024 * 1024;

/// An open connection to an upstream.
pub(crate) struct UpstreamConnection {
    connection: Connection,
    /// The calls in flight, for the requests of a legacy server.
    questions: Arc<Questions>,
    callers: KnownCallers,
    /// The log levels of the calls in flight.
    log_levels: Arc<LogLevels>,
    /// The log level that a legacy server was told.
    told_level: Arc<tokio::sync::Mutex<Option<LoggingLevel>>>,
    era_check: EraCheck,
    /// Closes the connection when this is dropped.
    closing: Arc<ClosingConnections>,
    /// The tools of a legacy server that run as tasks.
    tool_support: ToolSupport,
    /// `None` once the connection is being closed.
    permit: Option<ConnectionPermit>,
}

/// Counts a connection against the limits until it is dropped.
pub(crate) struct ConnectionPermit {
    _of_all: OwnedSemaphorePermit,
    of_principal: Mutex<Option<PrincipalConnection>>,
}

impl ConnectionPermit {
    pub(crate) fn new(
        of_all: OwnedSemaphorePermit,
        of_principal: Option<PrincipalConnection>,
    ) -> Self {
        Self {
            _of_all: of_all,
            of_principal: Mutex::new(of_principal),
        }
    }

    fn of_principal(&self) -> MutexGuard<'_, Option<PrincipalConnection>> {
        let of_principal = self.of_principal.lock();
        of_principal.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a server that says more about itself than the bridge keeps for each connection.
pub(crate) fn check_introduction(introduction: Option<&Json>) -> bowline::Result<()> {
    let bytes = introduction.map_or(0, |it| it.as_bytes().len());
    if bytes <= MAX_INTRODUCTION_BYTES {
        return Ok(());
    }
    let what = format!(
        "the server describes itself in {bytes} bytes; at most {MAX_INTRODUCTION_BYTES} are accepted"
    );
    Err(bowline::Error::Protocol { what, source: None })
}

impl UpstreamConnection {
    pub(crate) fn new(
        connection: Connection,
        questions: Arc<Questions>,
        closing: Arc<ClosingConnections>,
        permit: ConnectionPermit,
    ) -> Self {
        Self {
            callers: KnownCallers::new(connection.dialect()),
            connection,
            questions,
            log_levels: Arc::default(),
            told_level: Arc::default(),
            era_check: EraCheck::default(),
            closing,
            tool_support: ToolSupport::default(),
            permit: Some(permit),
        }
    }

    /// Makes it a connection of all principals: it does not count as one of the principal for which it was opened.
    pub(crate) fn share(&self) {
        if let Some(permit) = &self.permit {
            drop(permit.of_principal().take());
        }
    }

    /// Returns whether it counts as one of this principal.
    pub(crate) fn is_of(&self, principal: &str) -> bool {
        let permit = self.permit.as_ref();
        permit.is_some_and(|permit| {
            let counted = permit.of_principal();
            counted
                .as_ref()
                .is_some_and(|it| it.principal() == principal)
        })
    }

    pub(crate) fn channel(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn questions(&self) -> &Arc<Questions> {
        &self.questions
    }

    pub(crate) fn tool_support(&self) -> &ToolSupport {
        &self.tool_support
    }

    pub(crate) fn era_check(&self) -> &EraCheck {
        &self.era_check
    }

    /// Returns whether requests can be sent on it.
    pub(crate) fn is_usable(&self) -> bool {
        !self.connection.has_ended() && !self.era_check.is_outdated()
    }

    pub(crate) fn dialect(&self) -> &'static Dialect {
        self.connection.dialect()
    }

    /// Returns a caller of the front in the version of this connection.
    pub(crate) fn caller(&self, front: &Arc<Caller>) -> Arc<Caller> {
        self.callers.convert(front)
    }

    /// Tells a legacy server the most talkative log level of its present callers, before a request of one of them, which
    /// counts as present until the guard is dropped. Modern requests carry the level themselves.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels what it sent; the next request sends it again.
    pub(crate) async fn set_log_level(&self, caller: &Arc<Caller>) -> Option<LogLevelUse> {
        let level = caller.log_level.filter(|_| !self.dialect().is_modern())?;
        if !self.has_logging() {
            return None;
        }
        let present = LogLevelUse::new(&self.log_levels, level);
        // The only caller, whose older requests do not keep a level that it has changed.
        let of_owner = self.questions.has_owner().then_some(level);
        let telling = TellLevel {
            told: self.told_level.clone(),
            levels: self.log_levels.clone(),
            of_owner,
            connection: self.connection.clone(),
            caller: self.caller(caller),
        };
        if !telling.is_told() {
            // An error means that the runtime is shutting down.
            let _ = OwnedTask::spawn(telling.run()).join().await;
        }
        Some(present)
    }

    fn has_logging(&self) -> bool {
        #[derive(serde::Deserialize)]
        struct Introduction {
            capabilities: Capabilities,
        }
        #[derive(serde::Deserialize)]
        struct Capabilities {
            logging: Option<serde::de::IgnoredAny>,
        }
        let introduction = self.connection.introduction();
        let introduction = introduction.and_then(|json| json.decode::<Introduction>().ok());
        introduction.is_some_and(|introduction| introduction.capabilities.logging.is_some())
    }
}

/// Tells a legacy server the log level that its present callers need.
struct TellLevel {
    /// Locked while the server is told one: requests that need another one wait.
    told: Arc<tokio::sync::Mutex<Option<LoggingLevel>>>,
    levels: Arc<LogLevels>,
    of_owner: Option<LoggingLevel>,
    connection: Connection,
    caller: Arc<Caller>,
}

impl TellLevel {
    fn needed(&self) -> Option<LoggingLevel> {
        self.of_owner.or_else(|| self.levels.most_talkative())
    }

    fn is_told(&self) -> bool {
        let told = self.told.try_lock();
        told.is_ok_and(|told| *told == self.needed())
    }

    async fn run(self) -> Result<(), RpcError> {
        let mut told = self.told.lock().await;
        let needed = self.needed();
        let Some(level) = needed.filter(|_| *told != needed) else {
            return Ok(());
        };
        let params = Json::encode(&SetLevelRequestParams::new(level));
        let params = params.unwrap_or_else(|_| Json::empty_object());
        let request = Request::new(SetLevelRequest::NAME, params, self.caller.clone());
        let mut options = CallOptions::default();
        options.timeout = Some(LOG_LEVEL_TIMEOUT);
        if let Err(error) = self.connection.open(request, options).answer().await {
            tracing::debug!(%error, "failed to set the log level of an upstream");
        }
        // Also after a failure: the next call must not wait for the timeout again.
        *told = Some(level);
        Ok(())
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        let permit = self.permit.take();
        self.closing.close(self.connection.clone(), permit);
    }
}

const LOG_LEVEL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
