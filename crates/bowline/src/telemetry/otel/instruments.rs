//! [`Instruments`], the histograms of operations, cancels, legs and tasks.

use std::borrow::Cow;
use std::time::Duration;

use bowline_core::shortened;
use opentelemetry::metrics::{Histogram, Meter};
use opentelemetry::{KeyValue, StringValue, Value};

use super::super::ending::Unknown;
use super::super::operation::Target;
use crate::telemetry::names::{DURATION_BUCKETS, EXECUTE_TOOL, OTHER, attribute, bowline, metric};
use crate::telemetry::{Ending, Operation};

pub(super) struct Instruments {
    client_operation: Histogram<f64>,
    server_operation: Histogram<f64>,
    client_cancelled: Histogram<f64>,
    server_cancelled: Histogram<f64>,
    call_legs: Histogram<u64>,
    task_duration: Histogram<f64>,
}

/// The side of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This side sent the request.
    Client,
    /// This side answers it.
    Server,
}

impl Instruments {
    pub(super) fn new(meter: &Meter) -> Self {
        let duration = |name, description| duration(meter, name, description);
        Self {
            client_operation: duration(
                metric::CLIENT_OPERATION_DURATION,
                "The duration of a request or notification, as its sender observes it.",
            ),
            server_operation: duration(
                metric::SERVER_OPERATION_DURATION,
                "The duration of a request or notification, as its receiver observes it.",
            ),
            client_cancelled: duration(
                bowline::CLIENT_CANCELLED_DURATION,
                "The duration of requests until the client gave them up.",
            ),
            server_cancelled: duration(
                bowline::SERVER_CANCELLED_DURATION,
                "The duration of requests until they were cancelled.",
            ),
            call_legs: meter
                .u64_histogram(bowline::CLIENT_CALL_LEGS)
                .with_unit("{request}")
                .with_description("The requests of a call whose server asked for input.")
                .with_boundaries(LEG_BUCKETS.to_vec())
                .build(),
            task_duration: duration(
                bowline::SERVER_TASK_DURATION,
                "The duration of a task, from its creation to its end.",
            ),
        }
    }

    pub(super) fn record_operation(
        &self,
        side: Side,
        operation: &Operation,
        ending: &Ending,
        elapsed: Duration,
    ) {
        let mut attributes = operation_attributes(operation, ending.unknown);
        let (operations, cancels) = match side {
            Side::Client => (&self.client_operation, &self.client_cancelled),
            Side::Server => (&self.server_operation, &self.server_cancelled),
        };
        if let Some(cancelled) = ending.cancelled {
            let by = KeyValue::new(bowline::CANCELLED_BY, cancelled.by.as_str());
            let mut of_cancel = vec![by.clone(), attributes[0].clone()];
            of_cancel.extend(target_attribute(operation));
            let handler = cancelled.handler;
            of_cancel.extend(handler.map(|it| KeyValue::new(bowline::CANCELLED_HANDLER, it)));
            cancels.record(elapsed.as_secs_f64(), &of_cancel);
            attributes.push(by);
        }
        attributes.extend(ending_attributes(ending));
        operations.record(elapsed.as_secs_f64(), &attributes);
    }

    pub(super) fn record_legs(&self, operation: &Operation, legs: u32) {
        let mut attributes = vec![method_attribute(&operation.method)];
        attributes.extend(target_attribute(operation));
        self.call_legs.record(legs.into(), &attributes);
    }

    pub(super) fn record_task(&self, tool: &str, status: &'static str, elapsed: Duration) {
        let attributes = [
            KeyValue::new(attribute::GEN_AI_TOOL_NAME, shortened(tool).to_string()),
            KeyValue::new(bowline::TASK_STATUS, status),
        ];
        self.task_duration
            .record(elapsed.as_secs_f64(), &attributes);
    }
}

/// Creates a histogram of seconds, with the buckets of the conventions.
pub(super) fn duration(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
) -> Histogram<f64> {
    meter
        .f64_histogram(name)
        .with_unit("s")
        .with_description(description)
        .with_boundaries(DURATION_BUCKETS.to_vec())
        .build()
}

/// The attributes of an operation that metrics and spans share, the method first. Unknown names are left out.
pub(super) fn operation_attributes(operation: &Operation, unknown: Unknown) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(12);
    attributes.push(match unknown {
        Unknown::Method => KeyValue::new(attribute::MCP_METHOD_NAME, OTHER),
        Unknown::Nothing | Unknown::Target => method_attribute(&operation.method),
    });
    if unknown == Unknown::Nothing {
        attributes.extend(target_attribute(operation));
    }
    if operation.target.tool().is_some() {
        attributes.push(KeyValue::new(
            attribute::GEN_AI_OPERATION_NAME,
            EXECUTE_TOOL,
        ));
    }
    let transport = operation.transport;
    let texts = [
        (attribute::MCP_PROTOCOL_VERSION, Some(operation.version)),
        (attribute::NETWORK_TRANSPORT, transport.network_transport()),
        (
            attribute::NETWORK_PROTOCOL_NAME,
            transport.network_protocol(),
        ),
        (attribute::NETWORK_PROTOCOL_VERSION, operation.http_version),
    ];
    for (name, text) in texts {
        attributes.extend(text.map(|text| KeyValue::new(name, text)));
    }
    attributes.extend(
        operation
            .address
            .iter()
            .flat_map(|it| address_attributes(it)),
    );
    attributes
}

/// The attributes of the end of an operation that metrics and spans share.
pub(super) fn ending_attributes(ending: &Ending) -> impl Iterator<Item = KeyValue> {
    let texts = [
        (attribute::RPC_RESPONSE_STATUS_CODE, &ending.code),
        (attribute::ERROR_TYPE, &ending.error_type),
        (bowline::RESULT_TYPE, &ending.result_type),
    ];
    let present = texts
        .into_iter()
        .filter_map(|(name, text)| Some((name, text.as_ref()?)));
    present.map(|(name, value)| KeyValue::new(name, text(value)))
}

pub(super) fn address_attributes(
    address: &crate::telemetry::ServerAddress,
) -> impl Iterator<Item = KeyValue> {
    let port = address
        .port
        .map(|port| KeyValue::new(attribute::SERVER_PORT, i64::from(port)));
    let host = KeyValue::new(attribute::SERVER_ADDRESS, address.host.clone());
    std::iter::once(host).chain(port)
}

/// Returns the attribute of the tool or the prompt. The URI of a resource has too many values for a metric.
fn target_attribute(operation: &Operation) -> Option<KeyValue> {
    let (key, name) = match &operation.target {
        Target::Tool(name) => (attribute::GEN_AI_TOOL_NAME, name),
        Target::Prompt(name) => (attribute::GEN_AI_PROMPT_NAME, name),
        Target::Resource(_) | Target::None => return None,
    };
    Some(KeyValue::new(key, StringValue::from(name.clone())))
}

#[allow(clippy::ptr_arg, reason = "a static text is not copied")]
fn method_attribute(method: &Cow<'static, str>) -> KeyValue {
    KeyValue::new(attribute::MCP_METHOD_NAME, text(method))
}

#[allow(clippy::ptr_arg, reason = "a static text is not copied")]
pub(super) fn text(value: &Cow<'static, str>) -> Value {
    match value {
        Cow::Borrowed(text) => Value::from(*text),
        Cow::Owned(text) => Value::from(text.clone()),
    }
}

const LEG_BUCKETS: [f64; 7] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0];
