//! [`LegacyInstruments`], the durations of legacy sessions, and the number of those over HTTP.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

use super::super::legacy::LegacyConnection;
use super::Shared;
use super::instruments::{address_attributes, duration, text};
use crate::telemetry::names::{attribute, bowline, metric};

pub(super) struct LegacyInstruments {
    client: Histogram<f64>,
    server: Histogram<f64>,
}

impl LegacyInstruments {
    pub(super) fn new(meter: &Meter) -> Self {
        Self {
            client: duration(
                meter,
                metric::CLIENT_SESSION_DURATION,
                "The duration of a session, as its client observes it.",
            ),
            server: duration(
                meter,
                metric::SERVER_SESSION_DURATION,
                "The duration of a session, as its server observes it.",
            ),
        }
    }

    pub(super) fn record(&self, session: &LegacyConnection, elapsed: Duration) {
        let version = KeyValue::new(attribute::MCP_PROTOCOL_VERSION, session.version);
        let mut attributes = vec![version];
        let transport = session.transport;
        let texts = [
            (attribute::NETWORK_TRANSPORT, transport.network_transport()),
            (
                attribute::NETWORK_PROTOCOL_NAME,
                transport.network_protocol(),
            ),
        ];
        for (name, text) in texts {
            attributes.extend(text.map(|text| KeyValue::new(name, text)));
        }
        let error = session.error_type.as_ref();
        attributes.extend(error.map(|it| KeyValue::new(attribute::ERROR_TYPE, text(it))));
        let histogram = if session.is_server {
            &self.server
        } else {
            attributes.extend(session.address.iter().flat_map(|it| address_attributes(it)));
            &self.client
        };
        histogram.record(elapsed.as_secs_f64(), &attributes);
    }
}

/// Creates the instrument of the number of sessions.
pub(super) fn observe(meter: &Meter, shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    meter
        .i64_observable_up_down_counter(bowline::SERVER_SESSIONS)
        .with_unit("{session}")
        .with_description("Legacy sessions over HTTP.")
        .with_callback(move |observer| {
            if let Some(shared) = weak.upgrade() {
                observer.observe(shared.usage.lock().sum(|usage| usage.sessions), &[]);
            }
        })
        .build();
}
