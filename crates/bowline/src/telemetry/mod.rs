//! Telemetry: a span for each request and notification, on both sides and on every transport, and metrics.
//!
//! There are two places where requests pass, whatever the transport, and each reports to both systems:
//!
//! ```text
//!            Transport::open                                  run_handler
//! Client ──▶ Sender: one span per request ─ ─ wire ─ ─ ▶ HandledRequest: one span per request ──▶ Responder
//!                 │                                           │
//!                 ├── tracing: span `mcp.client`              ├── tracing: span `mcp.server`
//!                 └── OpenTelemetry, if configured            └── OpenTelemetry, if configured
//! ```
//!
//! `tracing` spans need no configuration and cost nothing without a subscriber. OpenTelemetry needs the feature `otel`
//! and a [`Telemetry`], which is set on a server, a client or a bridge. Both use the [`names`] of the semantic
//! conventions for MCP.

pub mod names;

mod ending;
pub(crate) use ending::{CancelSource, Ending};

mod handled;
pub(crate) use handled::{HandledRequest, deliver_notification, record_principal};

mod legacy;
pub(crate) use legacy::LegacyTimer;
#[cfg(all(feature = "legacy", feature = "http-server"))]
pub(crate) use legacy::record_legacy_id;

mod operation;
pub(crate) use operation::{Operation, ServerAddress};

mod sent;
pub(crate) use sent::Sender;

mod transport_kind;
pub use transport_kind::TransportKind;

#[cfg_attr(not(feature = "otel"), path = "otel_disabled.rs")]
mod otel;
pub(crate) use otel::{AttachedOtelSpan, Configured, ContextTelemetry, OtelSpan, host_with};
#[cfg(feature = "otel")]
pub use otel::{Payload, PayloadKind, Redaction};
pub use otel::{TaskMetrics, Telemetry};
