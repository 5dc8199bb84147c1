//! [`HandledRequest`], the telemetry of one request that this side answers.

use std::time::Instant;

use bowline_core::era::Request;
use bowline_core::{Notification, Outcome, shortened};
use bowline_types::RpcError;
use tracing::Span;
use tracing::field::{Empty, display};
use tracing::span::Entered;

use super::names::{attribute, bowline};
use super::{AttachedOtelSpan, Configured, Ending, Operation, OtelSpan};
use crate::callback::catch_panic;
use crate::exchange::{Context, HandlerControl, NotifiedContext, Responder};

/// The spans of a request that this side answers. Empty if there is no subscriber and no configured telemetry.
#[derive(Default)]
pub(crate) struct HandledRequest(Option<Box<Observed>>);

/// The spans of one operation, on either side.
pub(super) struct Observed {
    pub(super) span: Span,
    pub(super) otel: OtelSpan,
    pub(super) operation: Operation,
    pub(super) started: Instant,
}

/// The current spans of this thread, left in reverse order when it is dropped.
#[must_use = "dropping it leaves the spans"]
pub(crate) struct EnteredSpans<'a> {
    _otel: AttachedOtelSpan,
    _span: Entered<'a>,
}

impl HandledRequest {
    /// Starts the spans of a request that is about to be handled.
    #[inline]
    pub(crate) fn start(responder: &dyn Responder, request: &Request, cx: &mut Context) -> Self {
        let span = server_span();
        let telemetry = Configured::of(responder);
        if span.is_disabled() && !telemetry.is_set() {
            return Self(None);
        }
        Self::observe(span, &telemetry, request, cx)
    }

    #[cold]
    fn observe(span: Span, telemetry: &Configured, request: &Request, cx: &mut Context) -> Self {
        let mut operation = Operation::of_request(request, cx.transport());
        operation.http_version = http_version(cx);
        record_operation(&span, &operation);
        if !span.is_disabled() {
            span.record(
                attribute::JSONRPC_REQUEST_ID,
                display(shortened(cx.request_id())),
            );
            if let Some(name) = cx.principal().name() {
                span.record(attribute::ENDUSER_ID, display(shortened(name)));
            }
        }
        let otel = telemetry.start_handled(&operation, &request.params, cx);
        cx.set_telemetry(telemetry, &otel);
        Self(Some(Box::new(Observed {
            span,
            otel,
            operation,
            started: Instant::now(),
        })))
    }

    /// Enters the spans until the guard is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Option<EnteredSpans<'_>> {
        self.0.as_deref().map(Observed::enter)
    }

    /// The handler returned.
    #[inline]
    pub(crate) fn end(&mut self, outcome: &Outcome, control: &HandlerControl) {
        if let Some(observed) = self.0.take() {
            let ending = Ending::of_outcome(&observed.operation.method, outcome, control);
            observed.end(&ending, outcome.as_ref().ok());
        }
    }

    /// The handler panicked.
    pub(crate) fn panicked(&mut self, error: &RpcError) {
        if let Some(observed) = self.0.take() {
            observed.end(&Ending::panicked(error), None);
        }
    }

    /// The handler was dropped.
    pub(crate) fn dropped(&mut self, control: &HandlerControl) {
        if let Some(observed) = self.0.take() {
            observed.end(&Ending::dropped(control), None);
        }
    }
}

impl Observed {
    pub(super) fn in_scope<T>(&self, poll: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        poll()
    }

    fn enter(&self) -> EnteredSpans<'_> {
        let span = self.span.enter();
        EnteredSpans {
            _otel: self.otel.attach(),
            _span: span,
        }
    }

    /// Ends the spans, and records the duration.
    #[allow(
        clippy::boxed_local,
        reason = "it is small without the feature `otel` only"
    )]
    pub(super) fn end(mut self: Box<Self>, ending: &Ending, result: Option<&bowline_types::Json>) {
        let elapsed = self.started.elapsed();
        if !self.span.is_disabled() {
            record_ending(&self.span, ending);
            self.span.in_scope(|| {
                let error = ending.message.as_deref().map(display);
                tracing::debug!(target: TARGET, ?elapsed, error, "request ended");
            });
        }
        self.otel.end(&self.operation, ending, result, elapsed);
    }
}

/// Passes a notification to a responder, inside a span. A panic of the responder is logged.
pub(crate) fn deliver_notification(
    responder: &dyn Responder,
    notification: &Notification,
    cx: &NotifiedContext,
    transport: super::TransportKind,
) {
    let deliver = || catch_panic("a notification", || responder.notified(notification, cx));
    let span = server_span();
    let telemetry = Configured::of(responder);
    if span.is_disabled() && !telemetry.is_set() {
        return deliver();
    }
    let dialect = cx.caller().dialect;
    let operation = Operation::of_notification(notification, dialect, transport);
    record_operation(&span, &operation);
    let otel = telemetry.start_notified(&operation, notification);
    let started = Instant::now();
    let observed = Box::new(Observed {
        span,
        otel,
        operation,
        started,
    });
    observed.in_scope(deliver);
    observed.end(&Ending::default(), None);
}

