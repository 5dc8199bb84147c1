//! [`OtelSpan`], the span of one operation, and its metrics.

use std::borrow::Cow;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bowline_core::json::Params;
use bowline_core::shortened;
use bowline_types::{Json, RequestId};
use opentelemetry::trace::{Link, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, ContextGuard, KeyValue, StringValue};

use super::super::ending::Unknown;
use super::super::operation::Target;
use super::instruments::{Side, ending_attributes, operation_attributes};
use super::{MetaExtractor, MetaInjector, PayloadKind, Telemetry};
use crate::telemetry::names::{attribute, bowline};
use crate::telemetry::{Ending, Operation};

/// The span of an operation; empty without telemetry.
#[derive(Default)]
pub(crate) struct OtelSpan(Option<ActiveSpan>);

struct ActiveSpan {
    telemetry: Telemetry,
    side: Side,
    cx: Context,
    is_recording: bool,
    /// Whether it counts as an active request. Notifications do not.
    is_counted: bool,
}

/// The active span of this thread, until it is dropped.
pub(crate) struct AttachedOtelSpan {
    _guard: Option<ContextGuard>,
}

impl OtelSpan {
    /// Starts the span of a request or notification that this side receives. The extracted context is its parent; the
    /// span that is active here, such as that of the HTTP request, becomes a link.
    pub(super) fn start_received(
        telemetry: &Telemetry,
        operation: &Operation,
        extractor: &MetaExtractor<'_>,
    ) -> Self {
        let ambient = Context::current();
        let parent = telemetry.with_propagator(|it| it.extract_with_context(&ambient, extractor));
        let transport_span = ambient.span().span_context().clone();
        let is_parent = parent.span().span_context() == &transport_span;
        let link =
            (transport_span.is_valid() && !is_parent).then(|| Link::with_context(transport_span));
        Self::start(telemetry, Side::Server, operation, &parent, link)
    }

    /// Starts the span of a request or notification that this side sends. The active span is its parent; without one,
    /// the context that the request carries already.
    pub(super) fn start_sent(
        telemetry: &Telemetry,
        operation: &Operation,
        extractor: &MetaExtractor<'_>,
    ) -> Self {
        let mut parent = Context::current();
        if !parent.span().span_context().is_valid() {
            parent = telemetry.with_propagator(|it| it.extract_with_context(&parent, extractor));
        }
        Self::start(telemetry, Side::Client, operation, &parent, None)
    }

    fn start(
        telemetry: &Telemetry,
        side: Side,
        operation: &Operation,
        parent: &Context,
        link: Option<Link>,
    ) -> Self {
        let tracer = &telemetry.inner.tracer;
        let kind = match side {
            Side::Client => SpanKind::Client,
            Side::Server => SpanKind::Server,
        };
        // With the attributes, which a sampler may read.
        let builder = tracer
            .span_builder(span_name(operation))
            .with_kind(kind)
            .with_attributes(operation_attributes(operation, Unknown::Nothing))
            .with_links(link.into_iter().collect());
        let cx = parent.with_span(tracer.build_with_context(builder, parent));
        let is_recording = cx.span().is_recording();
        if let Some(uri) = operation.target.resource().filter(|_| is_recording) {
            let uri = StringValue::from(uri.clone());
            cx.span()
                .set_attribute(KeyValue::new(attribute::MCP_RESOURCE_URI, uri));
        }
        let is_counted = !operation.method.starts_with("notifications/");
        let span = ActiveSpan {
            telemetry: telemetry.clone(),
            side,
            cx,
            is_recording,
            is_counted,
        };
        span.count(1);
        Self(Some(span))
    }

    /// Makes the span the active one until the guard is dropped.
    pub(crate) fn attach(&self) -> AttachedOtelSpan {
        let span = self.0.as_ref();
        AttachedOtelSpan {
            _guard: span.map(|span| span.cx.clone().attach()),
        }
    }

    pub(super) fn context(&self) -> Option<&Context> {
        self.0.as_ref().map(|span| &span.cx)
    }

    pub(crate) fn set_request_id(&self, id: &RequestId) {
        self.set(|| KeyValue::new(attribute::JSONRPC_REQUEST_ID, shortened(id).to_string()));
    }

