//! Writes metrics in the text format of Prometheus, version 0.0.4.
//!
//! Names are translated as the OpenTelemetry specification says, and as Prometheus does with metrics that it receives
//! over OTLP, so that one dashboard serves both: dots become underscores, units and `_total` are appended.

use std::fmt::{self, Display, Write as _};

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, Histogram, Metric, MetricData, ResourceMetrics,
};

/// The `Content-Type` of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn text_of(metrics: &ResourceMetrics) -> String {
    let mut text = String::new();
    write_target_info(&mut text, metrics.resource());
    for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
        match metric.data() {
            AggregatedMetrics::F64(data) => write_data(&mut text, metric, data),
            AggregatedMetrics::U64(data) => write_data(&mut text, metric, data),
            AggregatedMetrics::I64(data) => write_data(&mut text, metric, data),
        }
    }
    text
}

/// Writes the attributes of the process, which would be the same on every series.
fn write_target_info(text: &mut String, resource: &Resource) {
    let attributes = resource
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let attributes: Vec<_> = attributes.collect();
    write_head(text, "target_info", "Attributes of the process.", "gauge");
    write_sample(text, "target_info", &Labels::new(&attributes), 1);
}

fn write_data<T: Display + Copy>(text: &mut String, metric: &Metric, data: &MetricData<T>) {
    let name = translated(metric.name(), metric.unit());
    let help = metric.description();
    match data {
        MetricData::Sum(sum) => {
            let (name, kind) = match sum.is_monotonic() {
                true => (format!("{name}_total"), "counter"),
                false => (name, "gauge"),
            };
            write_head(text, &name, help, kind);
            for point in sum.data_points() {
                let labels = Labels::new(point.attributes());
                write_sample(text, &name, &labels, point.value());
            }
        }
        MetricData::Gauge(gauge) => {
            write_head(text, &name, help, "gauge");
            for point in gauge.data_points() {
                let labels = Labels::new(point.attributes());
                write_sample(text, &name, &labels, point.value());
            }
        }
        MetricData::Histogram(histogram) => {
            write_head(text, &name, help, "histogram");
            write_histogram(text, &name, histogram);
        }
        // The text format has no form for it, and no instrument of ours creates one.
        MetricData::ExponentialHistogram(_) => {}
    }
}

fn write_histogram<T: Display + Copy>(text: &mut String, name: &str, histogram: &Histogram<T>) {
    let (bucket, sum, count) = (
        format!("{name}_bucket"),
        format!("{name}_sum"),
        format!("{name}_count"),
    );
    for point in histogram.data_points() {
        let labels = Labels::new(point.attributes());
        let bounds = point.bounds().map(|bound| bound.to_string());
        let bounds = bounds.chain(std::iter::once("+Inf".to_owned()));
        let mut total = 0;
        for (bound, number) in bounds.zip(point.bucket_counts()) {
            total += number;
            write_sample(text, &bucket, &labels.with("le", &bound), total);
        }
        write_sample(text, &sum, &labels, point.sum());
        write_sample(text, &count, &labels, point.count());
    }
}

fn write_head(text: &mut String, name: &str, help: &str, kind: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn write_sample(text: &mut String, name: &str, labels: &Labels, value: impl Display) {
    let _ = writeln!(text, "{name}{labels} {value}");
}

/// The labels of a sample.
#[derive(Clone, Debug)]
struct Labels(Vec<(String, String)>);

impl Labels {
    fn new<'a>(attributes: impl IntoIterator<Item = &'a KeyValue>) -> Self {
        let attributes = attributes.into_iter();
        let labels = attributes.map(|it| (escaped_name(it.key.as_str()), it.value.to_string()));
        let mut labels: Vec<_> = labels.collect();
        // The SDK has no order of its own.
        labels.sort();
        Self(labels)
    }

    fn with(&self, name: &str, value: &str) -> Self {
        let mut labels = self.clone();
        labels.0.push((name.to_owned(), value.to_owned()));
        labels
    }
}

impl Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            let separator = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            let value = value.replace('\n', "\\n");
            write!(f, "{separator}{name}=\"{value}\"")?;
        }
        match self.0.is_empty() {
            true => Ok(()),
            false => f.write_str("}"),
        }
    }
}

/// Returns the name of a metric with its unit.
fn translated(name: &str, unit: &str) -> String {
    let name = escaped_name(name);
    match unit {
        "s" => format!("{name}_seconds"),
        "By" => format!("{name}_bytes"),
        // Those in braces are annotations, not units.
        _ => name,
    }
}

fn escaped_name(name: &str) -> String {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let characters = name.chars();
    characters
        .map(|it| if is_allowed(it) { it } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::SdkMeterProvider;
    use opentelemetry_sdk::metrics::reader::MetricReader as _;

    use super::super::scrape::ScrapeReader;
    use super::*;

    fn text(record: impl FnOnce(&opentelemetry::metrics::Meter)) -> String {
        let reader = ScrapeReader::default();
        let provider = SdkMeterProvider::builder()
            .with_resource(Resource::builder_empty().build())
            .with_reader(reader.clone())
            .build();
        record(&provider.meter("test"));
        let mut metrics = ResourceMetrics::default();
        reader.collect(&mut metrics).unwrap();
        text_of(&metrics)
    }

    #[test]
    fn a_histogram_has_cumulative_buckets_a_sum_and_a_count() {
        let text = text(|meter| {
            let histogram = meter.f64_histogram("a.duration").with_unit("s");
            let histogram = histogram.with_boundaries(vec![0.5, 2.0]).build();
            for value in [0.25, 1.0, 1.5, 8.0] {
                histogram.record(value, &[KeyValue::new("a.b", "c")]);
            }
        });

        let expected = "\
# TYPE a_duration_seconds histogram
a_duration_seconds_bucket{a_b=\"c\",le=\"0.5\"} 1
a_duration_seconds_bucket{a_b=\"c\",le=\"2\"} 3
a_duration_seconds_bucket{a_b=\"c\",le=\"+Inf\"} 4
a_duration_seconds_sum{a_b=\"c\"} 10.75
a_duration_seconds_count{a_b=\"c\"} 4
";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn counters_end_in_total_and_gauges_do_not() {
        let text = text(|meter| {
            let counter = meter.u64_counter("a.refused").with_unit("{request}");
            counter.with_description("Two\nlines.").build().add(2, &[]);
            let gauge = meter.i64_up_down_counter("a.queued").with_unit("By");
            gauge.build().add(-3, &[]);
        });

        assert!(
            text.contains(
                "# HELP a_refused_total Two\\nlines.\n# TYPE a_refused_total counter\na_refused_total 2\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("# TYPE a_queued_bytes gauge\na_queued_bytes -3\n"),
            "{text}"
        );
    }

    #[test]
    fn label_values_cannot_end_the_label() {
        let text = text(|meter| {
            let tool = KeyValue::new("tool", "a\"} 1\nb\\");
            meter.u64_counter("calls").build().add(1, &[tool]);
        });

        assert!(
            text.contains("calls_total{tool=\"a\\\"} 1\\nb\\\\\"} 1\n"),
            "{text}"
        );
    }
}
