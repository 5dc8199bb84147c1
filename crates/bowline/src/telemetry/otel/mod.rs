//! OpenTelemetry: [`Telemetry`], its settings, and the spans and metrics of each operation.

mod cluster;
use cluster::ClusterTotals;

mod drain;
use drain::DrainTotals;

mod instruments;
use instruments::Instruments;

mod legacy;
use legacy::LegacyInstruments;

mod meta_carrier;
use meta_carrier::{MetaExtractor, MetaInjector};

mod redaction;
pub use redaction::{Payload, PayloadKind, Redaction};

mod spans;
pub(crate) use spans::{AttachedOtelSpan, OtelSpan};

mod tasks;
pub use tasks::TaskMetrics;

mod usage;
use usage::UsageTotals;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use bowline_core::era::Request;
use bowline_core::json::Params;
use bowline_core::{Notification, Outcome};
use opentelemetry::global::{self, BoxedTracer, ObjectSafeTracerProvider as _};
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span, TraceContextExt as _, Tracer, TracerProvider};
use opentelemetry::{InstrumentationScope, KeyValue};

use super::legacy::LegacyConnection;
use super::names::{SCHEMA_URL, SCOPE};
use super::{Operation, TransportKind};
use crate::Result;
use crate::cluster::Cluster;
use crate::exchange::{BoxFuture, Context, NotifiedContext, Responder, TraceContext};
use crate::limits::Account;
use crate::shutdown::Shutdown;
use crate::sync::Mutex;

/// OpenTelemetry of a server, a client or a bridge: spans and metrics by the semantic conventions for MCP, and the trace
/// context in `params._meta`. Cheap to clone; requires the feature `otel`.
///
/// The application chooses the SDK and the exporters, and sets the providers before it creates this. Without providers
/// nothing is recorded. Several servers and clients may share one, and then their metrics are added up.
///
/// See the chapter *Telemetry* of the guide for the names and for an exporter.
///
/// # Examples
///
/// ```
/// use bowline::telemetry::Telemetry;
/// use bowline::{Client, Server};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> bowline::Result<()> {
/// // After `opentelemetry::global::set_tracer_provider` and its siblings.
/// let telemetry = Telemetry::new();
/// let server = Server::new("calculator", "1.0.0").telemetry(telemetry.clone());
/// let client = Client::in_process(&server).telemetry(telemetry).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Telemetry {
    inner: Arc<TelemetryInner>,
    /// `None` for the global one.
    propagator: Option<Arc<dyn TextMapPropagator + Send + Sync>>,
    /// `None` if arguments and results are not recorded.
    payloads: Option<Redaction>,
}

struct TelemetryInner {
    tracer: BoxedTracer,
    instruments: Instruments,
    legacy: LegacyInstruments,
    shared: Arc<Shared>,
}

/// What the callbacks of observable instruments read.
#[derive(Default)]
struct Shared {
    /// The requests that are being handled.
    handled: AtomicI64,
    /// The requests that were sent and are not answered.
    sent: AtomicI64,
    tasks: AtomicI64,
    usage: Mutex<UsageTotals>,
    drains: Mutex<DrainTotals>,
    clusters: Mutex<ClusterTotals>,
}

impl Telemetry {
    /// Creates telemetry with the global providers and the global propagator of the `opentelemetry` crate. Providers
    /// that are set later have no effect.
    #[must_use]
    pub fn new() -> Self {
        let provider = global::meter_provider();
        let meter = provider.meter_with_scope(scope());
        let shared = Shared::of_global(&provider, &meter);
        Self::from_parts(global::tracer_with_scope(scope()), &meter, shared)
    }

    /// Creates telemetry with these providers instead of the global ones. Create one and clone it: the values that are
    /// observed, such as active requests, would be reported twice by two.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::telemetry::Telemetry;
    /// use opentelemetry::metrics::noop::NoopMeterProvider;
    /// use opentelemetry::trace::noop::NoopTracerProvider;
    ///
    /// let telemetry = Telemetry::with_providers(&NoopTracerProvider::new(), &NoopMeterProvider::new());
    /// ```
    #[must_use]
    pub fn with_providers<T>(
        tracers: &impl TracerProvider<Tracer = T>,
        meters: &impl MeterProvider,
    ) -> Self
    where
        T: Tracer<Span: Span + Send + Sync + 'static> + Send + Sync + 'static,
    {
        let tracer = BoxedTracer::new(tracers.boxed_tracer(scope()));
        let meter = meters.meter_with_scope(scope());
        let shared = Shared::observed(&meter);
        Self::from_parts(tracer, &meter, shared)
    }

