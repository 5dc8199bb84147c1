//! [`LegacyTimer`], the session duration of the conventions: legacy connections have one, others do not.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::time::Instant;

use bowline_core::era::Dialect;

use super::names::attribute;
use super::{Configured, ServerAddress, TransportKind};

/// Records a hash of the id of the session of a request, in the current spans. The id itself is a secret: it is all that
/// continues the session of an anonymous client.
#[cfg_attr(
    not(all(feature = "legacy", feature = "http-server")),
    allow(dead_code, reason = "legacy sessions over HTTP have ids")
)]
pub(crate) fn record_legacy_id(id: &str) {
    let hash = IdHash(id);
    tracing::Span::current().record(attribute::MCP_SESSION_ID, tracing::field::display(&hash));
    super::otel::record_text(attribute::MCP_SESSION_ID, &hash);
}

/// Displays a hash of a session id, which is computed only if something records it.
struct IdHash<'a>(&'a str);

impl fmt::Display for IdHash<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hasher = DefaultHasher::new(); // without random keys: replicas record the same hash
        hasher.write(self.0.as_bytes());
        write!(f, "{:016x}", hasher.finish())
    }
}

/// Records the duration of a legacy session when it is dropped.
#[derive(Default)]
pub(crate) struct LegacyTimer(Option<Box<Running>>);

struct Running {
    telemetry: Configured,
    session: LegacyConnection,
    started: Instant,
}

/// A session whose duration is recorded.
#[allow(dead_code, reason = "read with the feature `otel` only")]
pub(super) struct LegacyConnection {
    pub(super) is_server: bool,
    pub(super) version: &'static str,
    pub(super) transport: TransportKind,
    pub(super) address: Option<Arc<ServerAddress>>,
    pub(super) error_type: Option<Cow<'static, str>>,
}

impl LegacyTimer {
    /// Starts on a server, unless it runs already or the version is modern.
    pub(crate) fn start_server(
        &mut self,
        telemetry: impl FnOnce() -> Configured,
        dialect: &Dialect,
        transport: TransportKind,
    ) {
        if self.0.is_none() && !dialect.is_modern() {
            self.start(telemetry(), dialect, transport, None, true);
        }
    }

    /// Returns the timer of a client; it runs if the version is legacy.
    pub(crate) fn of_client(sender: &super::Sender, dialect: &Dialect) -> Self {
        let mut timer = Self::default();
        if !dialect.is_modern() {
            let (telemetry, address) = (sender.telemetry().clone(), sender.address().cloned());
            timer.start(telemetry, dialect, sender.transport(), address, false);
        }
        timer
    }

    fn start(
        &mut self,
        telemetry: Configured,
        dialect: &Dialect,
        transport: TransportKind,
        address: Option<Arc<ServerAddress>>,
        is_server: bool,
    ) {
        if !telemetry.is_set() {
            return;
        }
        self.0 = Some(Box::new(Running {
            telemetry,
            session: LegacyConnection {
                is_server,
                version: dialect.version,
                transport,
                address,
                error_type: None,
            },
            started: Instant::now(),
        }));
    }

    /// Sets why the connection failed.
    pub(crate) fn set_error(&mut self, error_type: &'static str) {
        if let Some(running) = &mut self.0 {
            running.session.error_type = Some(error_type.into());
        }
    }
}

impl Drop for LegacyTimer {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            let elapsed = running.started.elapsed();
            running.telemetry.record_legacy(&running.session, elapsed);
        }
    }
}