    pub(super) fn set_principal(&self, name: Option<&str>) {
        if let Some(name) = name {
            self.set(|| KeyValue::new(attribute::ENDUSER_ID, shortened(name).to_string()));
        }
    }

    /// Records the arguments of a tool call, if the application has asked for that.
    pub(super) fn record_arguments(&self, operation: &Operation, params: &Params) {
        let Some(span) = &self.0 else { return };
        if span.is_recording && span.telemetry.payloads.is_some() {
            let arguments = params.member("arguments").ok().flatten();
            let arguments = arguments.unwrap_or_else(Json::empty_object);
            span.record_payload(operation, PayloadKind::Arguments, &arguments);
        }
    }

    /// Returns the params with the context of this span; `None` if the propagator writes nothing.
    pub(super) fn inject(&self, params: &Json) -> Option<Json> {
        let span = self.0.as_ref()?;
        let mut injector = MetaInjector::default();
        span.telemetry
            .with_propagator(|it| it.inject_context(&span.cx, &mut injector));
        injector.into_params(params)
    }

    /// Ends the span, and records the metrics of the operation.
    pub(crate) fn end(
        &mut self,
        operation: &Operation,
        ending: &Ending,
        result: Option<&Json>,
        elapsed: Duration,
    ) {
        let Some(span) = self.0.take() else { return };
        span.count(-1);
        if span.is_recording {
            span.record_ending(operation, ending, result);
        }
        span.cx.span().end();
        // With the span active, so that the SDK can attach it as an exemplar.
        let _active = span.cx.clone().attach();
        let instruments = &span.telemetry.inner.instruments;
        instruments.record_operation(span.side, operation, ending, elapsed);
    }

    fn set(&self, attribute: impl FnOnce() -> KeyValue) {
        if let Some(span) = self.0.as_ref().filter(|span| span.is_recording) {
            span.cx.span().set_attribute(attribute());
        }
    }
}

impl ActiveSpan {
    fn count(&self, number: i64) {
        if self.is_counted {
            self.active().fetch_add(number, Ordering::Relaxed);
        }
    }

    fn active(&self) -> &AtomicI64 {
        let shared = &self.telemetry.inner.shared;
        match self.side {
            Side::Client => &shared.sent,
            Side::Server => &shared.handled,
        }
    }

    fn record_ending(&self, operation: &Operation, ending: &Ending, result: Option<&Json>) {
        let span = self.cx.span();
        span.set_attributes(ending_attributes(ending));
        if let Some(cancelled) = ending.cancelled {
            span.set_attribute(KeyValue::new(bowline::CANCELLED_BY, cancelled.by.as_str()));
            let handler = cancelled.handler;
            span.set_attributes(handler.map(|it| KeyValue::new(bowline::CANCELLED_HANDLER, it)));
        }
        if ending.error_type.is_some() {
            span.set_status(Status::error(ending.message.clone().unwrap_or_default()));
        }
        if let Some(result) = result {
            self.record_payload(operation, PayloadKind::Result, result);
        }
    }

    fn record_payload(&self, operation: &Operation, kind: PayloadKind, json: &Json) {
        let (Some(redaction), Some(tool)) = (&self.telemetry.payloads, operation.target.tool())
        else {
            return;
        };
        let key = match kind {
            PayloadKind::Arguments => attribute::GEN_AI_TOOL_CALL_ARGUMENTS,
            PayloadKind::Result => attribute::GEN_AI_TOOL_CALL_RESULT,
        };
        if let Some(text) = redaction.apply(kind, tool, json) {
            self.cx.span().set_attribute(KeyValue::new(key, text));
        }
    }
}

/// Returns the name of a span: the method, and the tool or the prompt. The URI of a resource is left out, because span
/// names must not have too many values.
fn span_name(operation: &Operation) -> Cow<'static, str> {
    match &operation.target {
        Target::Tool(name) | Target::Prompt(name) => format!("{} {name}", operation.method).into(),
        Target::Resource(_) | Target::None => operation.method.clone(),
    }
}

/// A span that was never ended was not dropped by its owner either; the counts stay right all the same.
impl Drop for OtelSpan {
    fn drop(&mut self) {
        if let Some(span) = &self.0 {
            span.count(-1);
        }
    }
}