    fn from_parts(tracer: BoxedTracer, meter: &Meter, shared: Arc<Shared>) -> Self {
        Self {
            inner: Arc::new(TelemetryInner {
                tracer,
                instruments: Instruments::new(meter),
                legacy: LegacyInstruments::new(meter),
                shared,
            }),
            propagator: None,
            payloads: None,
        }
    }

    /// Sets the propagator that reads and writes the trace context, instead of the global one.
    #[must_use]
    pub fn propagator(
        mut self,
        propagator: impl TextMapPropagator + Send + Sync + 'static,
    ) -> Self {
        self.propagator = Some(Arc::new(propagator));
        self
    }

    /// Records the arguments and results of tool calls in spans, after `redaction`. They are not recorded by default:
    /// they may contain secrets and personal data.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline::telemetry::{Redaction, Telemetry};
    ///
    /// let telemetry = Telemetry::new().record_payloads(Redaction::types_only());
    /// ```
    #[must_use]
    pub fn record_payloads(mut self, redaction: Redaction) -> Self {
        self.payloads = Some(redaction);
        self
    }

    fn with_propagator<R>(&self, mut run: impl FnMut(&dyn TextMapPropagator) -> R) -> R {
        match &self.propagator {
            Some(propagator) => run(&**propagator),
            None => global::get_text_map_propagator(run),
        }
    }
}

impl Shared {
    /// Returns the counts of all telemetry with this global provider. They are observed once: a second callback of the
    /// same instrument would replace the values of the first.
    fn of_global(provider: &GlobalMeterProvider, meter: &Meter) -> Arc<Self> {
        static LAST: Mutex<Option<(GlobalMeterProvider, Arc<Shared>)>> = Mutex::new(None);
        let mut last = LAST.lock();
        if let Some((known, shared)) = &*last
            && Arc::ptr_eq(known, provider)
        {
            return shared.clone();
        }
        let shared = Self::observed(meter);
        *last = Some((provider.clone(), shared.clone()));
        shared
    }

    /// Creates counts, and the instruments that read them when metrics are collected.
    fn observed(meter: &Meter) -> Arc<Self> {
        let shared = Arc::new(Self::default());
        usage::observe(meter, &shared);
        legacy::observe(meter, &shared);
        drain::observe(meter, &shared);
        cluster::observe(meter, &shared);
        shared
    }
}

/// The type of `opentelemetry::global::meter_provider`.
type GlobalMeterProvider = Arc<dyn MeterProvider + Send + Sync>;

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("records_payloads", &self.payloads.is_some())
            .finish_non_exhaustive()
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(SCHEMA_URL)
        .build()
}

/// The telemetry of a server, a client or a bridge, if it has any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configured(Option<Telemetry>);

impl From<Telemetry> for Configured {
    fn from(telemetry: Telemetry) -> Self {
        Self(Some(telemetry))
    }
}

