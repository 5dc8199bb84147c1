//! [`Sender`], the telemetry of the requests that this side sends over one connection.

use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use bowline_core::era::{Dialect, Request};
use bowline_core::{Notification, shortened};
use bowline_types::RequestId;
use tracing::Span;
use tracing::field::display;

use super::handled::{Observed, client_span, record_operation};
use super::names::attribute;
use super::{Configured, ContextTelemetry, Ending, Operation, ServerAddress, TransportKind};
use crate::exchange::{
    Answer, CallOptions, Channel, Exchange, ExchangeEvent, NotificationSink, PollExchange,
};

/// Opens exchanges inside spans, for one connection.
#[derive(Clone, Default)]
pub(crate) struct Sender {
    telemetry: Configured,
    transport: TransportKind,
    address: Option<Arc<ServerAddress>>,
}

impl Sender {
    pub(crate) fn new(telemetry: Configured, transport: TransportKind) -> Self {
        Self {
            telemetry,
            transport,
            address: None,
        }
    }

    /// Sets the server that is connected to.
    pub(crate) fn with_address(mut self, host: Option<&str>, port: Option<u16>) -> Self {
        self.address = host.map(|host| {
            let host = host.to_owned();
            Arc::new(ServerAddress { host, port })
        });
        self
    }

    pub(crate) fn telemetry(&self) -> &Configured {
        &self.telemetry
    }

    pub(crate) fn transport(&self) -> TransportKind {
        self.transport
    }

    pub(crate) fn address(&self) -> Option<&Arc<ServerAddress>> {
        self.address.as_ref()
    }

    /// Starts the spans of a request that is about to be sent. `None` without a subscriber and without telemetry: then the
    /// caller sends the request as it is, without moving it through a closure.
    #[inline]
    pub(crate) fn start(&self, request: &mut Request) -> Option<SentRequest> {
        let span = client_span();
        if span.is_disabled() && !self.telemetry.is_set() {
            return None;
        }
        Some(self.observe(span, request))
    }

    #[cold]
    fn observe(&self, span: Span, request: &mut Request) -> SentRequest {
        let mut operation = Operation::of_request(request, self.transport);
        operation.address.clone_from(&self.address);
        record_operation(&span, &operation);
        let otel = self.telemetry.start_sent(&operation, request);
        SentRequest(Box::new(Observed {
            span,
            otel,
            operation,
            started: Instant::now(),
        }))
    }

    /// Sends a notification, inside a span.
    pub(crate) fn notify(
        &self,
        mut notification: Notification,
        dialect: &'static Dialect,
        send: impl FnOnce(Notification),
    ) {
        let span = client_span();
        if span.is_disabled() && !self.telemetry.is_set() {
            return send(notification);
        }
        let mut operation = Operation::of_notification(&notification, dialect, self.transport);
        operation.address.clone_from(&self.address);
        record_operation(&span, &operation);
        let otel = self
            .telemetry
            .start_notifying(&operation, &mut notification);
        let started = Instant::now();
        let observed = Box::new(Observed {
            span,
            otel,
            operation,
            started,
        });
        observed.in_scope(|| send(notification));
        observed.end(&Ending::default(), None);
    }
}

/// The spans of a request that is about to be sent.
pub(crate) struct SentRequest(Box<Observed>);

impl SentRequest {
    /// Opens the exchange of the request inside the spans, which end with it.
    pub(crate) fn open(self, open: impl FnOnce() -> Exchange) -> Exchange {
        let exchange = self.0.in_scope(open);
        ObservedExchange::start(exchange, self.0)
    }
}

impl ContextTelemetry {
    /// Returns the channel for requests of a server to its client, with spans.
    pub(crate) fn back_channel(&self, sink: &dyn NotificationSink) -> Option<Arc<dyn Channel>> {
        let channel = sink.back_channel()?;
        let sender = Sender::new(self.configured(), sink.transport());
        Some(Arc::new(ObservedChannel { channel, sender }))
    }
}

/// A channel whose exchanges have spans.
struct ObservedChannel {
    channel: Arc<dyn Channel>,
    sender: Sender,
}

impl Channel for ObservedChannel {
    fn open(&self, mut request: Request, options: CallOptions) -> Exchange {
        match self.sender.start(&mut request) {
            None => self.channel.open(request, options),
            Some(sent) => sent.open(|| self.channel.open(request, options)),
        }
    }
}

/// An exchange with its spans, which end with it.
struct ObservedExchange {
    /// `None` once it is cancelled.
    exchange: Option<Exchange>,
    /// `None` once the spans have ended.
    observed: Option<Box<Observed>>,
}

impl ObservedExchange {
    fn start(exchange: Exchange, observed: Box<Observed>) -> Exchange {
        if let Some(id) = exchange.request_id() {
            if !observed.span.is_disabled() {
                let id = display(shortened(id));
                observed.span.record(attribute::JSONRPC_REQUEST_ID, id);
            }
            observed.otel.set_request_id(id);
        }
        Exchange::new(Self {
            exchange: Some(exchange),
            observed: Some(observed),
        })
    }

    fn abandon(&mut self) {
        if let Some(observed) = self.observed.take() {
            observed.end(&Ending::abandoned(), None);
        }
    }
}

impl PollExchange for ObservedExchange {
    fn poll_event(&mut self, cx: &mut task::Context<'_>) -> Poll<ExchangeEvent> {
        let Some(exchange) = &mut self.exchange else {
            return Poll::Pending;
        };
        let Some(observed) = &self.observed else {
            return exchange.poll_event(cx);
        };
        let event = task::ready!(observed.in_scope(|| exchange.poll_event(cx)));
        if let ExchangeEvent::Answered(answer) = &event
            && let Some(observed) = self.observed.take()
        {
            let ending = Ending::of_answer(&observed.operation.method, answer);
            let result = match answer {
                Ok(Answer::Complete(result)) => Some(result),
                _ => None,
            };
            observed.end(&ending, result);
        }
        Poll::Ready(event)
    }

    fn request_id(&self) -> Option<&RequestId> {
        self.exchange.as_ref()?.request_id()
    }

    fn paused(&self) -> Duration {
        let exchange = self.exchange.as_ref();
        exchange.map_or(Duration::ZERO, Exchange::paused)
    }

    fn cancel(mut self: Box<Self>, reason: String) {
        if let Some(exchange) = self.exchange.take() {
            exchange.cancel(reason);
        }
        self.abandon();
    }
}

impl Drop for ObservedExchange {
    fn drop(&mut self) {
        // First: in process it drops the handler, whose span is inside this one.
        drop(self.exchange.take());
        self.abandon();
    }
}
