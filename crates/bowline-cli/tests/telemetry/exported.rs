//! [`Exported`], the time series that were exported, under the names that Prometheus gives them.

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};

/// The labels of each series, by the name of its metric, and their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exported(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Exported {
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    /// Returns the labels of a metric, with their values.
    pub(crate) fn labels(&self, name: &str) -> Option<&BTreeMap<String, BTreeSet<String>>> {
        self.0.get(name)
    }

    pub(crate) fn add_request(&mut self, request: &ExportMetricsServiceRequest) {
        for resource in &request.resource_metrics {
            self.add("target_info", Vec::new());
            for metric in resource.scope_metrics.iter().flat_map(|it| &it.metrics) {
                self.add_metric(metric);
            }
        }
    }

    /// Translates a metric as Prometheus translates those that it receives over OTLP.
    fn add_metric(&mut self, metric: &Metric) {
        let mut name = metric.name.replace('.', "_");
        match metric.unit.as_str() {
            "s" => name.push_str("_seconds"),
            "By" => name.push_str("_bytes"),
            unit => assert!(unit.starts_with('{'), "{unit}"),
        }
        match metric.data.as_ref().unwrap() {
            metric::Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    let labels = labels(&point.attributes);
                    for bound in &point.explicit_bounds {
                        let mut labels = labels.clone();
                        labels.push(("le".to_owned(), bound.to_string()));
                        self.add(&format!("{name}_bucket"), labels);
                    }
                    self.add(&format!("{name}_sum"), labels.clone());
                    self.add(&format!("{name}_count"), labels);
                }
            }
            metric::Data::Sum(sum) => {
                if sum.is_monotonic {
                    name.push_str("_total");
                }
                for point in &sum.data_points {
                    let is_integer =
                        matches!(point.value, Some(number_data_point::Value::AsInt(_)));
                    assert!(is_integer, "{name}");
                    self.add(&name, labels(&point.attributes));
                }
            }
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Adds metrics in the text format of Prometheus.
    pub(crate) fn add_text(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
            let mut labels = Vec::new();
            let mut rest = rest;
            while let Some((name, after)) = rest.split_once("=\"") {
                // No value of the load has a quotation mark.
                let (value, after) = after.split_once('"').unwrap();
                labels.push((name.trim_start_matches(',').to_owned(), value.to_owned()));
                rest = after;
            }
            assert_eq!(rest, "}", "{line}");
            self.add(name, labels);
        }
    }

    fn add(&mut self, name: &str, labels: Vec<(String, String)>) {
        let series = self.0.entry(name.to_owned()).or_default();
        for (label, value) in labels {
            series.entry(label).or_default().insert(value);
        }
    }
}

/// Returns the name of a metric without the suffix of a histogram.
pub(crate) fn family(name: &str) -> &str {
    let mut suffixes = ["_bucket", "_sum", "_count"].into_iter();
    let stem = suffixes.find_map(|suffix| name.strip_suffix(suffix));
    stem.unwrap_or(name)
}

fn labels(attributes: &[KeyValue]) -> Vec<(String, String)> {
    let label = |attribute: &KeyValue| {
        let value = attribute.value.as_ref().and_then(|it| it.value.as_ref());
        let value = match value.unwrap() {
            any_value::Value::StringValue(text) => text.clone(),
            any_value::Value::IntValue(number) => number.to_string(),
            other => panic!("{}: {other:?}", attribute.key),
        };
        (attribute.key.replace('.', "_"), value)
    };
    attributes.iter().map(label).collect()
}