impl Configured {
    pub(crate) fn of(responder: &dyn Responder) -> Self {
        Self(responder.telemetry().cloned())
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn get(&self) -> Option<&Telemetry> {
        self.0.as_ref()
    }

    /// Starts the span of a request that this side answers. The context in `params._meta` is its parent.
    pub(crate) fn start_handled(
        &self,
        operation: &Operation,
        params: &Params,
        cx: &Context,
    ) -> OtelSpan {
        let Some(telemetry) = &self.0 else {
            return OtelSpan::default();
        };
        let extractor = MetaExtractor::of_params(params);
        let span = OtelSpan::start_received(telemetry, operation, &extractor);
        span.set_request_id(cx.request_id());
        span.set_principal(cx.principal().name());
        span.record_arguments(operation, params);
        span
    }

    /// Starts the span of a notification that this side receives.
    pub(crate) fn start_notified(
        &self,
        operation: &Operation,
        notification: &Notification,
    ) -> OtelSpan {
        let Some(telemetry) = &self.0 else {
            return OtelSpan::default();
        };
        let params = notification.params.clone().map(Params::from);
        let params = params.unwrap_or_else(Params::none);
        OtelSpan::start_received(telemetry, operation, &MetaExtractor::of_params(&params))
    }

    /// Starts the span of a request that this side sends, and writes its context into `params._meta`.
    pub(crate) fn start_sent(&self, operation: &Operation, request: &mut Request) -> OtelSpan {
        let Some(telemetry) = &self.0 else {
            return OtelSpan::default();
        };
        let extractor = MetaExtractor::of_params(&request.params);
        let span = OtelSpan::start_sent(telemetry, operation, &extractor);
        drop(extractor);
        span.record_arguments(operation, &request.params);
        if let Some(params) = span.inject(&request.params) {
            request.params = params.into();
        }
        span
    }

    /// Starts the span of a notification that this side sends, and writes its context into `params._meta`.
    pub(crate) fn start_notifying(
        &self,
        operation: &Operation,
        notification: &mut Notification,
    ) -> OtelSpan {
        let Some(telemetry) = &self.0 else {
            return OtelSpan::default();
        };
        let params = notification.params.clone().map(Params::from);
        let params = params.unwrap_or_else(Params::none);
        let extractor = MetaExtractor::of_params(&params);
        let span = OtelSpan::start_sent(telemetry, operation, &extractor);
        if let Some(params) = span.inject(&params) {
            notification.params = Some(params);
        }
        span
    }

    /// Records how many requests a call took.
    pub(crate) fn record_legs(&self, request: &Request, legs: u32) {
        if let Some(telemetry) = &self.0 {
            let operation = Operation::of_request(request, TransportKind::Other);
            telemetry.inner.instruments.record_legs(&operation, legs);
        }
    }

    pub(super) fn record_legacy(&self, connection: &LegacyConnection, elapsed: Duration) {
        if let Some(telemetry) = &self.0 {
            telemetry.inner.legacy.record(connection, elapsed);
        }
    }

    /// Adds the usage and the drain of a server to the metrics.
    pub(crate) fn watch(&self, account: &Arc<Account>, shutdown: &Shutdown) {
        if let Some(telemetry) = &self.0 {
            let shared = &telemetry.inner.shared;
            shared.usage.lock().watch(account);
            shared.drains.lock().watch(shutdown);
        }
    }

    /// Adds the messages of a cluster to the metrics.
    #[allow(dead_code, reason = "used with the feature `http-server` only")]
    pub(crate) fn watch_cluster(&self, cluster: &Cluster) {
        if let Some(telemetry) = &self.0 {
            telemetry.inner.shared.clusters.lock().watch(cluster);
        }
    }

    pub(crate) fn tasks(&self) -> TaskMetrics {
        TaskMetrics::new(self.0.as_ref().map(|telemetry| telemetry.inner.clone()))
    }
}

/// What the context of a request keeps: the telemetry, and the span of the request.
#[derive(Clone, Default)]
pub(crate) struct ContextTelemetry(Option<Arc<(Telemetry, opentelemetry::Context)>>);

impl ContextTelemetry {
    pub(crate) fn new(configured: &Configured, span: &OtelSpan) -> Self {
        let parts = configured.get().cloned().zip(span.context().cloned());
        Self(parts.map(Arc::new))
    }

    pub(crate) fn configured(&self) -> Configured {
        Configured(self.0.as_ref().map(|parts| parts.0.clone()))
    }

    /// Returns the span of the request as a trace context; `None` if the request has no span.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        let (_, cx) = &**self.0.as_ref()?;
        let span = cx.span();
        let span_context = span.span_context();
        if !span_context.is_valid() {
            return None;
        }
        let trace = TraceContext::new(format!(
            "00-{}-{}-{:02x}",
            span_context.trace_id(),
            span_context.span_id(),
            span_context.trace_flags()
        ));
        let (trace, state) = (trace.ok()?, span_context.trace_state().header());
        match state.is_empty() {
            true => Some(trace),
            false => Some(trace.clone().with_state(state).unwrap_or(trace)),
        }
    }
}

/// Sets an attribute of the current span.
pub(super) fn record_text(name: &'static str, value: &dyn fmt::Display) {
    opentelemetry::Context::map_current(|cx| {
        let span = cx.span();
        if span.is_recording() {
            span.set_attribute(KeyValue::new(name, value.to_string()));
        }
    });
}

/// Returns the host of a client with the telemetry of the client.
pub(crate) fn host_with(host: Arc<dyn Responder>, telemetry: &Configured) -> Arc<dyn Responder> {
    match telemetry.get() {
        // One that has telemetry is that of a client that is restarted.
        Some(telemetry) if host.telemetry().is_none() => {
            let telemetry = telemetry.clone();
            Arc::new(ObservedHost { host, telemetry })
        }
        _ => host,
    }
}

/// The host of a client that has telemetry.
struct ObservedHost {
    host: Arc<dyn Responder>,
    telemetry: Telemetry,
}

impl Responder for ObservedHost {
    fn respond<'a>(&'a self, request: Request, cx: Context) -> BoxFuture<'a, Outcome> {
        self.host.respond(request, cx)
    }

    fn required_scopes(&self, method: &str, params: Option<&Params>) -> Vec<String> {
        self.host.required_scopes(method, params)
    }

    fn check(&self) -> Result<()> {
        self.host.check()
    }

    fn notified(&self, notification: &Notification, cx: &NotifiedContext) {
        self.host.notified(notification, cx);
    }

    fn telemetry(&self) -> Option<&Telemetry> {
        Some(&self.telemetry)
    }

    fn open_calls(&self) -> usize {
        self.host.open_calls()
    }
}
