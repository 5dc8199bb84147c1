//! Replaces `otel/` in a build without the feature `otel`: nothing is recorded, and every function is empty.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::Notification;
use bowline_core::era::Request;
use bowline_core::json::Params;
use bowline_types::{Json, RequestId};

use super::legacy::LegacyConnection;
use super::{Ending, Operation};
use crate::cluster::Cluster;
use crate::exchange::{Context, Responder, TraceContext};
use crate::limits::Account;
use crate::shutdown::Shutdown;

/// OpenTelemetry of a server, a client or a bridge. It can be created with the feature `otel` only.
// Not `Copy`, as with the feature: a clone must compile without a warning in both builds.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no values")]
pub enum Telemetry {}

/// The metrics of tasks. Records nothing without the feature `otel`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TaskMetrics;

impl TaskMetrics {
    /// Counts a task that starts to run in this process.
    pub fn started(&self) {}

    /// Counts a task that no longer runs in this process.
    pub fn stopped(&self) {}

    /// Records the end of a task: its tool, its final status, and the time since it was created.
    pub fn ended(&self, tool: &str, status: &'static str, elapsed: Duration) {
        let _ = (tool, status, elapsed);
    }
}

/// No telemetry.
#[derive(Clone, Default)]
pub(crate) struct Configured(());

impl From<Telemetry> for Configured {
    fn from(telemetry: Telemetry) -> Self {
        match telemetry {}
    }
}

impl Configured {
    #[inline]
    pub(crate) fn of(_: &dyn Responder) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        false
    }

    pub(crate) fn get(&self) -> Option<&Telemetry> {
        None
    }

    pub(crate) fn start_handled(&self, _: &Operation, _: &Params, _: &Context) -> OtelSpan {
        OtelSpan(())
    }

    pub(crate) fn start_notified(&self, _: &Operation, _: &Notification) -> OtelSpan {
        OtelSpan(())
    }

    pub(crate) fn start_sent(&self, _: &Operation, _: &mut Request) -> OtelSpan {
        OtelSpan(())
    }

    pub(crate) fn start_notifying(&self, _: &Operation, _: &mut Notification) -> OtelSpan {
        OtelSpan(())
    }

    pub(crate) fn record_legs(&self, _: &Request, _: u32) {}

    pub(super) fn record_legacy(&self, _: &LegacyConnection, _: Duration) {}

    pub(crate) fn watch(&self, _: &Arc<Account>, _: &Shutdown) {}

    #[allow(dead_code, reason = "used with the feature `http-server` only")]
    pub(crate) fn watch_cluster(&self, _: &Cluster) {}

    pub(crate) fn tasks(&self) -> TaskMetrics {
        TaskMetrics
    }
}

/// No span.
#[derive(Clone, Default)]
pub(crate) struct OtelSpan(());

impl OtelSpan {
    pub(crate) fn attach(&self) -> AttachedOtelSpan {
        AttachedOtelSpan
    }

    pub(crate) fn set_request_id(&self, _: &RequestId) {}

    pub(crate) fn end(&mut self, _: &Operation, _: &Ending, _: Option<&Json>, _: Duration) {}
}

/// The guard of no span.
pub(crate) struct AttachedOtelSpan;

/// What the context of a request keeps: nothing.
#[derive(Clone, Default)]
pub(crate) struct ContextTelemetry(());

impl ContextTelemetry {
    pub(crate) fn new(_: &Configured, _: &OtelSpan) -> Self {
        Self(())
    }

    pub(crate) fn configured(&self) -> Configured {
        Configured(())
    }

    pub(crate) fn trace(&self) -> Option<TraceContext> {
        None
    }
}

pub(super) fn record_text(_: &'static str, _: &dyn std::fmt::Display) {}

/// Returns the host of a client as it is.
pub(crate) fn host_with(host: Arc<dyn Responder>, _: &Configured) -> Arc<dyn Responder> {
    host
}

// What a server, a request and a connection keep of it takes no memory, so nothing is stored, copied or dropped.
const _: () = assert!(size_of::<Configured>() == 0);
const _: () = assert!(size_of::<ContextTelemetry>() == 0);
const _: () = assert!(size_of::<OtelSpan>() == 0 && size_of::<AttachedOtelSpan>() == 0);