/// Records a principal that a layer has set, in the current spans.
pub(crate) fn record_principal(name: &str) {
    Span::current().record(attribute::ENDUSER_ID, display(shortened(name)));
    super::otel::record_text(attribute::ENDUSER_ID, &shortened(name));
}

/// Returns the version of HTTP, if the request arrived over it.
fn http_version(cx: &Context) -> Option<&'static str> {
    let head = cx.extensions().get::<http::request::Parts>()?;
    match head.version {
        http::Version::HTTP_10 => Some("1.0"),
        http::Version::HTTP_11 => Some("1.1"),
        http::Version::HTTP_2 => Some("2"),
        http::Version::HTTP_3 => Some("3"),
        _ => None,
    }
}

/// Creates a `tracing` span with the fields of the conventions, which are recorded if it is enabled.
macro_rules! operation_span {
    ($name:literal) => {
        tracing::info_span!(
            target: "bowline::request",
            $name,
            { attribute::MCP_METHOD_NAME } = Empty,
            { attribute::GEN_AI_TOOL_NAME } = Empty,
            { attribute::GEN_AI_PROMPT_NAME } = Empty,
            { attribute::MCP_RESOURCE_URI } = Empty,
            { attribute::JSONRPC_REQUEST_ID } = Empty,
            { attribute::MCP_PROTOCOL_VERSION } = Empty,
            { attribute::NETWORK_TRANSPORT } = Empty,
            { attribute::NETWORK_PROTOCOL_NAME } = Empty,
            { attribute::NETWORK_PROTOCOL_VERSION } = Empty,
            { attribute::SERVER_ADDRESS } = Empty,
            { attribute::SERVER_PORT } = Empty,
            { attribute::ENDUSER_ID } = Empty,
            { attribute::MCP_SESSION_ID } = Empty,
            { attribute::RPC_RESPONSE_STATUS_CODE } = Empty,
            { attribute::ERROR_TYPE } = Empty,
            { bowline::RESULT_TYPE } = Empty,
            { bowline::CANCELLED_BY } = Empty,
            { bowline::CANCELLED_HANDLER } = Empty,
        )
    };
}

fn server_span() -> Span {
    operation_span!("mcp.server")
}

pub(super) fn client_span() -> Span {
    operation_span!("mcp.client")
}

pub(super) fn record_operation(span: &Span, operation: &Operation) {
    if span.is_disabled() {
        return;
    }
    let record = |name, value: Option<&str>| {
        if let Some(value) = value {
            span.record(name, value);
        }
    };
    let (target, transport) = (&operation.target, operation.transport);
    record(attribute::MCP_METHOD_NAME, Some(&operation.method));
    record(attribute::GEN_AI_TOOL_NAME, target.tool().map(|it| &**it));
    record(
        attribute::GEN_AI_PROMPT_NAME,
        target.prompt().map(|it| &**it),
    );
    record(
        attribute::MCP_RESOURCE_URI,
        target.resource().map(|it| &**it),
    );
    record(attribute::MCP_PROTOCOL_VERSION, Some(operation.version));
    record(attribute::NETWORK_TRANSPORT, transport.network_transport());
    record(
        attribute::NETWORK_PROTOCOL_NAME,
        transport.network_protocol(),
    );
    record(attribute::NETWORK_PROTOCOL_VERSION, operation.http_version);
    if let Some(address) = &operation.address {
        record(attribute::SERVER_ADDRESS, Some(&address.host));
        if let Some(port) = address.port {
            span.record(attribute::SERVER_PORT, port);
        }
    }
}

fn record_ending(span: &Span, ending: &Ending) {
    let record = |name, value: Option<&str>| {
        if let Some(value) = value {
            span.record(name, value);
        }
    };
    record(attribute::RPC_RESPONSE_STATUS_CODE, ending.code.as_deref());
    record(attribute::ERROR_TYPE, ending.error_type.as_deref());
    record(bowline::RESULT_TYPE, ending.result_type.as_deref());
    if let Some(cancelled) = ending.cancelled {
        record(bowline::CANCELLED_BY, Some(cancelled.by.as_str()));
        record(bowline::CANCELLED_HANDLER, cancelled.handler);
    }
}

/// The `tracing` target of the spans and their last events.
const TARGET: &str = "bowline::request";
